"""Checkers of the chapter on shared prefixes: what two prompts share, and the names of blocks.

The append that copies and attention in two parts have modules of their own: `prefixes_append` and
`prefixes_cascade`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kvlib.exercises.prefixes_append import check_append_key
from kvlib.exercises.prefixes_cascade import check_cascade
from kvlib.exercises.report import (
    Finding,
    checker,
    expect_equal,
)

__all__ = ["check_append_key", "check_block_keys", "check_cascade", "check_reusable"]


@checker
def check_reusable(reusable: Callable[..., Any]) -> Iterator[str]:
    """reusable(known, prompt, block_size) → tokens of prompt that known's blocks can stand for."""

    def expect(known: list[int], prompt: list[int], size: int, wanted: int, why: str) -> None:
        got = reusable(list(known), list(prompt), size)
        what = f"a known text of {len(known)} tokens, a prompt of {len(prompt)}, blocks of {size}"
        expect_equal(got, wanted, what, why=why)

    text = list(range(20, 40))
    bent = text[:6] + [7] + text[7:]  # differs in token 6 only
    got = reusable(list(text), list(bent), 4)
    if got == 6:
        raise Finding("6 tokens agree, but a block of 4 is shared whole or not at all: needed 4")
    if got in (12, 16, 18, 19):
        raise Finding(
            f"got {got}: tokens behind the first difference were counted, too. Their keys have "
            "seen another token 6, so they are other keys: needed 4"
        )
    expect_equal(got, 4, "tokens 0 to 5 agree, token 6 differs, blocks of 4")
    yield "whole blocks up to the first difference, and nothing behind it"

    expect(text, text[:4] + [1, 2], 4, 4, "the block that agrees is whole")
    expect(text[:7], text, 4, 4, "the known text has filled only one block of 4; what lies in a "
           "block that is not full is not shared")  # fmt: skip
    expect([], text, 4, 0, "nothing is known")
    expect([5, *text], text, 4, 0, "the known text has one more token in front: no key is the same")
    yield "only blocks that the known text has filled"

    for length in (8, 12):
        got = reusable(list(text), text[:length], 4)
        if got == length:
            raise Finding(
                f"all {length} tokens of the prompt were taken from the cache, so none is left to "
                "compute, and the first answer token needs the logits of the last one: needed "
                f"{length - 4}"
            )
        if got == length - 1:
            raise Finding(
                f"got {got}: the last token must be computed, but {got} is not a whole number of "
                f"blocks of 4: needed {length - 4}"
            )
        expect_equal(got, length - 4, f"a prompt of {length} tokens, all of them known")
    expect(text, [20], 1, 0, "a prompt of one token computes that token")
    expect(
        text, text[:9], 4, 8, "the last token lies in no whole block: both blocks are free to use"
    )
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
    yield "200 random pairs of texts"


@checker
def check_block_keys(block_keys: Callable[..., Any]) -> Iterator[str]:
    """block_keys(tokens, block_size, salt) → a list of one hashable key a whole block."""

    def keys(tokens: list[int], size: int = 4, salt: tuple[Any, ...] = ()) -> list[Any]:
        found = block_keys(list(tokens), size, salt)
        if not isinstance(found, list):
            raise Finding(f"block_keys returned {type(found).__name__}, needed a list of keys")
        for key in found:
            try:
                hash(key)
            except TypeError:
                raise Finding(
                    f"a key is a {type(key).__name__}, which cannot be looked up in a dict: bytes, "
                    "an integer or a tuple can"
                ) from None
        return found

    text = [11, 12, 13, 14, 21, 22, 23, 24, 31, 32]
    first = keys(text)
    if len(first) == 3:
        raise Finding("10 tokens and blocks of 4 gave 3 keys: the third block is not full yet, and "
                      "its next token would change its name")  # fmt: skip
    expect_equal(len(first), 2, "keys of 10 tokens in blocks of 4")
    if keys(text) != first:
        raise Finding(
            "the same tokens gave other keys the second time: nothing would ever be found"
        )
    expect_equal(len(keys(text[:3])), 0, "keys of 3 tokens in blocks of 4")
    yield "one key a full block, the same every time"

    if keys([9, *text[1:]])[1] == first[1]:
        raise Finding(
            "tokens 21 22 23 24 have the same key behind another first block: their keys in the "
            "cache have seen that block, so put the key before into the hash"
        )
    if keys(text[4:8])[0] == first[1]:
        raise Finding(
            "tokens 21 22 23 24 have the same key at the start of a text as behind a block"
        )
    if keys([9, *text[1:]], 4)[0] == first[0] or keys([*text[:4], 9, *text[5:]])[0] != first[0]:
        raise Finding("the first key must depend on the first block, and on nothing behind it")
    yield "a key depends on its tokens and on all before them, and on none behind"

    if keys([12, 11, *text[2:]])[0] == first[0]:
        raise Finding("two tokens were exchanged and the key stayed: a sum forgets the order")
    if keys([1, 112, 13, 14])[0] == keys([11, 12, 13, 14])[0]:
        raise Finding("1 112 and 11 12 have one key: written without a separator they look alike")
    if keys([*text[:4], -1, 22, 23, 24])[1] == keys([*text[:4], -2, 22, 23, 24])[1]:
        raise Finding(
            "−1 and −2 have one key: Python's hash() makes −2 of both, and whoever knows "
            "a function can make more such pairs. Take one from hashlib"
        )
    yield "other tokens, or another order, another key"

    salted = keys(text, salt=("tenant",))
    if salted[0] == first[0]:
        raise Finding("the salt changes nothing: tenants would find each other's blocks")
    if salted[1] == first[1]:
        raise Finding(
            "the salt is in the first key only: chain it, so that it holds for all blocks"
        )
    if keys(text[4:], salt=(11, 12, 13, 14))[0] in first:
        raise Finding("a salt of (11, 12, 13, 14) gave the key of a text with these tokens: keep "
                      "salt and tokens apart")  # fmt: skip
    yield "another salt, other keys, and no salt passes for tokens"

    rng = np.random.default_rng(1)
    texts = {tuple(rng.integers(0, 3, 6).tolist()) for _ in range(200)}
    named = {text: keys(list(text), 2) for text in texts}
    for a in texts:
        for b in texts:
            agree = [a[: 2 * n + 2] == b[: 2 * n + 2] for n in range(3)]
            if [x == y for x, y in zip(named[a], named[b], strict=True)] != agree:
                raise Finding(
                    f"texts {a} and {b} in blocks of 2 share other blocks than their keys say"
                )
    yield "two texts share keys exactly where they share a beginning"
