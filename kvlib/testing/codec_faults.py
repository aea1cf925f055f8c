"""Why the result of a cache with a codec may be off: what its codec does by itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvlib.caches import LayerSpec
from kvlib.codecs import Codec, TensorCodec
from kvlib.testing.held import ALONE, PRODUCT
from kvlib.testing.oracle import float64

TOGETHER = (1, 2, 3, 4, 7, 14, 33)  # tokens, or groups of them, in one call


def of_codec(codec: Codec | None, spec: LayerSpec, xp: Any) -> str:
    """Words about the first fault of the codec on vectors of that layer; "" where none is found."""
    if codec is None:
        return ""
    found = _of_part(codec.keys, spec.num_kv_heads, spec.head_dim, xp)
    if found or spec.v_from_k:
        return found
    return _of_part(codec.values, spec.num_kv_heads, spec.v_dim, xp)


def _of_part(part: TensorCodec, heads: int, dim: int, xp: Any) -> str:
    rng, n = np.random.default_rng(0), 40 * part.group

    def drawn(*shape: int) -> Any:
        return xp.asarray(rng.standard_normal(shape).astype(np.float32))

    x, rows, p = drawn(heads, n, dim), drawn(heads, 3, dim), drawn(heads, 3, n)
    parts = part.encode(x)
    decoded = float64(part.decode(parts, xp.float32))
    for name, got, needed in (
        ("scores", part.scores(rows, parts), float64(rows) @ decoded.swapaxes(1, 2)),
        ("weigh", part.weigh(p, parts, dim), float64(p) @ decoded),
    ):
        error = np.abs(float64(got) - needed).max()
        if error > 1e-3 * np.abs(needed).max():
            kind = type(part).__name__
            return (
                f". {name} of {kind} does not agree with its decode: the products differ by "
                f"{error:.2g}. If {kind} inherits {name} from another codec but has a decode of "
                f"its own, write {name} = TensorCodec.{name} in {kind}: that version calls decode"
            )
    for some in (count * part.group for count in TOGETHER):
        fewer = float64(part.decode(part.encode(x[:, :some, :]), xp.float32))
        off = np.abs(fewer - decoded[:, :some]).max()
        if off:
            return ALONE + (PRODUCT if off <= 1e-5 * np.abs(decoded).max() else "")
    return ""
