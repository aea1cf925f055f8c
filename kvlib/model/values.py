"""The values that a config states: names that are known, numbers that make sense, rope's own."""

from __future__ import annotations

import math
from dataclasses import dataclass

ACTIVATIONS = ("silu", "gelu", "gelu_new", "gelu_pytorch_tanh")
NORMS = ("rms", "layer")
POSITIONS = ("rope", "learned")
ROPE_KINDS = ("default", "linear", "llama3")


@dataclass(frozen=True)
class RopeConfig:
    """Rotary position embedding (RoFormer, arXiv:2104.09864).

    theta is the base of the frequencies ``theta ** (-2 i / D)``. kind "default" leaves them alone,
    "linear" divides all by `factor` (arXiv:2306.15595), "llama3" divides the slow ones by `factor`,
    leaves the fast ones and interpolates between (Llama 3.1, arXiv:2407.21783): slow means fewer
    than `low_freq_factor` turns within `original_max_position_embeddings` tokens, fast more than
    `high_freq_factor`.

    >>> from kvlib.model import rope
    >>> rope.frequencies(RopeConfig(theta=10000.0), 4)
    array([1.  , 0.01])
    """

    theta: float = 10000.0
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192

    def __post_init__(self) -> None:
        one_of("rope kind", self.kind, ROPE_KINDS)
        for name in ("theta", "factor", "low_freq_factor", "high_freq_factor"):
            positive_float(f"rope {name}", getattr(self, name))
        positive_int("rope original_max_position_embeddings", self.original_max_position_embeddings)
        if self.kind == "llama3" and self.high_freq_factor <= self.low_freq_factor:
            raise ValueError(
                f"rope high_freq_factor is {self.high_freq_factor}, needed: more than "
                f"low_freq_factor ({self.low_freq_factor})"
            )


def positive_int(name: str, value: object) -> None:
    """Refuse what is no whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {value!r}, needed: a whole number of at least 1")


def positive_float(name: str, value: object) -> None:
    """Refuse what is no finite number above 0."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not good or not math.isfinite(value) or value <= 0:  # type: ignore[arg-type, operator]
        raise ValueError(f"{name} is {value!r}, needed: a number above 0")


def one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    """Refuse what is none of the names that are known."""
    if value not in known:
        raise ValueError(f"{name} is {value!r}, needed: one of {', '.join(known)}")
