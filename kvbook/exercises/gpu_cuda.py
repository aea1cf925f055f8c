"""Checkers of the exercises whose answers are lines of CUDA C++: the keys of a split here.

Heads that share keys are in `gpu_heads`; `gpu_lines` runs the lines on the processor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kvbook.exercises.gpu_heads import check_shared_heads
from kvbook.exercises.gpu_lines import run_lines
from kvbook.exercises.report import Finding, checker

__all__ = ["check_shared_heads", "check_split_range"]

SPLITS = """
#include "portable.cuh"
__global__ void mark(int* seen, const int* lens, int most)
{
    const int len = load(lens + blockIdx.y), split = blockIdx.x, splits = gridDim.x;
    int begin = 0, end = 0;
    {
@@
    }
    for (int j = begin; j < end; j++) {
        int* at = seen + ((i64)split * gridDim.y + blockIdx.y) * most + j;
        store(at, load(at) + 1);
    }
}
"""


@checker
def check_split_range(split_range: Callable[..., Any]) -> Iterator[str]:
    """split_range() → CUDA C++ that sets begin and end from len, split and splits."""
    for lens, splits, proved in (
        ([100], 4, "four splits share 100 keys evenly"),
        ([100], 3, "where the division leaves a remainder, the last keys are read, too"),
        ([5, 1, 0], 4, "with fewer keys than splits, some splits have none"),
        ([1000, 130, 129, 7, 64], 9, "every key of five requests is read by one split"),
    ):
        seen = _marked(split_range, lens, splits)
        for b, n in enumerate(lens):
            _expect_once(seen[:, b], n, splits)
        yield proved


def _marked(lines: Callable[[], Any], lens: list[int], splits: int) -> np.ndarray:
    """(splits, B, most) int32: how often each split reads each key; with room after the last."""
    most = 2 * max(lens) + 64
    seen = np.zeros((splits, len(lens), most), np.int32)
    args = (seen, np.array(lens, np.int32), np.int32(most))
    run_lines(lines, SPLITS, "mark", (splits, len(lens)), 1, *args)
    return seen


def _expect_once(seen: np.ndarray, n: int, splits: int) -> None:
    """seen (splits, most): of one request with n keys."""
    what = f"{n} keys in {splits} splits"
    times, held = seen.sum(axis=0), seen.astype(bool).sum(axis=1)
    if times[n:].any():
        j = n + int(np.flatnonzero(times[n:])[0])
        raise Finding(
            f"{what}: split {int(seen[:, j].argmax())} reads key {j}, but the request ends before "
            f"key {n}. Cut end (and begin) off at len"
        )
    if not times.any() and n:
        raise Finding(f"{what}: no split reads any key; set begin and end, without declaring them")
    missing, twice = np.flatnonzero(times[:n] == 0), np.flatnonzero(times[:n] > 1)
    if len(twice):
        raise Finding(f"{what}: key {twice[0]} is read {times[twice[0]]} times, once is needed")
    if len(missing):
        said = f"{what}: key {missing[0]} is read by no split"
        if missing[0] == n - n % splits and n % splits:
            said += f"; {n} / {splits} rounded down leaves the last {n % splits} out: round up"
        raise Finding(said)
    if held.max(initial=0) > -(-n // splits):
        raise Finding(
            f"{what}: split {int(held.argmax())} has {held.max()} keys, and all wait for the "
            f"slowest split; needed at most {-(-n // splits)} each"
        )
