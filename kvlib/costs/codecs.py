"""How a number is stored: 32, 16, 8, 4 or 2 bits, and the scales that belong to them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from kvlib.costs import checks
from kvlib.costs.rows import Catalogue


@dataclass(frozen=True)
class Codec:
    """How numbers are stored: `bits` per number, and `scale_bits` of scales per `group` numbers.

    group 0 means one scale for every vector (a key or a value of one head); `residual` is how many
    of a request's last tokens stay in 16 bits (KIVI, arXiv:2402.02750). Bits are fractions where
    keys and values differ.

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
                checks.count(f"{name} of codec {self.name!r}", value, least)

    @property
    def facts(self) -> dict[str, Any]:
        """Plain numbers, as `kvlib.costs.formulas` takes them."""
        return {
            "name": self.name,
            "title": self.title,
            "bits": self.bits,
            "scale_bits": self.scale_bits,
            "group": self.group,
            "residual": self.residual,
        }


_FP8 = ("float8", "f8", "fp8_e4m3", "fp8_e4m3fn", "float8_e4m3fn", "fp8_e5m2", "float8_e5m2")
_KIVI: dict[str, Any] = dict(scale_bits=32, group=32, residual=128)  # two fp16 numbers a group

_CODECS = (
    Codec("float32", "float32", 32, aliases=("fp32", "f32")),
    Codec("float16", "float16", 16, aliases=("fp16", "f16", "half")),
    Codec("bfloat16", "bfloat16", 16, aliases=("bf16",)),
    Codec("fp8", "fp8", 8, aliases=_FP8),
    Codec("int8", "int8, a scale for each vector", 8, scale_bits=32),
    Codec("int8_per_channel", "int8, groups of 32", 8, scale_bits=32, group=32),
    Codec("int4", "int4, groups of 32", 4, aliases=("kivi4",), **_KIVI),
    Codec("int2", "int2, groups of 32", 2, aliases=("kivi2",), **_KIVI),
)

CODECS: Catalogue[Codec] = Catalogue("dtype", lambda: {c.name: c for c in _CODECS})


def codec(dtype: str | Codec) -> Codec:
    """The codec of a dtype's name ("bfloat16", "bf16", "int8", ...), or the codec itself."""
    return dtype if isinstance(dtype, Codec) else CODECS[dtype]
