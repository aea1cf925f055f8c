"""The input of a decode kernel: a layer's settings, and keys and values stored together."""

from __future__ import annotations

from typing import NamedTuple

from kvlib.arrays import Array
from kvlib.kernels.codes import Written
from kvlib.kernels.plans import DecodePlan


class Settings(NamedTuple):
    """What a layer fixes: scale and softcap times log2 e (0: none), window in tokens (0: none)."""

    scale: float
    softcap: float
    window: int


class Piece(NamedTuple):
    """Keys and values of every request that lie together: all, or those of one age.

    table (B, W)   seq_lens (B,): keys in this piece   behind (B,) or None: keys after them
    size: positions of a block   shift: its log2, 31 where a request has one block
    tensor: whether tensor cores multiply
    """

    written: Written
    table: Array
    seq_lens: Array
    behind: Array | None
    size: int
    shift: int
    plan: DecodePlan
    tensor: bool = False
