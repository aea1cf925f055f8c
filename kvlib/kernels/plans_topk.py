"""How softmax with top-k is launched: how many blocks share a row of logits.

With a block a row nothing has to be merged, but 64 rows leave half of 132 multiprocessors idle. So
a row is split; each part has its own k candidates, and merging them costs another launch.
"""

from __future__ import annotations

from operator import index
from typing import NamedTuple

from kvlib.arguments import describe, is_integer
from kvlib.kernels.launch import H200, Device

THREADS = 256
ITEMS = 16  # logits of a thread and tile: four loads of 16 bytes in float32, two in 16 bits
TILE = THREADS * ITEMS
MOST_K = THREADS  # one thread ranks one candidate
SPARE = 1024  # candidates that may wait when a tile begins; a whole tile must still fit
ROOM = TILE + SPARE
BLOCKS_PER_SM = 4  # 43 kB of shared memory each, at most 64 registers a thread
LEAST_TILES = 2  # of a split: the first tile's floor lets some 10 % more than k through
SHARED = 8 * (ROOM + MOST_K + 4) + 8 * (THREADS // 32)  # keys, kept, counters; maxima, sums
CHUNK = TILE  # columns of which one block adds the weights, where any token may be drawn


class TopKPlan(NamedTuple):
    """splits of a row   each: columns a split   shared: bytes of shared memory a block"""

    splits: int
    each: int
    shared: int = SHARED

    @property
    def merges(self) -> bool:
        return self.splits > 1


def splits_for(rows: int, columns: int, k: int, sms: int) -> int:
    """Blocks a row: BLOCKS_PER_SM on every multiprocessor in one wave, and none in a second.

    No more than leave LEAST_TILES to each, nor than the merge's buffer has candidates.
    """
    wanted = sms * BLOCKS_PER_SM // max(1, rows)
    return max(1, min(wanted, columns // (LEAST_TILES * TILE), ROOM // k))


def plan_topk(
    rows: int, columns: int, k: int, *, splits: int | None = None, device: Device = H200
) -> TopKPlan:
    """How `rows` rows of `columns` logits are launched; `splits_for` chooses splits unless given.

    Raises ValueError for k or splits out of range.
    """
    most = min(MOST_K, columns)
    if not is_integer(k) or not 1 <= (k := index(k)) <= most:
        raise ValueError(f"k must be in 1 ... {most} (at most {MOST_K}, and V), got {describe(k)}")
    if splits is None:
        splits = splits_for(rows, columns, k, device.sms)
    elif not is_integer(splits) or not 1 <= (splits := index(splits)) <= ROOM // k:
        raise ValueError(f"splits must be in 1 ... {ROOM // k} for k={k}, got {describe(splits)}")
    each = -(-columns // splits)
    return TopKPlan(splits, -(-each // 8) * 8)  # whole vectors of 16 bytes
