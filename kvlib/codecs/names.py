"""Codecs by name: one registry. **A new codec joins by one line in REGISTRY**, and one in CODECS of
``tests/caches.py``; a codec needs a name only where others should find it by one.

All names of ``kvlib.costs.CODECS`` are here, except float32 and float16 with their other spellings:
they are not codecs but dtypes of a cache.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from kvlib.arguments import type_of
from kvlib.codecs.base import PLAIN, Codec
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
if TYPE_CHECKING:
    from kvlib.costs.rows import Catalogue

    NAMES: Catalogue[Codec]


@cache
def names() -> Catalogue[Codec]:
    """The catalogue NAMES, made on first use: a cache without a name does not wait for costs."""
    from kvlib.costs.rows import Catalogue

    return Catalogue(
        "codec",
        lambda: {name: found for name, found, _ in REGISTRY},
        aliases={name: others for name, _, others in REGISTRY},
    )


def __getattr__(name: str) -> Any:
    if name == "NAMES":
        return names()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def codec(name: str | Codec) -> Codec:
    """The codec of that name; a Codec is returned as it is.

    Caches take either: ``PagedCache(layers, pool, codec="int8")``. ``kvlib.codecs.NAMES`` has all
    names. "int4" and "int2" are `kivi` with groups of 32 and a residual of 128 tokens, "fp8" is
    e4m3; for other settings call `kivi`, `int8`, `fp8` ... yourself.

    Raises ValueError for an unknown name, with the nearest known names; TypeError for anything
    that is neither a name nor a codec.

    >>> codec("kivi4").made_by
    'kivi(bits=4, group=32, residual=128)'
    >>> codec("int9")
    Traceback (most recent call last):
        ...
    ValueError: unknown codec 'int9'; did you mean int8 or int4 or int2?
    """
    if isinstance(name, Codec):
        return name
    if not isinstance(name, str):
        raise TypeError(
            "codec must be a Codec (kvlib.codecs) or the name of one, such as 'int8', "
            f"got {type_of(name)}"
        )
    from kvlib.costs.codecs import CODECS as DTYPES
    from kvlib.costs.rows import UnknownName

    if name not in names() and name in DTYPES:  # the names that only kvlib.costs has
        raise ValueError(
            f"{name!r} is no codec but what a cache stores numbers in: leave codec out and give "
            f"dtype=xp.{DTYPES[name].name} (float32 unless given), xp being the array library"
        )
    try:
        return names()[name]
    except UnknownName as error:
        raise ValueError(str(error)) from None
