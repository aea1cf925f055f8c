"""The checker of chained names for blocks."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kvbook.exercises.received import shown
from kvbook.exercises.report import Finding, checker, expect_equal


@checker
def check_block_keys(block_keys: Callable[..., Any]) -> Iterator[str]:
    """block_keys(tokens, block_size, salt) → a list of one hashable key a whole block."""

    def keys(tokens: list[int], size: int = 4, salt: tuple[Any, ...] = ()) -> list[Any]:
        found = block_keys(list(tokens), size, salt)
        if not isinstance(found, list | tuple):
            raise Finding(f"block_keys returned {type(found).__name__}, needed a list of keys")
        found = list(found)
        for key in found:
            try:
                hash(key)
            except TypeError:
                raise Finding(
                    f"a key is a {type(key).__name__}, which cannot be a key of a dict; return "
                    "bytes, integers or tuples"
                ) from None
        rest = len(tokens) % size
        if rest and len(found) == len(tokens) // size + 1:
            raise Finding(
                f"{len(tokens)} tokens and blocks of {size} gave {len(found)} keys: block "
                f"{len(found) - 1} is not full yet, and its next token would change its key"
            )
        why = "" if rest else "the last block is just full, so it has a key, too"
        what = f"keys of {len(tokens)} tokens in blocks of {size}"
        expect_equal(len(found), len(tokens) // size, what, why=why)
        return found

    text = [11, 12, 13, 14, 21, 22, 23, 24, 31, 32]
    first = keys(text)
    again = keys(text)
    if again != first:
        raise Finding(
            "the same tokens gave different keys the second time, so nothing would ever be found"
        )
    keys(text[:3])
    keys(text[:4])
    if first[0] == first[1]:
        raise Finding(f"two blocks with different tokens have the same key, {shown(first[0])}")
    yield "one key per full block, the same every time"

    if keys([9, *text[1:]])[1] == first[1]:
        raise Finding(
            "block 21 22 23 24 has the same key after a different first block, but the keys and "
            "values that the cache holds for it depend on that block. Put the previous block's key "
            "into the hash"
        )
    if keys(text[4:8])[0] == first[1]:
        raise Finding(
            "tokens 21 22 23 24 have the same key at the start of a text and after another block"
        )
    if keys([9, *text[1:]], 4)[0] == first[0] or keys([*text[:4], 9, *text[5:]])[0] != first[0]:
        raise Finding("the first key must depend on the first block, and on nothing after it")
    if keys(text[:8]) != first or keys([*text, 33, 34])[:2] != first:
        raise Finding(
            "the same first 8 tokens have different keys in a shorter or a longer text: a key "
            "must not depend on the length of the text"
        )
    yield "a key depends on its tokens and on all before them, and on none after them"

    for j in range(4):
        if keys([*text[:j], 99, *text[j + 1 :]])[0] == first[0]:
            raise Finding(
                f"token {j} of a block was changed from {text[j]} to 99, but its key did not "
                "change: all tokens of a block go into its key"
            )
    if keys([12, 11, *text[2:]])[0] == first[0]:
        raise Finding(
            "two tokens were exchanged and the key did not change: a sum forgets the order"
        )
    if keys([1, 112, 13, 14])[0] == keys([11, 12, 13, 14])[0]:
        raise Finding("1 112 and 11 12 have the same key: without a separator they look alike")
    if _one_key_for_two(keys, [*text[:4], -1, 22, 23, 24], [*text[:4], -2, 22, 23, 24]):
        raise Finding(
            "−1 and −2 have the same key: Python's hash() turns both into −2, and an attacker can "
            "make more such pairs. Use a hash from hashlib"
        )
    for more in (2**8, 2**16):
        if keys([11, 12, 13, 14 + more])[0] == keys([11, 12, 13, 14])[0]:
            raise Finding(
                f"tokens 14 and {14 + more} have the same key: tokens were cut to "
                f"{more.bit_length() - 1} bits, but vocabularies are larger"
            )
    _many(keys)
    yield "different tokens, or a different order, give a different key"

    salted = keys(text, salt=("tenant",))
    if salted[0] == first[0]:
        raise Finding("the salt changes nothing, so tenants would find each other's blocks")
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
                f"the salts {other} and {salt} gave one key, so tenants would find each other's "
                "blocks. Hash the whole tuple, in a form that keeps its entries apart"
            )
    yield "a different salt gives different keys, and no salt is mistaken for tokens"

    rng = np.random.default_rng(1)
    texts = {tuple(rng.integers(0, 3, 6).tolist()) for _ in range(200)}
    named = {text: keys(list(text), 2) for text in texts}
    for a in texts:
        for b in texts:
            for n in range(3):
                agree = a[: 2 * n + 2] == b[: 2 * n + 2]
                if (named[a][n] == named[b][n]) != agree:
                    has = "different keys" if agree else "the same key"
                    why = "agree up to its end" if agree else "differ in it or before it"
                    raise Finding(
                        f"blocks of 2: block {n} of {list(a)} and of {list(b)} has {has}, but the "
                        f"texts {why}"
                    )
    yield "two texts share keys exactly where they share a beginning"


def _one_key_for_two(keys: Callable[..., list[Any]], a: list[int], b: list[int]) -> bool:
    """Whether the last keys are equal. False if tokens below 0 are refused; they are no ids."""
    try:
        return bool(keys(a)[-1] == keys(b)[-1])
    except Finding as finding:
        if isinstance(finding.__cause__, OverflowError | ValueError | struct.error):
            return False
        raise


def _many(keys: Callable[..., list[Any]]) -> None:
    """Thousands of names, so that names of two or three bytes collide."""
    rng = np.random.default_rng(2)
    named: dict[Any, tuple[int, int]] = {}
    texts = rng.integers(0, 50_000, (120, 150))
    texts[:, 0] = np.arange(120)  # so that no two begin alike
    for i, text in enumerate(texts.tolist()):
        for n, key in enumerate(keys(text, 1)):
            other, block = named.setdefault(key, (i, n))
            if (other, block) != (i, n):
                raise Finding(
                    f"among 18,000 blocks, block {block} of one text and block {n} of "
                    f"{'the same' if other == i else 'another'} have one key although their "
                    "tokens differ: there are too few different keys. Keep the whole digest"
                )
