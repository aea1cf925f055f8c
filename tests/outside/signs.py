"""A codec of one bit per number: its sign, and one size for the whole vector."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from kvlib.codecs import Codec, Field, TensorCodec


class Signs(TensorCodec):
    """Each number becomes plus or minus the mean size of its vector."""

    def check(self, dim: int) -> None:
        if dim % 8:
            raise ValueError(f"{dim} signs do not fill whole bytes, needed: a multiple of 8")

    def fields(self, dim: int, xp: Any, dtype: Any) -> dict[str, Field]:
        return {
            "signs": Field(1, (dim // 8,), xp.uint8),
            "sizes": Field(1, (), xp.float32, payload=False),
        }

    def encode(self, x: Any) -> dict[str, Any]:
        sizes = np.abs(x).mean(axis=-1, dtype=np.float32)
        return {"signs": np.packbits(x >= 0, axis=-1), "sizes": sizes}

    def decode(self, parts: Mapping[str, Any], dtype: Any) -> Any:
        signs = 2.0 * np.unpackbits(parts["signs"], axis=-1).astype(np.float32) - 1.0
        return (signs * parts["sizes"][..., None]).astype(dtype)


SIGNS = Codec("signs", Signs(), Signs())
