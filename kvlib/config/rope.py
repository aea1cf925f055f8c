"""Rotary position embedding as a config states it: `rope_theta`, `rope_scaling`, `rope_parameters`.

The angles themselves are computed in `kvlib.model.rope`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvlib.config.keys import Keys, one_of, positive_float, positive_int

KINDS = ("default", "linear", "llama3")


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
        one_of("rope kind", self.kind, KINDS)
        for name in ("theta", "factor", "low_freq_factor", "high_freq_factor"):
            positive_float(f"rope {name}", getattr(self, name))
        positive_int("rope original_max_position_embeddings", self.original_max_position_embeddings)
        if self.kind == "llama3" and self.high_freq_factor <= self.low_freq_factor:
            raise ValueError(
                f"rope high_freq_factor is {self.high_freq_factor}, needed: more than "
                f"low_freq_factor ({self.low_freq_factor})"
            )


def read(keys: Keys) -> RopeConfig:
    """The one rope of all layers, from `rope_theta`, `rope_scaling` and `rope_parameters`."""
    keys.only("partial_rotary_factor", 1.0, "the whole head is rotated")
    theta = keys.number("rope_theta", 10000.0)
    found = []
    for key in ("rope_parameters", "rope_scaling"):
        entry = keys.read(key, dict, "an object or null", None)
        if entry is None:
            continue
        if entry and all(isinstance(value, dict) for value in entry.values()):
            used = keys.data.get("layer_types") or ["full_attention"]
            parts = {kind: value for kind, value in entry.items() if kind in used}
            if not parts:
                raise keys.error(key, f"an entry for each layer type of {sorted(set(used))}")
            for kind, value in parts.items():
                found.append(_entry(Keys(value, keys.source, f"{key}.{kind}."), theta))
        else:
            found.append(_entry(Keys(entry, keys.source, f"{key}."), theta))
        if any(one != found[0] for one in found):
            raise keys.error(key, "one and the same rope for all layers, stated once")
    return found[0] if found else RopeConfig(theta=theta)


def _entry(keys: Keys, theta: float) -> RopeConfig:
    key = "rope_type" if keys.data.get("rope_type") is not None else "type"
    kind = keys.data.get(key, "default")
    if kind not in KINDS:
        raise keys.error(key, f"one of {', '.join(KINDS)}")
    keys.only("partial_rotary_factor", 1.0, "the whole head is rotated")
    fields = {"theta": keys.number("rope_theta", theta)}
    if kind != "default":
        fields["factor"] = keys.number("factor")
    if kind == "llama3":
        for name in ("low_freq_factor", "high_freq_factor"):
            fields[name] = keys.number(name)
        name = "original_max_position_embeddings"
        fields[name] = keys.count(name)
    return RopeConfig(kind=kind, **fields)
