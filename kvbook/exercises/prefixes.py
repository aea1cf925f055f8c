"""Checkers of the chapter on shared prefixes: what two prompts share.

The names of blocks, the append that copies and attention in two parts have modules of their own:
`prefixes_keys`, `prefixes_append` and `prefixes_cascade`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kvbook.exercises.prefixes_append import check_append_key
from kvbook.exercises.prefixes_cascade import check_cascade
from kvbook.exercises.prefixes_keys import check_block_keys
from kvbook.exercises.received import whole
from kvbook.exercises.report import Finding, checker, expect_equal

__all__ = ["check_append_key", "check_block_keys", "check_cascade", "check_reusable"]


@checker
def check_reusable(reusable: Callable[..., Any]) -> Iterator[str]:
    """reusable(known, prompt, block_size) → how many tokens of prompt known's blocks serve."""

    def ask(known: list[int], prompt: list[int], size: int) -> int:
        return whole(reusable(list(known), list(prompt), size), "tokens to reuse")

    def expect(known: list[int], prompt: list[int], size: int, wanted: int, why: str) -> None:
        got = ask(known, prompt, size)
        what = f"a known text of {len(known)} tokens, a prompt of {len(prompt)}, blocks of {size}"
        expect_equal(got, wanted, what, why=why)

    text = list(range(20, 40))
    bent = text[:6] + [7] + text[7:]  # differs in token 6 only
    got = ask(text, bent, 4)
    if got == 6:
        raise Finding(
            "6 tokens agree, but a block of 4 is shared whole or not at all, so 4 are needed"
        )
    if got in (12, 16, 18, 19):
        raise Finding(
            f"got {got}, needed 4: tokens after the first difference were counted, too. Their keys "
            "were computed after a different token 6, so they are different keys"
        )
    expect_equal(got, 4, "tokens 0 to 5 agree, token 6 differs, blocks of 4")
    yield "whole blocks up to the first difference, and nothing after it"

    expect(text, text[:4] + [1, 2], 4, 4, "the block that agrees is whole")
    expect(text[:7], text, 4, 4, "the known text has filled only one block of 4; tokens in a block "
           "that is not full are not shared")  # fmt: skip
    expect([], text, 4, 0, "nothing is known")
    expect(
        [5, *text], text, 4, 0, "the known text has one more token in front, so no key is the same"
    )
    yield "only blocks that the known text has filled"

    for length in (8, 12):
        got = ask(text, text[:length], 4)
        if got == length:
            raise Finding(
                f"all {length} tokens of the prompt were taken from the cache, so none is left to "
                "compute, but the first answer token needs the logits of the last one; needed "
                f"{length - 4}"
            )
        if got == length - 1:
            raise Finding(
                f"got {got}: the last token must be computed, but {got} is not a whole number of "
                f"blocks of 4; needed {length - 4}"
            )
        expect_equal(got, length - 4, f"a prompt of {length} tokens, all of them known")
    expect(text, [20], 1, 0, "a prompt of one token computes that token")
    expect(text, text[:9], 4, 8, "the last token lies after both whole blocks, so both can be used")
    yield "at least the last token is left to compute"

    rng = np.random.default_rng(0)
    for _ in range(200):
        size = int(rng.integers(1, 6))
        a, b = (rng.integers(0, 2, rng.integers(1, 14)).tolist() for _ in "ab")
        n = 0
        while (n + 1) * size <= min(len(a), len(b) - 1) and a[: (n + 1) * size] == b[
            : (n + 1) * size
        ]:
            n += 1
        expect(a, b, size, n * size, f"known {a}, prompt {b}")
    yield "the same holds for 200 random pairs of texts"
