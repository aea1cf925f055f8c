"""The names that a config may state, and checks that its numbers make sense."""

from __future__ import annotations

import math

ACTIVATIONS = ("silu", "gelu", "gelu_new", "gelu_pytorch_tanh")
NORMS = ("rms", "rms_1p", "layer")
POSITIONS = ("rope", "learned")


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
