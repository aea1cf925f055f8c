"""Rotary position embedding as a config states it; `kvlib.model.rope` computes the angles."""

from __future__ import annotations  # `__post_init__` reads them as text

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from kvlib.config import ranges
from kvlib.config.keys import Keys
from kvlib.config.ranges import POSITIONS

ORIGINAL = "original_max_position_embeddings"
KINDS = ("default", "linear", "dynamic", "llama3", "yarn")


@dataclass(frozen=True)
class RopeConfig:
    """Rotary position embedding (RoFormer, arXiv:2104.09864).

    theta is the base of the frequencies ``theta ** (-2 i / D)``, partial_rotary_factor the share of
    a head's numbers that are rotated, the first ones. What `kind` does with the frequencies:

    "default"  nothing
    "linear"   divides all by `factor` (arXiv:2306.15595)
    "dynamic"  nothing: beyond the model's limit the base would grow with every token, and kvlib
               runs no text as long (NTK-aware scaling, as Hugging Face transformers has it)
    "llama3"   divides the slow ones by `factor`, leaves the fast ones and interpolates between
               (arXiv:2407.21783): slow means fewer than `low_freq_factor` turns within
               `original_max_position_embeddings` tokens, fast more than `high_freq_factor`
    "yarn"     as "llama3", with `beta_slow` and `beta_fast` as the limits, but interpolates by the
               number i of the frequency and multiplies cos and sin by `attention_factor` (YaRN,
               arXiv:2309.00071). The limits are two fractional i; `truncate` rounds the lower one
               down and the upper one up

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
    beta_slow: float = 1.0
    beta_fast: float = 32.0
    attention_factor: float = 1.0
    truncate: bool = True
    partial_rotary_factor: float = 1.0

    def __post_init__(self) -> None:
        ranges.one_of("rope kind", self.kind, KINDS)
        for field in fields(self):
            key, value = field.name, getattr(self, field.name)
            if field.type == "float":
                ranges.number(f"rope {key}", value, "rope_theta" if key == "theta" else key)
            elif field.type == "int":
                object.__setattr__(self, key, ranges.count(f"rope {key}", value, 1, POSITIONS))
        if self.kind in ("llama3", "yarn"):
            names = ("low_freq_factor", "high_freq_factor", "beta_slow", "beta_fast")
            low, high = names[:2] if self.kind == "llama3" else names[2:]
            slow, fast = getattr(self, low), getattr(self, high)
            if fast < slow or (fast == slow and self.kind == "llama3"):  # Kimi K2's YaRN has one
                raise ValueError(f"rope {high} is {fast}, needed: more than {low} ({slow})")
        if self.kind == "yarn" and self.theta == 1.0:
            raise ValueError("rope theta is 1.0, needed for yarn: frequencies that differ")

    def rotated(self, head_dim: int) -> int:
        """Return how many numbers of a head are rotated."""
        return int(head_dim * self.partial_rotary_factor)


ENTRIES = ("rope_parameters", "rope_scaling")  # the keys that hold a rope, new and old
FULL, SLIDING = "full_attention", "sliding_attention"  # as `layer_types` names them


def _entries(keys: Keys) -> list[tuple[str, Keys]]:
    """Return the objects that may state a rope, empty ones too, by their keys."""
    entries = {key: keys.read(key, dict, "an object or null", {}) for key in ENTRIES}
    return [(key, keys.inner(key, entry)) for key, entry in entries.items()]


def read_rope(keys: Keys, theta: float = 10000.0, partial: float | None = None) -> RopeConfig:
    """Return the one rope of all layers; theta, partial (None: whole heads): unless stated."""
    plain = RopeConfig(theta=keys.number("rope_theta", theta))
    if partial is not None:
        places = (keys, *(inside for _, inside in _entries(keys)))
        stated = [part.number("partial_rotary_factor", None) for part in places]
        plain = replace(plain, partial_rotary_factor=next(filter(None, stated), partial))
    used = keys.read("layer_types", list, "a list", None) or [FULL]
    ropes = list(_stated(keys, {kind: plain for kind in used if isinstance(kind, str)}))
    for key, _, rope in ropes:
        if rope != ropes[0][2]:
            raise keys.error(key, "one and the same rope for all layers, stated once")
    return ropes[0][2] if ropes else plain


def longest(keys: Keys) -> int:
    """Return how many tokens the model can read, including the stretch of its rope.

    For "yarn" `factor` times `original_max_position_embeddings`, whatever the first key says:
    Qwen3-8B reads 131,072 tokens, as its model card says, although its file states 40,960. vLLM
    0.33.0 has the same rules (`_get_and_verify_max_len`), but stretches YaRN models in advance.
    """
    length = keys.count("max_position_embeddings")
    for _, inside in _entries(keys):
        if isinstance(inside.data.get(FULL), dict):
            inside = inside.inner(FULL, inside.data[FULL])
        kind = inside.data.get("rope_type") or inside.data.get("type")
        if kind not in ("linear", "dynamic", "yarn") or inside.data.get("factor") is None:
            continue
        start = original(inside, keys) if kind == "yarn" else length
        stretched = int(start * inside.number("factor"))
        if not 1 <= stretched <= POSITIONS:
            needed = f"a number that stretches {start:,} tokens to 1 to {POSITIONS:,}"
            raise inside.error("factor", needed)
        return stretched
    return length


def original(keys: Keys, model: Keys) -> int:
    """Return the longest text in training before the stretch; refuse a file that states two."""
    inside, outside = keys.count(ORIGINAL, None), model.count(ORIGINAL, None)
    if inside and outside:
        keys.only(ORIGINAL, outside, f"as {ORIGINAL} of the file says")
    return outside or inside or model.count("max_position_embeddings")


def read_by_type(keys: Keys, full: float, sliding: float) -> tuple[RopeConfig, RopeConfig]:
    """Return the ropes of layers that see all tokens and of layers with a window (Gemma 3).

    full, sliding: the default thetas. Older files state `rope_local_base_freq` for the second.
    """
    ropes = {
        FULL: RopeConfig(theta=keys.number("rope_theta", full)),
        SLIDING: RopeConfig(theta=keys.number("rope_local_base_freq", sliding)),
    }
    stated: set[str] = set()
    for key, kind, rope in _stated(keys, dict(ropes)):
        kind = kind or FULL  # the only layers whose positions are stretched
        if kind in stated and rope != ropes[kind]:
            raise keys.error(key, f"the rope of {kind!r} stated once")
        stated.add(kind)
        ropes[kind] = rope
    return ropes[FULL], ropes[SLIDING]


def _stated(
    keys: Keys, plain: Mapping[str, RopeConfig]
) -> Iterator[tuple[str, str | None, RopeConfig]]:
    """Yield each stated rope: key, layer type (None: any), rope; `plain` has the defaults."""
    _partial(keys, next(iter(plain.values())))
    keys.seen.add(ORIGINAL)  # only llama3 and yarn depend on it
    for key, inside in _entries(keys):
        entry = inside.data
        if keys.data.get(key) is None:
            continue
        if not entry or not all(isinstance(value, dict) for value in entry.values()):
            yield key, None, _entry(inside, next(iter(plain.values())), keys)
            continue
        if not plain.keys() <= entry.keys():
            raise keys.error(key, f"an entry for each layer type of {sorted(plain)}")
        for kind in (kind for kind in entry if kind not in (FULL, SLIDING)):
            raise inside.error(kind, f"no such key: the layer types are {FULL} and {SLIDING}")
        for kind in plain:
            yield key, kind, _entry(inside.inner(kind, entry[kind]), plain[kind], keys)


def _partial(keys: Keys, plain: RopeConfig) -> None:
    """Refuse another share of a head than `plain` rotates."""
    share = plain.partial_rotary_factor
    why = "the whole head is rotated" if share == 1.0 else "this share of a head is rotated"
    keys.only("partial_rotary_factor", share, why)


def _entry(keys: Keys, plain: RopeConfig, model: Keys) -> RopeConfig:
    """Return one rope; `model` has the keys of the whole file."""
    keys.seen.add(ORIGINAL)
    key = "rope_type" if keys.data.get("rope_type") is not None else "type"
    if "vl" in keys.model_type.split("_"):  # positions of three numbers, which are equal in a text
        keys.seen.update(("mrope_section", "mrope_interleaved"))
        if keys.data.get(key) == "mrope":
            keys.data = {**keys.data, key: "default"}
    kind = keys.read(key, str, f"one of {', '.join(KINDS)}", "default", KINDS.__contains__)
    keys.only("type", kind, "as rope_type says")
    _partial(keys, plain)
    numbers: dict[str, Any] = {"theta": keys.number("rope_theta", plain.theta)}
    if kind == "default":
        keys.only("factor", 1.0, "this rope_type has none")
    scales = ("factor", "low_freq_factor", "high_freq_factor")
    for name in scales[: {"default": 0, "llama3": 3}.get(kind, 1)]:
        numbers[name] = keys.number(name)
    if kind == "llama3":
        keys.count(ORIGINAL)
        numbers[ORIGINAL] = original(keys, model)
    if kind == "yarn":
        mscale, all_dims = (keys.number(name, None) for name in ("mscale", "mscale_all_dim"))
        temperature = _temperature(numbers["factor"])
        if mscale and all_dims:
            mscale, all_dims = (_temperature(numbers["factor"], m) for m in (mscale, all_dims))
            temperature = mscale / all_dims
        numbers |= {
            ORIGINAL: original(keys, model),
            "beta_slow": keys.number("beta_slow", 1.0),
            "beta_fast": keys.number("beta_fast", 32.0),
            "attention_factor": keys.number("attention_factor", temperature),
            "truncate": keys.flag("truncate", True),
        }
    keys.refuse_others(to_run=True)
    return replace(plain, kind=kind, **numbers)


def score_factor(keys: Keys) -> float:
    """Return DeepSeek's factor of scores beside 1/√D: m², m = 0.1 · `mscale_all_dim` · ln s + 1.

    s is YaRN's `factor`. 1.0 without YaRN or without that key. `read_rope` has checked them.
    """
    for key in ENTRIES:
        entry = keys.data.get(key) or {}
        if entry.get("mscale_all_dim"):
            return _temperature(float(entry["factor"]), float(entry["mscale_all_dim"])) ** 2
    return 1.0


def _temperature(factor: float, mscale: float = 1.0) -> float:
    """Return the factor by which YaRN multiplies cos and sin; scores grow by its square."""
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1.0 else 1.0
