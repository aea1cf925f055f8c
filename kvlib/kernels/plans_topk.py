"""How softmax with top-k is launched: how many blocks share a row of logits.

With a block a row nothing has to be merged, but 64 rows leave half of 132 multiprocessors idle. So
a row is split; each part has its own k candidates, and merging them costs another launch.
"""

from operator import index
from typing import NamedTuple

from kvlib.arguments import describe, is_integer
from kvlib.kernels.launch import H200, Device
from kvlib.kernels.tuning import choice

THREADS = 256
MOST_K = THREADS  # one thread ranks one candidate
WAITING = THREADS  # vectors of 16 bytes that may wait to be cut down to the best k
FULL = 200  # vectors that raise the bar
KEYS = 2 * MOST_K + 8 * WAITING  # candidates: those kept, and those of the vectors that wait
LEAST_TILES = 2  # of a split: the first tile's bar lets some 10 % more than k through
PER_SM = 2  # blocks of few rows on a multiprocessor: more spend too much on first tiles and merging
SHARED = 8 * (KEYS + 2 * MOST_K) + 4 * (3 * 256 + 8 + WAITING + 4)
CHUNK = 16 * THREADS  # columns of which one block adds the weights, where any token may be drawn


class Variant(NamedTuple):
    """vectors: loads of 16 bytes of a thread and tile
    blocks: of a multiprocessor, which bounds the registers of a thread"""

    vectors: int = 4
    blocks: int = 4


VARIANTS = (Variant(), Variant(2, 5), Variant(8, 3))


class TopKPlan(NamedTuple):
    """splits of a row   each: columns a split   shared: bytes of shared memory a block"""

    splits: int
    each: int
    variant: Variant = VARIANTS[0]
    shared: int = SHARED

    @property
    def merges(self) -> bool:
        return self.splits > 1

    def items(self, itemsize: int) -> int:
        """Logits of a thread and tile, numbers of so many bytes."""
        return self.variant.vectors * 16 // itemsize


def case_of(rows: int, itemsize: int, sms: int) -> str:
    """The name of what a variant is chosen for."""
    return f"{'many' if rows > sms else 'few' if rows > 1 else 'one'}, {8 * itemsize} bits"


def splits_for(rows: int, columns: int, k: int, sms: int, variant: Variant, itemsize: int) -> int:
    """Blocks a row: PER_SM on every multiprocessor, but no more than leave LEAST_TILES to each, nor
    than the merge's buffer has candidates."""
    wanted = sms * PER_SM // max(1, rows)
    tile = THREADS * variant.vectors * 16 // itemsize
    return max(1, min(wanted, columns // (LEAST_TILES * tile), KEYS // k))


def plan_topk(
    rows: int,
    columns: int,
    k: int,
    *,
    itemsize: int = 4,
    splits: int | None = None,
    device: Device = H200,
) -> TopKPlan:
    """How rows of `columns` logits of `itemsize` bytes are launched; ValueError for k or splits."""
    most = min(MOST_K, columns)
    if not is_integer(k) or not 1 <= (k := index(k)) <= most:
        raise ValueError(f"k must be in 1 ... {most} (at most {MOST_K}, and V), got {describe(k)}")
    variant = Variant(**choice("topk", case_of(rows, itemsize, device.sms)))
    if splits is None:
        splits = splits_for(rows, columns, k, device.sms, variant, itemsize)
    elif not is_integer(splits) or not 1 <= (splits := index(splits)) <= KEYS // k:
        raise ValueError(f"splits must be in 1 ... {KEYS // k} for k={k}, got {describe(splits)}")
    each = -(-columns // splits)
    each = -(-each // 8) * 8  # whole vectors of 16 bytes
    return TopKPlan(splits, each, variant)
