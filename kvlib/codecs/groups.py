"""Few bits per number, in groups with a scale and a zero each: KIVI (arXiv:2402.02750).

Keys are quantised **per channel**, over groups of tokens, because some channels are large in every
token; values **per token**, over groups of channels. A group of keys is encoded when it is
complete, so the newest tokens of a request wait in full precision.
"""

from dataclasses import replace
from operator import index
from typing import Any

import numpy as np

from kvlib.arguments import check_integer, describe, is_integer
from kvlib.arrays import Array, clipped, namespace
from kvlib.codecs.base import FLOAT16_MAX, Codec, Encoded, Field, TensorCodec, narrowed, working
from kvlib.codecs.packing import WIDTHS, pack, unpack


def small_float(xp: Any) -> Any:
    """float16, in which scales and zeros are kept; float32 where a library has no float16."""
    return getattr(xp, "float16", xp.float32)


def quantise(x: Array, bits: int, axis: int) -> tuple[Array, Array, Array]:
    """x → codes uint8 of its shape, and scale and zero (float16, saturating) without `axis`.

    zero is the smallest number of a group, scale its range / (2^bits − 1), or 0, both rounded
    *before* the codes are formed.
    """
    xp = np if type(x) is np.ndarray else namespace(x)
    levels = (1 << bits) - 1
    x = clipped(xp, xp.astype(x, xp.float32, copy=False), -FLOAT16_MAX, FLOAT16_MAX)
    low, high = xp.min(x, axis=axis, keepdims=True), xp.max(x, axis=axis, keepdims=True)
    zero = xp.astype(low, small_float(xp))
    # Halved before they are subtracted: the range of a group may be twice what float16 holds.
    scale = xp.astype(clipped(xp, high / levels - low / levels, 0.0, FLOAT16_MAX), small_float(xp))
    wide = xp.astype(scale, xp.float32)
    steps = xp.where(wide == 0, xp.ones_like(wide), wide)
    codes = clipped(xp, xp.round((x - xp.astype(zero, xp.float32)) / steps), 0.0, float(levels))
    codes = xp.where(wide == 0, xp.zeros_like(codes), codes)
    return xp.astype(codes, xp.uint8), xp.squeeze(scale, axis=axis), xp.squeeze(zero, axis=axis)


class Grouped(TensorCodec):
    """Codes of `bits` bits, packed within a token, with a scale and a zero for each group.

    `size` numbers are a group: of tokens where `axis` is 2, of channels where it is 3.
    """

    axis: int  # that of a group's numbers, after `split`

    def __init__(self, bits: int, size: int) -> None:
        if not is_integer(bits) or index(bits) not in WIDTHS:
            raise ValueError(f"bits must be one of {WIDTHS}, got {describe(bits)}")
        self.bits = index(bits)
        self.size = check_integer("group (size)", size)
        self._fitting: set[int] = set()  # lengths of vectors that `check` let through

    def split(self, x: Array) -> Array:
        """x (heads, n, D) with the numbers of a group as a separate axis."""
        before, n, after = x.shape[: self.axis - 1], x.shape[self.axis - 1], x.shape[self.axis :]
        return namespace(x).reshape(x, (*before, n // self.size, self.size, *after))

    def check(self, dim: int) -> None:
        if dim * self.bits % 8:
            raise ValueError(
                f"{dim} codes of {self.bits} bits do not fill whole bytes: head_dim must be a "
                f"multiple of {8 // self.bits}"
            )

    def fields(self, dim: int, xp: Any, dtype: Any) -> dict[str, Field]:
        shape = (dim,) if self.axis == 2 else (dim // self.size,)
        scales = Field(self.group, shape, small_float(xp), payload=False)
        return {
            "codes": Field(1, (dim * self.bits // 8,), xp.uint8),
            "scales": scales,
            "zeros": scales,
        }

    def encode(self, x: Array) -> dict[str, Array]:
        """Raises ValueError where x would not come back as it went in."""
        if x.ndim != 3:
            raise ValueError(f"x must be (heads, tokens, dim), got {describe(x)}")
        if x.shape[2] not in self._fitting:
            self.check(x.shape[2])
            self._fitting.add(x.shape[2])
        if x.shape[1] % self.group:
            raise ValueError(
                f"{x.shape[1]} tokens are no multiple of the {self.group} that are encoded together"
            )
        codes, scales, zeros = quantise(self.split(x), self.bits, self.axis)
        codes = pack(namespace(x).reshape(codes, x.shape), self.bits)
        return {"codes": codes, "scales": scales, "zeros": zeros}

    def decode(self, parts: Encoded, dtype: Any) -> Array:
        xp = np if type(parts["codes"]) is np.ndarray else namespace(parts["codes"])
        wide = working(xp, dtype)
        x = unpack(parts["codes"], self.bits, wide)
        groups = self.split(x)
        groups *= xp.expand_dims(xp.astype(parts["scales"], wide), axis=self.axis)
        groups += xp.expand_dims(xp.astype(parts["zeros"], wide), axis=self.axis)
        return narrowed(xp, xp.reshape(groups, x.shape), dtype)

    def _folds(self, rows: Array) -> bool:
        """Whether scales are cheaper multiplied into so many rows than into the codes."""
        xp = np if type(rows) is np.ndarray else namespace(rows)
        return rows.shape[1] <= self.size and rows.dtype in (xp.float32, xp.float64)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(bits={self.bits}, size={self.size})"


class PerChannel(Grouped):
    """One scale and zero for each channel of `size` consecutive tokens.

    >>> import numpy as np
    >>> PerChannel(bits=4, size=8).encode(np.ones((1, 16, 64), np.float32))["scales"].shape
    (1, 2, 64)
    """

    axis = 2

    @property
    def group(self) -> int:  # type: ignore[override]
        """Tokens that share a scale, and so have to be encoded together."""
        return self.size

    def scores(self, rows: Array, parts: Encoded) -> Array:
        """As `TensorCodec`'s: Σ q (code · scale + zero) = Σ (q · scale) code + Σ q · zero."""
        if not self._folds(rows):
            return super().scores(rows, parts)
        xp = np if type(rows) is np.ndarray else namespace(rows)
        codes = unpack(parts["codes"], self.bits, rows.dtype)
        heads, n, dim = codes.shape
        groups = n // self.size
        scales, zeros = (xp.astype(parts[name], rows.dtype) for name in ("scales", "zeros"))
        scaled = rows[:, None, :, :] * scales[:, :, None, :]  # (heads, groups, R, D)
        s = xp.matmul(scaled, xp.reshape(codes, (heads, groups, self.size, dim)).mT)
        s += xp.matmul(zeros, rows.mT)[..., None]
        return xp.reshape(xp.permute_dims(s, (0, 2, 1, 3)), (heads, rows.shape[1], n))


class PerToken(Grouped):
    """One scale and zero for every `size` consecutive channels of each token.

    >>> import numpy as np
    >>> PerToken(bits=4, size=8).encode(np.ones((1, 16, 64), np.float32))["scales"].shape
    (1, 16, 8)
    """

    axis = 3

    def check(self, dim: int) -> None:
        super().check(dim)
        if dim % self.size:
            raise ValueError(
                f"groups of {self.size} channels do not divide vectors of {dim}: group must divide "
                "the head_dim of values"
            )

    def weigh(self, p: Array, parts: Encoded, dim: int) -> Array:
        """As `TensorCodec`'s: Σ p (code · scale + zero) = Σ (p · scale) code + Σ p · zero."""
        if not self._folds(p):
            return super().weigh(p, parts, dim)
        xp = np if type(p) is np.ndarray else namespace(p)
        codes = unpack(parts["codes"], self.bits, p.dtype)
        heads, n, width = codes.shape
        groups, r = width // self.size, p.shape[1]
        scales, zeros = (xp.astype(parts[name], p.dtype) for name in ("scales", "zeros"))
        # Copied into the order in which they are multiplied, which is 5 times as fast.
        flat = xp.reshape(xp.permute_dims(scales, (0, 2, 1)), (heads * groups * n,))
        scaled = p[:, None, :, :] * xp.reshape(flat, (heads, groups, 1, n))  # (…, R, n)
        codes = xp.reshape(codes, (heads, n, groups, self.size))
        o = xp.matmul(scaled, xp.permute_dims(codes, (0, 2, 1, 3)))
        o += xp.matmul(p, zeros).mT[..., None]
        o = xp.reshape(xp.permute_dims(o, (0, 2, 1, 3)), (heads, r, width))
        return o[..., :dim]


def kivi(bits: int, group: int = 32, residual: int = 128) -> Codec:
    """KIVI: keys per channel, values per token, `bits` + 32/`group` bits per number.

    >>> kivi(bits=2, group=32).residual
    128
    """
    keys, values = PerChannel(bits, group), PerToken(bits, group)  # these check the arguments
    name = f"int{keys.bits}" if keys.bits < 8 else "int8 per channel"
    residual = check_integer("residual", residual, 0)
    call = f"kivi(bits={keys.bits}, group={keys.size}, residual={residual})"
    return Codec(name, keys, values, residual, call)


def int8_per_channel(group: int = 32, residual: int = 0) -> Codec:
    """int8 with keys per channel over `group` tokens and values per token over `group` channels.

    >>> int8_per_channel(group=32).name
    'int8 per channel'
    """
    codec = kivi(8, group, residual)
    call = f"int8_per_channel(group={codec.keys.group}, residual={codec.residual})"
    return replace(codec, made_by=call)
