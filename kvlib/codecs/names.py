"""Codecs by name: one registry. **A new codec joins by one line in REGISTRY**, and one in CODECS of
``tests/caches.py``; a codec needs a name only where others should find it by one.

All names of ``kvlib.costs.CODECS`` are here, where what is called float32 or float16 there is the
dtype of a cache here.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from kvlib.attention.checks import describe
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
# What kvlib.costs counts as ways to store numbers, and a cache as its dtype.
DTYPES = {
    **dict.fromkeys(("float32", "fp32", "f32"), "float32"),
    **dict.fromkeys(("float16", "fp16", "f16", "half"), "float16"),
}


class Names(Mapping[str, Codec]):
    """The codecs that have a name. Case, spaces, underscores and hyphens do not matter."""

    def __init__(self) -> None:
        self._codecs = {name: found for name, found, _ in REGISTRY}
        spelled = [(name, other) for name, _, others in REGISTRY for other in (name, *others)]
        self._names = {_folded(other): name for name, other in spelled}
        self._spelled = {_folded(other): other for _, other in spelled}

    def __getitem__(self, name: str) -> Codec:
        found = self._names.get(_folded(name)) if isinstance(name, str) else None
        if found is None:
            raise KeyError(name)
        return self._codecs[found]

    def __iter__(self) -> Iterator[str]:
        return iter(self._codecs)

    def __len__(self) -> int:
        return len(self._codecs)

    def __repr__(self) -> str:
        return f"{len(self)} codecs: {', '.join(self)}"

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def nearest(self, name: str) -> list[str]:
        """Up to three names that a misspelled one may stand for, most alike first."""
        close = difflib.get_close_matches(_folded(name), self._names, n=3, cutoff=0.5)
        return [self._spelled[n] for n in close]


def _folded(name: str) -> str:
    return "".join(c for c in name.lower() if c not in " _-\t\n")


NAMES = Names()


def codec(name: str | Codec) -> Codec:
    """The codec of that name; a codec itself is given back.

    Caches take either: ``PagedCache(layers, pool, codec="int8")``. ``kvlib.codecs.NAMES`` has all
    names. "int4" and "int2" are `kivi` with groups of 32 and a residual of 128 tokens, "fp8" is
    e4m3; for other settings call `kivi`, `int8`, `fp8` ... yourself.

    Raises ValueError for a name that no codec has, with the nearest that there are; TypeError for
    what is neither a name nor a codec.

    >>> codec("kivi4").made_by
    'kivi(bits=4, group=32, residual=128)'
    >>> codec("int9")
    Traceback (most recent call last):
        ...
    ValueError: no codec is called 'int9'; did you mean int8 or int4 or int2?
    """
    if isinstance(name, Codec):
        return name
    if not isinstance(name, str):
        raise TypeError(
            "codec must be a Codec (kvlib.codecs) or the name of one, such as 'int8', "
            f"got a {type(name).__name__}"
        )
    if name in NAMES:
        return NAMES[name]
    if _folded(name) in DTYPES:
        dtype = DTYPES[_folded(name)]
        raise ValueError(
            f"{name!r} is no codec but what a cache stores numbers in: leave codec out and give "
            f"dtype=xp.{dtype} (float32 unless given), xp being the array library"
        )
    near = NAMES.nearest(name)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(NAMES)}"
    raise ValueError(f"no codec is called {describe(name)}; {hint}")
