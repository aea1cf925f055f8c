"""What the decode kernels read: keys and values as a cache stores them, checked."""

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


class Stored(NamedTuple):
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

    def by_32(self, head_dim: int) -> bool:
        """Whether scales are of groups of 32, KIVI's own, in whole chunks: those are read ahead."""
        return self.k_group >= 32 and self.v_group == 32 and (self.bits, head_dim) != (2, 96)

    def kernel(self, tensor: bool, head_dim: int, rows: int, *more: int) -> Kernel:
        """The kernel that decodes over these; more: warps, blocks and keys of decode_tensor.cu."""
        if not tensor:
            return Kernel("decode", f"decode<Plain<{self.number}>, {head_dim}, {rows}>")
        kivi = f"Kivi<{self.bits}>" if self.by_32(head_dim) else f"Kivi<{self.bits}, false>"
        wide = {"Plain": f"Numbers<{self.number}>", "Kivi": kivi}
        codec, sizes = wide.get(self.family, self.family), (head_dim, rows, *more)
        return Kernel("decode_tensor", f"decode_tensor<{codec}, {', '.join(map(str, sizes))}>")


def family(keys: TensorCodec, values: TensorCodec) -> str | None:
    """What codecs.cuh calls these very classes together; None where the kernels don't know them."""
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


def unreadable(keys: TensorCodec, values: TensorCodec) -> str | None:
    """Why the kernels cannot read keys and values that these have written; None where they can."""
    if family(keys, values) is None:
        words = "keys and values must be stored as they come, or be"
        return f"{words} {_KNOWN}, got {keys!r} and {values!r}"
    if isinstance(keys, PerChannel) and isinstance(values, PerToken):
        if keys.bits != values.bits:
            words = "codes of k and v must have the same number of bits"
            return f"{words}, got {keys.bits} and {values.bits}"
        for name, size in (("k", keys.size), ("v", values.size)):
            if size < 8 or size & (size - 1):
                return f"the group of {name} must be a power of two from 8 on, got {size}"
    return None


def check_stored(k: Array | Codes, v: Array | Codes, sizes: checks.SIZES) -> Stored:
    """Check k and v; `sizes` holds D and gets N, Hkv and P. Raises ValueError or TypeError."""
    if not isinstance(k, Codes) and not isinstance(v, Codes):
        checks.check_shape("k", k, "N Hkv P D", sizes)
        checks.check_shape("v", v, "N Hkv P D", sizes)
        number = ctype(k, "k")
        checks.check_dtype("v", v, np.dtype(k.dtype).name)
        return Stored("Plain", 8 * k.dtype.itemsize, number, (k, None, None), (v, None, None))
    if not (isinstance(k, Codes) and isinstance(v, Codes)):
        raise TypeError("k and v must both be arrays or both be Codes")
    keys, values = k.codec, v.codec
    family_name = family(keys, values)
    if family_name is None or family_name == "Plain":
        raise TypeError(f"k and v must be {_KNOWN}, got {keys!r} and {values!r}")
    if why := unreadable(keys, values):
        raise ValueError(why)
    bits, groups, shapes, dtype = 8, (1, 1), ("N Hkv P", "N Hkv P"), "float32"
    metadata: tuple[str, ...] = ("scales",) if family_name == "Int8" else ()
    if isinstance(keys, PerChannel) and isinstance(values, PerToken):
        bits, groups, metadata = keys.bits, (keys.size, values.size), ("scales", "zeros")
        shapes, dtype = ("N Hkv P/g D", "N Hkv P D/g"), "float16"
        keys.check(sizes["D"])
        values.check(sizes["D"])
    sizes["C"] = sizes["D"] * bits // 8
    for name, x in (("k", k), ("v", v)):
        kind = "int8" if family_name == "Int8" else "uint8"
        checks.check_array(f"the codes of {name}", x.codes, "N Hkv P C", sizes, kind)
    if sizes["P"] % groups[0]:
        raise ValueError(f"groups of {groups[0]} tokens must divide blocks of {sizes['P']}")
    sizes |= {"P/g": sizes["P"] // groups[0], "D/g": sizes["D"] // groups[1]}
    for what in metadata:
        for name, x, shape in (("k", k, shapes[0]), ("v", v, shapes[1])):
            if getattr(x, what) is None:
                raise TypeError(f"the {what} of {name} are missing")
            checks.check_array(f"the {what} of {name}", getattr(x, what), shape, sizes, dtype)
    return Stored(family_name, bits, "", tuple(k[1:]), tuple(v[1:]), *groups)


class Piece(NamedTuple):
    """Keys and values that are stored alike. seq_lens (B,): keys in this piece; behind (B,) or
    None: keys after them; tensor: whether tensor cores multiply."""

    stored: Stored
    table: checks.BlockTable
    seq_lens: Array
    behind: Array | None
    plan: DecodePlan
    tensor: bool = False
