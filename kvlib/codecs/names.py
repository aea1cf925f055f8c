"""Codecs by name: one registry, with a line for each. `register_codec` adds to it from outside.

float32 and float16 are not codecs but dtypes of a cache.
"""

import math
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from kvlib.arguments import type_of
from kvlib.codecs.base import PLAIN, Codec, TensorCodec
from kvlib.codecs.bfloat16 import bfloat16
from kvlib.codecs.fp8 import fp8
from kvlib.codecs.groups import int8_per_channel, kivi
from kvlib.codecs.int8 import int8

REGISTRY: tuple[tuple[str, Codec, tuple[str, ...]], ...] = (  # name, codec, its other names
    ("plain", PLAIN, ()),
    ("bfloat16", bfloat16(), ("bf16",)),
    ("fp8", fp8("e4m3"), ("float8", "f8", "fp8_e4m3", "fp8_e4m3fn", "float8_e4m3fn")),
    ("fp8_e5m2", fp8("e5m2"), ("float8_e5m2",)),
    ("int8", int8(), ()),
    ("int8_per_channel", int8_per_channel(), ()),
    ("int4", kivi(4), ("kivi4",)),
    ("int2", kivi(2), ("kivi2",)),
)
LENGTHS = (32, 64, 128, 256, 512, 1024)  # of vectors, at which a codec's bits are counted
if TYPE_CHECKING:
    from kvlib.config.quantised import Format
    from kvlib.costs.catalogue import Catalogue


@cache
def names() -> "Catalogue[Codec]":
    """Return the catalogue NAMES, made on first use: a codec as an object needs no costs."""
    from kvlib.costs.catalogue import Catalogue

    return Catalogue(
        "codec",
        lambda: {name: codec for name, codec, _ in REGISTRY},
        aliases={name: aliases for name, _, aliases in REGISTRY},
    )


def register_codec(codec: Codec, aliases: tuple[str, ...] = ()) -> None:
    """Let caches and `kvlib.costs` find a codec by its name, and by other names.

    `kvlib.costs` counts the bits that its fields state, and 16 for numbers that stay as they are.

    >>> from kvlib.codecs import Codec, kivi
    >>> four = kivi(4)
    >>> register_codec(Codec("my_kivi", four.keys, four.values))

    Raises TypeError for what is no codec, ValueError for a name that another codec has.
    """
    if not isinstance(codec, Codec):
        raise TypeError(f"codec is {type_of(codec)}, needed: a Codec")
    from kvlib.costs.catalogue import CODECS as DTYPES

    spellings, stored = (codec.name, *aliases), counted(codec)
    names().check_free(codec, spellings)
    DTYPES.check_free(stored, spellings)
    names().add(codec, spellings)
    DTYPES.add(stored, spellings)


def counted(codec: Codec) -> "Format":
    """Return a codec's bits as `kvlib.costs` counts them, from its fields at two lengths."""
    from kvlib.config.quantised import Format

    parts = (codec.keys, codec.values)
    dims = [dim for dim in LENGTHS if all(_takes(part, dim) for part in parts)]
    if not dims:
        raise ValueError(f"codec {codec.name!r} takes vectors of none of {LENGTHS} numbers")
    short, long = dims[0], dims[-1]

    def line(payload: bool) -> tuple[Fraction, Fraction]:
        """Bits for each number of a vector, and for the vector as a whole."""
        first, last = (_bits(parts, dim, payload) for dim in (short, long))
        slope = (last - first) / (long - short) if long > short else first / short
        return slope, first - slope * short

    (bits, more), (scale, per_vector) = line(True), line(False)
    if per_vector + more:  # group 0 means one scale for each vector
        bits, scale, group = bits + scale, per_vector + more, 0
    else:
        scale, group = Fraction(scale.numerator), scale.denominator
    b, s = (int(x) if x.denominator == 1 else x for x in (bits, scale))
    return Format(codec.name, codec.made_by, b, s, group, codec.residual)


def _takes(part: TensorCodec, dim: int) -> bool:
    try:
        part.check(dim)
    except ValueError:
        return False
    return True


def _bits(parts: tuple[TensorCodec, TensorCodec], dim: int, payload: bool) -> Fraction:
    """Bits of a token's vector of that length, on average of keys and values."""
    total = Fraction(0)
    for part in parts:
        for field in part.fields(dim, np, np.dtype(np.float16)).values():
            if field.payload == payload:
                bits = 8 * math.prod(field.shape) * np.dtype(field.dtype).itemsize
                total += Fraction(bits, field.per * len(parts))
    return total


def codec(name: str | Codec) -> Codec:
    """The codec of that name, one of ``kvlib.codecs.NAMES``; a Codec is returned as it is.

    "int4" and "int2" are `kivi` with groups of 32 and a residual of 128 tokens, "fp8" is e4m3.
    Raises ValueError, with the nearest names, or TypeError.

    >>> codec("kivi4").made_by
    'kivi(bits=4, group=32, residual=128)'
    """
    if isinstance(name, Codec):
        return name
    if not isinstance(name, str):
        raise TypeError(
            "codec must be a Codec (kvlib.codecs) or the name of one, such as 'int8', "
            f"got {type_of(name)}"
        )
    from kvlib.costs.catalogue import CODECS as DTYPES
    from kvlib.costs.catalogue import UnknownName

    if name not in names() and name in DTYPES:  # the names that only kvlib.costs has
        raise ValueError(
            f"{name!r} is no codec but what a cache stores numbers in: leave codec out and give "
            f"dtype=xp.{DTYPES[name].name} (float32 unless given), xp being the array library"
        )
    try:
        return names()[name]
    except UnknownName as error:
        raise ValueError(str(error)) from None
