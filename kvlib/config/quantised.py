"""Quantised weights, as config.json or a file beside it states them.

NVIDIA's Model Optimizer writes hf_quant_config.json, and its newer releases the same into
`quantization_config` of config.json. AutoGPTQ writes quantize_config.json, AutoAWQ
quant_config.json, and MLX two equal keys, `quantization` and `quantization_config`.
"""

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from fnmatch import translate
from fractions import Fraction
from functools import cached_property
from typing import Any

from kvlib.config import ranges, words
from kvlib.config.json_files import read_json
from kvlib.config.keys import Keys
from kvlib.errors import CheckpointError

KEYS = ("quantization_config", "quantization", "compression_config")
MODELOPT = "hf_quant_config.json"
FILES = (MODELOPT, "quantize_config.json", "quant_config.json")
WILD, TOLD = re.compile(r"[*?[]"), re.compile(r"[?[]|(^|[.*])\d+([.*]|$)")
MOST_PATTERNS = 500  # with wildcards; published files have 64
COUNTED, LOADED = "kvlib does not count these weights", "quantised weights are not read"


@dataclass(frozen=True)
class Format:
    """How numbers are stored: `bits` per number, and `scale_bits` of scales per `group` numbers.

    group 0 means one scale for every vector of a cache; `residual` is how many of a request's last
    tokens stay in 16 bits (KIVI, arXiv:2402.02750). Bits are fractions where keys and values
    differ.

    >>> from kvlib.costs import CODECS
    >>> CODECS["int8"].bits, CODECS["bf16"].name
    (8, 'bfloat16')
    """

    name: str
    title: str
    bits: int | Fraction
    scale_bits: int | Fraction = 0
    group: int = 0
    residual: int = 0
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, least in (("bits", 1), ("scale_bits", 0), ("group", 0), ("residual", 0)):
            value = getattr(self, name)
            if not isinstance(value, Fraction):
                ranges.count(f"{name} of codec {self.name!r}", value, least)

    @property
    def facts(self) -> dict[str, Any]:
        """Plain numbers, as `kvlib.costs.formulas` takes them."""
        return {field.name: getattr(self, field.name) for field in fields(self)[:-1]}


# quant_algo, as vLLM 0.33.0 reads it (LINEAR_ALGOS of modelopt.py in
# vllm/model_executor/layers/quantization). The one or two scales of a whole matrix are not counted:
# 8 bytes of some megabytes.
_SIZES = {
    "FP8": (8, 0, 0),
    "FP8_PB_WO": (8, 32, 128 * 128),
    "MXFP8": (8, 8, 32),
    "NVFP4": (4, 8, 16),
    "W4A16_NVFP4": (4, 8, 16),
}
FORMATS = {name: Format(name, name, *sizes) for name, sizes in _SIZES.items()}
MIXED = "MIXED_PRECISION"
KV = {"FP8": Format("fp8", "fp8", 8), "NVFP4": Format("nvfp4", "nvfp4", 4, 8, 16)}


@dataclass(frozen=True)
class Quantised:
    """What one of these files states.

    source  the file and the key, for errors
    name    quant_algo: a key of FORMATS, or MIXED; None if only the cache is quantised
    listed  modules → the format of each (`quantized_layers`); without MIXED, a linear module that
            `kept` does not name has the format `name`
    kept    modules that stay in 16 bits, with wildcards; kv: the format of the cache, if stated
    """

    source: str
    name: str | None
    kept: tuple[str, ...]
    listed: tuple[tuple[str, Format], ...]
    kv: Format | None

    def says(self) -> tuple[object, ...]:
        """Return what two files that describe the same weights have in common."""
        return self.name, self.kv, self._listed

    def __str__(self) -> str:
        weights = f"{self.name} weights" if self.name else "weights in 16 bits"
        return f"{weights} and a cache in {self.kv.name if self.kv else '16 bits'}"

    def tells_experts_apart(self, layer: int) -> bool:
        """Return whether a name in the file may be that of one expert of this layer."""
        return layer in self._with_numbers or None in self._with_numbers

    def format_of(self, module: str, linear: bool) -> Format | None:
        """Return the format of a module, by its name without ".weight"; None for 16 bits.

        linear: the default. A name in the file covers modules inside it; those around may be out.
        """
        if self.kept and self._keeps(module):
            return None
        if module in self._listed:
            return self._listed[module]
        if self._listed:
            return next((self._listed[run] for run in _runs(module) if run in self._listed), None)
        return FORMATS[self.name] if linear and self.name in FORMATS else None

    def first_unknown(self, modules: Collection[str], layers: int) -> str | None:
        """Return the first of `listed` that covers no module, be it of a vision tower."""

        def elsewhere(name: str) -> bool:
            layer = re.search(r"layers\.(\d+)", name)
            return "visual" in name or "vision" in name or bool(layer and int(layer[1]) >= layers)

        other = [n for n in self._listed if n not in modules and not elsewhere(n)]
        covered = {run for name in modules for run in _runs(name)} if other else set()
        return next((name for name in other if name not in covered), None)

    def _keeps(self, module: str) -> bool:
        """Return whether one of `kept` covers the module; wildcards do not tell experts apart."""
        if not self._exact.isdisjoint(_runs(module)):
            return True
        first = re.sub(r"experts\.\d+", "experts.0", module)
        if first not in self._matched:
            self._matched[first] = self._wild.match(f".{first}.") is not None
        return self._matched[first]

    @cached_property
    def _matched(self) -> dict[str, bool]:
        return {}

    @cached_property
    def _with_numbers(self) -> frozenset[int | None]:
        """Layers of which a name states a number inside them; None: of any layer."""
        layers: set[int | None] = set()
        for name in (*self._exact, *self._listed):
            layer = re.search(r"layers\.(\d+)", name)
            if re.search(r"\d", name.replace(layer[0], "", 1) if layer else name):
                layers.add(int(layer[1]) if layer else None)
        return frozenset(layers)

    @cached_property
    def _listed(self) -> Mapping[str, Format]:
        return dict(self.listed)

    @cached_property
    def _exact(self) -> frozenset[str]:
        return frozenset(name for name in self.kept if not WILD.search(name))

    @cached_property
    def _wild(self) -> re.Pattern[str]:
        patterns = [translate(f"*.{name}.*") for name in self.kept if name not in self._exact]
        return re.compile("|".join(patterns) or r"(?!)")


def _runs(module: str) -> list[str]:
    """Return a module's name and those of the modules around it, also without first parts."""
    parts = module.split(".")
    return [
        ".".join(parts[start:stop]) for stop in range(len(parts), 0, -1) for start in range(stop)
    ]


def read(keys: Keys, folder: str | None, to_run: bool) -> Quantised | None:
    """Return what config.json (`keys`) or a file of the folder states; None for plain weights.

    config.json decides, as in vLLM. Raises CheckpointError for a file that contradicts it, for a
    format that kvlib cannot count and, if the model is `to_run`, for any quantised weights.
    """
    statements: list[Quantised] = []
    keys.seen.update(KEYS)
    for key in KEYS:
        value = keys.data.get(key)
        if value is None or value == {} or statements:  # MLX says everything twice
            continue
        statement = _modelopt(keys.inner(key, value)) if isinstance(value, dict) else None
        if statement is None or (to_run and statement.name):
            why = f"{COUNTED}; {words.without(key)} counts the plain model"
            needed = f"null or no such key ({LOADED if to_run else why})"
            raise keys.error(key, needed, without=None if to_run else key)
        statements.append(statement)
    for file in FILES if folder is not None else ():
        path = os.path.join(folder or "", file)
        if not os.path.lexists(path):
            continue
        value = read_json(path)
        if not value.get("quantization", value):  # it says nothing
            continue
        inside = Keys(value, words.path(path))
        statement = _modelopt(inside) if file == MODELOPT else None
        if statement is None or (to_run and statement.name):
            which = statement.name if statement else words.stated(value.get("quantization", value))
            plain = f"{COUNTED}; {words.without(KEYS[0])} counts the plain model"
            error = CheckpointError(
                f"{words.path(path)}: the weights of this folder are quantised ({which}), needed: "
                f"no such file ({LOADED if to_run else plain})"
            )
            error.without = None if to_run else KEYS[0]
            raise error
        if statements and statement.says() != (first := statements[0]).says():
            others = ", for other modules" if str(statement) == str(first) else ""
            raise CheckpointError(
                f"{statement.source} says {statement}, {first.source} {first}{others}; keep one"
            )
        statements.append(statement)
    return statements[0] if statements else None


def _modelopt(keys: Keys) -> Quantised | None:
    """Return what Model Optimizer states, in both spellings; None for other programs' files."""
    inner = keys.data.get("quantization")
    if isinstance(inner, dict):
        keys = keys.inner("quantization", inner)
    cache_alone = "kv_cache_quant_algo" in keys.data or keys.data.get("quant_method") == "modelopt"
    if "quant_algo" not in keys.data and not cache_alone:
        return None
    name = keys.read("quant_algo", str, f"one of {', '.join((*FORMATS, MIXED))}", None)
    name = name and name.upper()
    if name not in (None, MIXED, *FORMATS):
        return None
    names = "exclude_modules" if "exclude_modules" in keys.data else "ignore"
    kept = keys.read(names, list, "a list of names", [])
    if not all(isinstance(name, str) for name in kept):
        raise keys.error(names, "a list of names")
    patterns = [name for name in kept if WILD.search(name)]
    if len(patterns) > MOST_PATTERNS:
        raise keys.error(names, f"at most {MOST_PATTERNS} names with wildcards")
    if any(p.count("*") > 4 or TOLD.search(re.sub(r"layers\.\d+", "", p)) for p in patterns):
        raise keys.error(names, "names with at most 4 of *, no [ or ?, no number but the layer's")
    listed = {}
    if name == MIXED:
        layers = keys.read("quantized_layers", dict, "the format of each module", valid=bool)
        inside = keys.inner("quantized_layers", layers)
        for module, entry in layers.items():
            if not isinstance(entry, dict):
                raise inside.error(module, "an object with quant_algo")
            stated = inside.inner(module, entry)
            algo = stated.read("quant_algo", str, f"one of {', '.join(FORMATS)}")
            if algo.upper() not in FORMATS:
                raise stated.error("quant_algo", f"one of {', '.join(FORMATS)}")
            listed[_plain(module)] = _sized(stated, algo.upper())
    elif name is not None:
        _sized(keys, name)
    where = (f"{keys.inside.rstrip('.')} of " if keys.inside else "") + keys.source
    return Quantised(where, name, tuple(map(_plain, kept)), tuple(listed.items()), _kv(keys))


def _sized(keys: Keys, name: str) -> Format:
    """Return the format, whose groups must be those that it has in all published files."""
    stored = FORMATS[name]
    if name in ("NVFP4", "W4A16_NVFP4", "MXFP8"):
        keys.only("group_size", stored.group, f"{name} has such groups")
    return stored


def _plain(name: str) -> str:
    """Return a module's name in the text decoder, without what wraps it in a multimodal model."""
    return name.replace("language_model.", "")


def _kv(keys: Keys) -> Format | None:
    """Return the cache's format: `kv_cache_quant_algo`, or `kv_cache_scheme` in config.json."""
    key = "kv_cache_quant_algo"
    if isinstance(keys.data.get("kv_cache_scheme"), str):
        key = "kv_cache_scheme"
    elif scheme := keys.read("kv_cache_scheme", dict, "an object or null", {}):
        inside = keys.inner("kv_cache_scheme", scheme)
        inside.only("type", "float", "keys and values are stored as fp8")
        inside.only("num_bits", 8, "keys and values are stored as fp8")
        return KV["FP8"]
    needed = f"one of {', '.join(KV)}, or null"
    name = keys.read(key, str, needed, None, lambda name: name.upper() in KV)
    return KV[name.upper()] if name else None
