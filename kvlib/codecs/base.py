"""What a codec is: how keys and values are encoded, and how attention multiplies a piece of them.

The keys, or values, of a layer are encoded as fields: arrays whose first axes are (heads, entries),
an entry for one token or for a group of tokens. A cache stores them in pages.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from kvlib import blas
from kvlib.arguments import check_integer
from kvlib.arrays import Array, clipped, namespace


class Field(NamedTuple):
    """One array of an encoding, (heads, tokens / per, *shape): an entry for every `per` tokens.

    payload: False for metadata such as scales and zeros, which ``memory()`` counts apart.

    >>> Field(per=1, shape=(64,), dtype="int8").payload
    True
    """

    per: int
    shape: tuple[int, ...]
    dtype: Any
    payload: bool = True


Encoded = Mapping[str, Array]
FLOAT16_MAX = 65504.0


def working(xp: Any, dtype: Any) -> Any:
    """Return the dtype to decode in: float64, or float32, also for float16, which may overflow."""
    return dtype if dtype == xp.float64 else xp.float32


def narrowed(xp: Any, x: Array, dtype: Any) -> Array:
    """Return x as `dtype`; what rounding has put above FLOAT16_MAX becomes FLOAT16_MAX."""
    if x.dtype == dtype:
        return x
    if dtype == getattr(xp, "float16", None):
        x = clipped(xp, x, -FLOAT16_MAX, FLOAT16_MAX)
    return xp.astype(x, dtype)


class TensorCodec(ABC):
    """Encodes and decodes one kind of vectors: keys, or values.

    Write `fields`, `encode` and `decode`; also `check` if some lengths cannot be encoded, and
    `scores` and `weigh` if attention can do without decoded vectors. If you inherit from another
    codec and change `decode`, write ``scores = TensorCodec.scores`` and ``weigh =
    TensorCodec.weigh``, which call it. The codes of a token, or of a group, must not depend on how
    many are encoded or decoded in one call, to the last bit (the result of a matrix product does).
    group: tokens that are encoded together.

    >>> from kvlib.codecs import int8
    >>> isinstance(int8().keys, TensorCodec)
    True
    """

    group = 1

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def check(self, dim: int) -> None:  # noqa: B027  (most codecs take any length)
        """Raise ValueError if vectors of this length cannot be encoded."""

    @abstractmethod
    def fields(self, dim: int, xp: Any, dtype: Any) -> dict[str, Field]:
        """The arrays that hold vectors of length `dim`, by name; dtype: that of the cache."""

    @abstractmethod
    def encode(self, x: Array) -> dict[str, Array]:
        """x (heads, n, D), n a multiple of `group` (or 0) → fields of n tokens."""

    @abstractmethod
    def decode(self, parts: Encoded, dtype: Any) -> Array:
        """Fields of n tokens → (heads, n, D) of `dtype`."""

    def scores(self, rows: Array, parts: Encoded) -> Array:
        """rows (heads, R, D) · decoded vectors → (heads, R, n)."""
        return blas.scores(namespace(rows), rows, self.decode(parts, rows.dtype))

    def weigh(self, p: Array, parts: Encoded, dim: int) -> Array:
        """p (heads, R, n) · the first `dim` numbers of decoded vectors → (heads, R, dim)."""
        return blas.weigh(namespace(p), p, self.decode(parts, p.dtype)[..., :dim])


class Plain(TensorCodec):
    """Numbers as they are, in the cache's dtype.

    >>> import numpy as np
    >>> Plain().fields(64, np, np.float32)
    {'x': Field(per=1, shape=(64,), dtype=<class 'numpy.float32'>, payload=True)}
    """

    def fields(self, dim: int, xp: Any, dtype: Any) -> dict[str, Field]:
        return {"x": Field(1, (dim,), dtype)}

    def encode(self, x: Array) -> dict[str, Array]:
        return {"x": x}

    def decode(self, parts: Encoded, dtype: Any) -> Array:
        x = parts["x"]
        return x if x.dtype == dtype else namespace(x).astype(x, dtype)


@dataclass(frozen=True)
class Codec:
    """How a cache writes its keys and values.

    keys, values    a TensorCodec each
    residual        at least so many newest tokens of a request stay unencoded
    made_by         the call that makes this codec, for messages; the name unless given

    >>> from kvlib.codecs import kivi
    >>> kivi(bits=4, group=32, residual=128).coded(200)  # whole groups, without the newest 128
    64
    """

    name: str
    keys: TensorCodec
    values: TensorCodec
    residual: int = 0
    made_by: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        for part in (self.keys, self.values):
            if not isinstance(part, TensorCodec):
                raise TypeError(
                    f"keys and values must be a TensorCodec, such as Int8(), got {part!r}"
                )
        object.__setattr__(self, "residual", check_integer("residual", self.residual, least=0))
        object.__setattr__(self, "made_by", self.made_by or self.name)

    @cached_property
    def group(self) -> int:
        """Tokens that are encoded together: whole groups of keys and of values."""
        return math.lcm(self.keys.group, self.values.group)

    @property
    def plain(self) -> bool:
        """Whether keys and values are stored as they are, whatever the codec's name."""
        return type(self.keys) is Plain and type(self.values) is Plain

    @cached_property
    def waits(self) -> bool:
        """Whether the newest tokens wait unencoded."""
        return self.group > 1 or self.residual > 0

    def coded(self, length: int) -> int:
        """Return how many of the first tokens of a request of `length` tokens are encoded."""
        if type(length) is not int:
            length = check_integer("length", length, 0)
        return max(0, length - self.residual) // self.group * self.group


PLAIN = Codec("plain", Plain(), Plain())
