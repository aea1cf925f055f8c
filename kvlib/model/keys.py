"""Reading the keys of a config.json: types checked, and errors that name file, key and value.

`Keys` reads one object; `rope`, `activation` and `special_tokens` read what several families state
alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvlib.errors import CheckpointError
from kvlib.model.values import ACTIVATIONS, ROPE_KINDS, RopeConfig

FULL, SLIDING = "full_attention", "sliding_attention"
_UNSET: Any = object()


class Keys:
    """One config.json, read with types checked; errors name file, key and value."""

    def __init__(self, data: Mapping[str, Any], source: str, inside: str = "") -> None:
        self.data, self.source, self.inside = data, source, inside

    def error(self, key: str, needed: str) -> CheckpointError:
        came = f"is {self.data[key]!r}" if key in self.data else "is missing"
        return CheckpointError(f"{self.source}: {self.inside}{key} {came}, needed: {needed}")

    def read(self, key: str, kind: type, needed: str, default: Any = _UNSET) -> Any:
        """The value; `default` where it is absent or null, an error where there is none."""
        value = self.data.get(key)
        if value is None:
            if default is _UNSET:
                raise self.error(key, needed)
            return default
        accepted = (int, float) if kind is float else kind
        if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
            raise self.error(key, needed)
        return value

    def count(self, key: str, default: Any = _UNSET) -> int:
        value = self.read(key, int, "a whole number of at least 1", default)
        if value is not None and value < 1:
            raise self.error(key, "a whole number of at least 1")
        return value

    def number(self, key: str, default: Any = _UNSET) -> float:
        value = float(self.read(key, float, "a number above 0", default))
        if not 0 < value < float("inf"):
            raise self.error(key, "a number above 0")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        return self.read(key, bool, "true or false", default)

    def refuse(self, key: str, only: Any, why: str) -> None:
        """Raise unless the key is absent or null or holds the one value that is supported."""
        value = self.data.get(key)
        if value is not None and value != only:
            raise self.error(key, f"{only!r} or no such key ({why})")


def rope(keys: Keys) -> RopeConfig:
    """The one rope of all layers, from `rope_theta`, `rope_scaling` and `rope_parameters`."""
    keys.refuse("partial_rotary_factor", 1.0, "the whole head is rotated")
    theta = keys.number("rope_theta", 10000.0)
    found = []
    for key in ("rope_parameters", "rope_scaling"):
        entry = keys.read(key, dict, "an object or null", None)
        if entry is None:
            continue
        if entry and all(isinstance(value, dict) for value in entry.values()):
            used = keys.data.get("layer_types") or [FULL]
            parts = {kind: value for kind, value in entry.items() if kind in used}
            if not parts:
                raise keys.error(key, f"an entry for each layer type of {sorted(set(used))}")
            for kind, value in parts.items():
                found.append(_rope_entry(Keys(value, keys.source, f"{key}.{kind}."), theta))
        else:
            found.append(_rope_entry(Keys(entry, keys.source, f"{key}."), theta))
        if any(one != found[0] for one in found):
            raise keys.error(key, "one and the same rope for all layers, stated once")
    return found[0] if found else RopeConfig(theta=theta)


def _rope_entry(keys: Keys, theta: float) -> RopeConfig:
    key = "rope_type" if keys.data.get("rope_type") is not None else "type"
    kind = keys.data.get(key, "default")
    if kind not in ROPE_KINDS:
        raise keys.error(key, f"one of {', '.join(ROPE_KINDS)}")
    keys.refuse("partial_rotary_factor", 1.0, "the whole head is rotated")
    theta = keys.number("rope_theta", theta)
    if kind == "default":
        return RopeConfig(theta=theta)
    if kind == "linear":
        return RopeConfig(theta=theta, kind=kind, factor=keys.number("factor"))
    return RopeConfig(
        theta=theta,
        kind=kind,
        factor=keys.number("factor"),
        low_freq_factor=keys.number("low_freq_factor"),
        high_freq_factor=keys.number("high_freq_factor"),
        original_max_position_embeddings=keys.count("original_max_position_embeddings"),
    )


def activation(keys: Keys, key: str, default: str) -> str:
    name = keys.read(key, str, f"one of {', '.join(ACTIVATIONS)}", default)
    if name == "swish":  # the same function under its older name
        return "silu"
    if name not in ACTIVATIONS:
        raise keys.error(key, f"one of {', '.join(ACTIVATIONS)}")
    return name


def special_tokens(keys: Keys) -> dict[str, Any]:
    bos = token_ids(keys, "bos_token_id")
    return {
        "bos_token_id": bos[0] if bos else None,
        "eos_token_ids": token_ids(keys, "eos_token_id"),
    }


def token_ids(keys: Keys, key: str) -> tuple[int, ...]:
    """One id, a list of ids or null, as a tuple."""
    value = keys.data.get(key)
    if value is None:
        return ()
    values = value if isinstance(value, list) else [value]
    for one in values:
        if isinstance(one, bool) or not isinstance(one, int) or one < 0:
            raise keys.error(key, "a token id, a list of token ids or null")
    return tuple(values)
