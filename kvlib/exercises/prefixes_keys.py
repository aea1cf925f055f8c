"""The checker of chained names for blocks."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kvlib.exercises.received import lend, shown
from kvlib.exercises.report import Finding, checker, expect_equal


@checker
def check_block_keys(block_keys: Callable[..., Any]) -> Iterator[str]:
    """block_keys(tokens, block_size, salt) → a list of one hashable key a whole block."""

    def keys(tokens: list[int], size: int = 4, salt: tuple[Any, ...] = ()) -> list[Any]:
        found = lend(block_keys, list(tokens), size, salt)
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
        rest = len(tokens) % size
        if rest and len(found) == len(tokens) // size + 1:
            raise Finding(
                f"{len(tokens)} tokens and blocks of {size} gave {len(found)} keys: block "
                f"{len(found) - 1} is not full yet, and its next token would change its name"
            )
        why = "" if rest else "the last block is just full, and has a name like the others"
        what = f"keys of {len(tokens)} tokens in blocks of {size}"
        expect_equal(len(found), len(tokens) // size, what, why=why)
        return found

    text = [11, 12, 13, 14, 21, 22, 23, 24, 31, 32]
    first = keys(text)
    again = keys(text)
    if again != first:
        raise Finding(
            "the same tokens gave other keys the second time: nothing would ever be found"
        )
    keys(text[:3])
    keys(text[:4])
    if first[0] == first[1]:
        raise Finding(f"two blocks with other tokens have the same key, {shown(first[0])}")
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
    if keys(text[:8]) != first or keys([*text, 33, 34])[:2] != first:
        raise Finding(
            "the same first 8 tokens have other keys in a shorter or a longer text: a key must not "
            "know how long the text is"
        )
    yield "a key depends on its tokens and on all before them, and on none behind"

    for j in range(4):
        if keys([*text[:j], 99, *text[j + 1 :]])[0] == first[0]:
            raise Finding(
                f"token {j} of a block was changed from {text[j]} to 99, and its key stayed: all "
                "tokens of a block go into its name"
            )
    if keys([12, 11, *text[2:]])[0] == first[0]:
        raise Finding("two tokens were exchanged and the key stayed: a sum forgets the order")
    if keys([1, 112, 13, 14])[0] == keys([11, 12, 13, 14])[0]:
        raise Finding("1 112 and 11 12 have one key: written without a separator they look alike")
    if _one_key_for_two(keys, [*text[:4], -1, 22, 23, 24], [*text[:4], -2, 22, 23, 24]):
        raise Finding(
            "−1 and −2 have one key: Python's hash() makes −2 of both, and whoever knows "
            "a function can make more such pairs. Take one from hashlib"
        )
    for more in (2**8, 2**16):
        if keys([11, 12, 13, 14 + more])[0] == keys([11, 12, 13, 14])[0]:
            raise Finding(
                f"tokens 14 and {14 + more} have one key: a token was cut to "
                f"{more.bit_length() - 1} bits, and vocabularies are larger"
            )
    _many(keys)
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
    salts: list[tuple[Any, ...]] = [("a",), ("b",), ("a", "b"), ("b", "a"), ("ab",), ("a,b",)]
    by_key: dict[Any, tuple[Any, ...]] = {}
    for salt in [(), *salts, (1,), ("1",), (1, 2), (12,)]:
        other = by_key.setdefault(keys(text, salt=salt)[0], salt)
        if other != salt:
            raise Finding(
                f"the salts {other} and {salt} gave one key: tenants would find each other's "
                "blocks. All of the tuple has to go in, in a form that keeps its entries apart"
            )
    yield "another salt, other keys, and no salt passes for tokens"

    rng = np.random.default_rng(1)
    texts = {tuple(rng.integers(0, 3, 6).tolist()) for _ in range(200)}
    named = {text: keys(list(text), 2) for text in texts}
    for a in texts:
        for b in texts:
            for n in range(3):
                agree = a[: 2 * n + 2] == b[: 2 * n + 2]
                if (named[a][n] == named[b][n]) != agree:
                    has = "other keys" if agree else "the same key"
                    why = "agree up to its end" if agree else "differ in it or before it"
                    raise Finding(
                        f"blocks of 2: block {n} of {list(a)} and of {list(b)} has {has}, and the "
                        f"texts {why}"
                    )
    yield "two texts share keys exactly where they share a beginning"


def _one_key_for_two(keys: Callable[..., list[Any]], a: list[int], b: list[int]) -> bool:
    """Whether the last keys are equal; no, where tokens below 0 are refused. They are no ids."""
    try:
        return bool(keys(a)[-1] == keys(b)[-1])
    except Finding as finding:
        if isinstance(finding.__cause__, OverflowError | ValueError | struct.error):
            return False
        raise


def _many(keys: Callable[..., list[Any]]) -> None:
    """Thousands of names, so that names of two bytes meet."""
    rng = np.random.default_rng(2)
    named: dict[Any, tuple[int, int]] = {}
    for i, text in enumerate(rng.integers(0, 50_000, (20, 300)).tolist()):
        for n, key in enumerate(keys(text, 2)):
            other, block = named.setdefault(key, (i, n))
            if (other, block) != (i, n):
                raise Finding(
                    f"among 3,000 blocks, block {block} of one text and block {n} of "
                    f"{'the same' if other == i else 'another'} have one key, though their tokens "
                    "differ: there are too few different names. Keep all that hashlib gives"
                )
