"""What the decode kernels read: keys and values as a cache stores them, checked."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kvlib.arrays import Array
from kvlib.codecs import Fp8, Int8, PerChannel, PerToken, Plain, TensorCodec
from kvlib.kernels import checks
from kvlib.kernels.plans import DecodePlan
from kvlib.kernels.source import Kernel
from kvlib.kernels.types import ctype

_KNOWN = "written by Int8 both, by Fp8 of one kind, or by PerChannel and PerToken"


class Codes(NamedTuple):
    """Encoded keys, or encoded values, of one layer: the arrays of a codec, in blocks.

    codec   `Int8()`, `Fp8(kind)`, or KIVI's `PerChannel(bits, size)` for keys and `PerToken` for
            values: `codec.keys` and `codec.values` of a cache's codec
    codes   (N, Hkv, P, D · bits / 8) int8 or uint8
    scales  int8: (N, Hkv, P) float32. KIVI: (N, Hkv, P / size, D) or (N, Hkv, P, D / size) float16
    zeros   KIVI: like scales

    >>> import numpy as np
    >>> from kvlib.codecs import int8
    >>> codec, k = int8().keys, np.ones((4, 2, 16, 64), np.float32)  # 4 blocks of 16 positions
    >>> coded = Codes(codec, **codec.encode(k))
    >>> coded.codes.shape, coded.scales.shape  # a byte per number, a scale per vector
    ((4, 2, 16, 64), (4, 2, 16))
    >>> k.nbytes / (coded.codes.nbytes + coded.scales.nbytes)  # not quite a fourth
    3.764705882352941
    """

    codec: TensorCodec
    codes: Array
    scales: Array | None = None
    zeros: Array | None = None


class Written(NamedTuple):
    """Keys and values that fit each other.

    family  the codec in codecs.cuh, as :func:`family` names it
    bits    of a number   number: the C type of plain numbers
    k, v    (codes, scales, zeros), as NumPy's and the kernels' functions take them
    k_group tokens that share a key's scales   v_group: channels that share a value's; 1 for none
    """

    family: str
    bits: int
    number: str = ""
    k: tuple[Array, Array | None, Array | None] = (None, None, None)
    v: tuple[Array, Array | None, Array | None] = (None, None, None)
    k_group: int = 1
    v_group: int = 1

    @property
    def plain(self) -> bool:
        return self.family == "Plain"

    def kernel(self, tensor: bool, head_dim: int, rows: int) -> Kernel:
        """The kernel that decodes over these."""
        if not tensor:
            return Kernel("decode", f"decode<Plain<{self.number}>, {head_dim}, {rows}>")
        wide = {"Plain": f"Numbers<{self.number}>", "Kivi": f"Kivi<{self.bits}>"}
        codec = wide.get(self.family, self.family)
        return Kernel("decode_tensor", f"decode_tensor<{codec}, {head_dim}>")


def family(keys: TensorCodec, values: TensorCodec) -> str | None:
    """What codecs.cuh calls the two together; None where the kernels do not know them.

    They must be of these very classes: one derived from them may write other codes.
    """
    kinds = type(keys), type(values)
    if kinds == (Plain, Plain):
        return "Plain"
    if kinds == (Int8, Int8):
        return "Int8"
    if kinds == (PerChannel, PerToken):
        return "Kivi"
    if type(keys) is Fp8 and type(values) is Fp8 and keys.kind == values.kind:
        return keys.kind.upper()
    return None


def unread(keys: TensorCodec, values: TensorCodec) -> str | None:
    """Why the kernels cannot read keys and values that these have written; None where they can."""
    found = family(keys, values)
    if found is None:
        words = "keys and values must be stored as they come, or be"
        return f"{words} {_KNOWN}, got {keys!r} and {values!r}"
    if isinstance(keys, PerChannel) and isinstance(values, PerToken):
        if keys.bits != values.bits:
            return (
                "codes of k and v must have the same number of bits, "
                f"got {keys.bits} and {values.bits}"
            )
        least = max(8, 2 * keys.bits)
        for codec in (keys, values):
            if codec.size < least or codec.size & (codec.size - 1):
                return f"groups must be a power of two from {least} on, got {codec.size}"
    return None


def written(k: Array | Codes, v: Array | Codes, sizes: checks.SIZES) -> Written:
    """k and v, checked; `sizes` holds D and gets N, Hkv and P. Raises ValueError or TypeError."""
    if not isinstance(k, Codes) and not isinstance(v, Codes):
        checks.check_shape("k", k, "N Hkv P D", sizes)
        checks.check_shape("v", v, "N Hkv P D", sizes)
        number = ctype(k, "k")
        checks.check_dtype("v", v, np.dtype(k.dtype).name)
        return Written("Plain", 8 * k.dtype.itemsize, number, (k, None, None), (v, None, None))
    if not (isinstance(k, Codes) and isinstance(v, Codes)):
        raise TypeError("k and v must both be arrays or both be Codes")
    found = family(k.codec, v.codec)
    if found in ("Int8", "E4M3", "E5M2"):
        for name, x in (("k", k), ("v", v)):
            _codes(name, x, "int8" if found == "Int8" else "uint8", 8, sizes)
            if found == "Int8":
                _metadata(name, "scales", x.scales, "N Hkv P", "float32", sizes)
        return Written(found, 8, "", tuple(k[1:]), tuple(v[1:]))
    if isinstance(k.codec, PerChannel) and isinstance(v.codec, PerToken):
        return _kivi(k, v, k.codec, v.codec, sizes)
    raise TypeError(f"k and v must be {_KNOWN}, got {k.codec!r} and {v.codec!r}")


def _kivi(k: Codes, v: Codes, keys: PerChannel, values: PerToken, sizes: checks.SIZES) -> Written:
    if keys.bits != values.bits:
        raise ValueError(
            f"codes of k and v must have the same number of bits, got {keys.bits} and {values.bits}"
        )
    least = (8, 2 * keys.bits)  # eight keys of a product, and a lane's part of a value
    for name, codec, low in (("k", keys, least[0]), ("v", values, least[1])):
        checks.power_of_two(f"the group of {name}", codec.size)
        if codec.size < low:
            raise ValueError(f"the group of {name} must be at least {low}, got {codec.size}")
        codec.check(sizes["D"])
    for name, x in (("k", k), ("v", v)):
        _codes(name, x, "uint8", keys.bits, sizes)
    if sizes["P"] % keys.size:
        raise ValueError(f"groups of {keys.size} tokens must divide blocks of {sizes['P']}")
    sizes |= {"P/g": sizes["P"] // keys.size, "D/g": sizes["D"] // values.size}
    for what in ("scales", "zeros"):
        _metadata("k", what, getattr(k, what), "N Hkv P/g D", "float16", sizes)
        _metadata("v", what, getattr(v, what), "N Hkv P D/g", "float16", sizes)
    return Written("Kivi", keys.bits, "", tuple(k[1:]), tuple(v[1:]), keys.size, values.size)


def _codes(name: str, x: Codes, dtype: str, bits: int, sizes: checks.SIZES) -> None:
    sizes["C"] = sizes["D"] * bits // 8
    checks.check_shape(f"the codes of {name}", x.codes, "N Hkv P C", sizes)
    checks.check_dtype(f"the codes of {name}", x.codes, dtype)


def _metadata(
    name: str, what: str, x: Array | None, shape: str, dtype: str, sizes: checks.SIZES
) -> None:
    if x is None:
        raise TypeError(f"the {what} of {name} are missing")
    checks.check_shape(f"the {what} of {name}", x, shape, sizes)
    checks.check_dtype(f"the {what} of {name}", x, dtype)


class Piece(NamedTuple):
    """Keys and values of every request that are stored alike: all of them, or those of one age.

    seq_lens (B,): keys in this piece   behind (B,) or None: keys after them
    tensor: whether tensor cores multiply
    """

    written: Written
    places: checks.Places
    seq_lens: Array
    behind: Array | None
    plan: DecodePlan
    tensor: bool = False
