"""The warm-up of the opening page: how often is one key computed when nothing is kept?"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from kvbook.exercises.received import whole_number
from kvbook.exercises.report import Finding, checker, expect_equal


@checker
def check_times_computed(times_computed: Callable[[int, int], int]) -> Iterator[str]:
    """times_computed(position, steps): step t = 1 ... steps computes the keys of 0 ... t - 1."""
    got = whole_number(times_computed(3, 50), "times_computed(3, 50)")
    if got == 50:
        raise Finding(
            "times_computed(3, 50) is 50: but in steps 1, 2 and 3 there is no token at "
            "position 3 yet. Positions count from 0, so step 4 is the first that sees it"
        )
    if got in (46, 48):
        raise Finding(
            f"times_computed(3, 50) is {got}, one {'too few' if got == 46 else 'too many'}: the "
            "first step that computes key 3 is step 4, the last is step 50, and both count"
        )
    expect_equal(got, 47, "times_computed(3, 50)")
    yield "key 3 is computed 47 times in 50 steps"
    expect_equal(times_computed(0, 50), 50, "times_computed(0, 50)", why="every step sees token 0")
    expect_equal(times_computed(49, 50), 1, "times_computed(49, 50)", why="only the last sees it")
    yield "the first token's key is computed in every step, the last one's once"
    late = whole_number(times_computed(9, 4), "times_computed(9, 4)")
    if late < 0:
        raise Finding(
            f"times_computed(9, 4) is {late}: a key whose token has not come is computed 0 times"
        )
    expect_equal(late, 0, "times_computed(9, 4)", why="four steps never reach position 9")
    yield "a key whose token has not come is not computed"
    for position, steps in np.random.default_rng(0).integers(0, 90, (8, 2)).tolist():
        what = f"times_computed({position}, {steps})"
        expect_equal(times_computed(position, steps), max(0, steps - position), what)
    total = sum(
        whole_number(times_computed(position, 10), f"times_computed({position}, 10)")
        for position in range(10)
    )
    expect_equal(total, 55, "the keys of ten steps, all positions together")
    yield "ten steps compute 1 + 2 + ... + 10 = 55 keys, to keep ten"
