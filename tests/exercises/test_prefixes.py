"""Known wrong answers to the exercises on shared prefixes, each refused in the words that fit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kvbook.exercises.prefixes import (
    check_append_key,
    check_block_keys,
    check_cascade,
    check_reusable,
)

# reusable -----------------------------------------------------------------------------------------


def agreeing(known: Any, prompt: Any) -> int:
    n = 0
    while n < min(len(known), len(prompt)) and known[n] == prompt[n]:
        n += 1
    return n


def reusable(known: Any, prompt: Any, size: int) -> int:
    return min(agreeing(known, prompt), len(prompt) - 1) // size * size


def to_the_token(known: Any, prompt: Any, size: int) -> int:
    return agreeing(known, prompt)


def all_of_it(known: Any, prompt: Any, size: int) -> int:
    return agreeing(known, prompt) // size * size


def all_but_one(known: Any, prompt: Any, size: int) -> int:
    return min(all_of_it(known, prompt, size), len(prompt) - 1)


def anywhere(known: Any, prompt: Any, size: int) -> int:
    n = sum(
        known[a : a + size] == prompt[a : a + size]
        for a in range(0, min(len(known), len(prompt) - 1) - size + 1, size)
    )
    return n * size


def in_blocks(known: Any, prompt: Any, size: int) -> int:
    return reusable(known, prompt, size) // size


def one_block_less(known: Any, prompt: Any, size: int) -> int:
    return max(0, all_of_it(known, prompt, size) - size)


def half_filled(known: Any, prompt: Any, size: int) -> int:
    n = min(-(-agreeing(known, prompt) // size) * size, len(prompt) - 1) // size * size
    return n if agreeing(known, prompt) == len(known) else reusable(known, prompt, size)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (to_the_token, "a block of 4 is shared whole or not at all"),
        (all_of_it, "none is left to compute"),
        (all_but_one, "not a whole number of blocks of 4; needed 4"),
        (anywhere, "computed after a different token 6"),
        (in_blocks, "got 1, needed 4"),
        (one_block_less, "tokens 0 to 5 agree, token 6 differs, blocks of 4: got 0, needed 4"),
        (half_filled, "tokens in a block that is not full are not shared"),
    ],
)
def test_wrong_reuse(wrong: Callable[..., Any], message: str) -> None:
    report = check_reusable(wrong)
    assert report.status == "not yet" and message in report.finding, report


def test_right_reuse() -> None:
    assert check_reusable(reusable)


# block_keys ---------------------------------------------------------------------------------------


def digest(*parts: Any) -> bytes:
    return hashlib.sha256(repr(parts).encode()).digest()


def whole_blocks(tokens: Any, size: int) -> list[Any]:
    return [tuple(tokens[a : a + size]) for a in range(0, len(tokens) - size + 1, size)]


def chained(name: Callable[..., Any], partial: bool = False) -> Callable[..., Any]:
    """Keys of blocks from name(key before, tokens, salt, number of the block)."""

    def block_keys(tokens: Any, size: int, salt: Any) -> list[Any]:
        blocks, found, before = whole_blocks(tokens, size), [], b""
        if partial and len(tokens) % size:
            blocks.append(tuple(tokens[-(len(tokens) % size) :]))
        for n, block in enumerate(blocks):
            before = name(before, block, salt, n)
            found.append(before)
        return found

    return block_keys


right = chained(lambda before, block, salt, n: digest(before, block, salt if n == 0 else ()))


def salt_as_a_block(tokens: Any, size: int, salt: Any) -> list[Any]:
    return [(*salt, *tokens[: a + size]) for a in range(0, len(tokens) - size + 1, size)]


def digits(before: Any, block: Any, salt: Any, n: int) -> bytes:
    text = "".join(str(t) for t in block)
    return digest(before, text, salt)


class Counter:
    calls = 0


def random_start(before: Any, block: Any, salt: Any, n: int) -> bytes:
    Counter.calls += 1
    return digest(before, block, salt, Counter.calls)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            chained(lambda b, block, salt, n: digest(block, salt)),
            "Put the previous block's key into the hash",
        ),
        (
            chained(lambda b, block, salt, n: digest(n, block, salt)),
            "after a different first block",
        ),
        (chained(lambda b, block, salt, n: digest(b, block, salt), partial=True), "not full yet"),
        (chained(lambda b, block, salt, n: digest(b, sum(block), salt)), "a sum forgets the order"),
        (chained(digits), "without a separator they look alike"),
        (chained(lambda b, block, salt, n: hash((b, block, salt))), "Use a hash from hashlib"),
        (chained(lambda b, block, salt, n: digest(b, block)), "the salt changes nothing"),
        (
            chained(lambda b, block, salt, n: digest(b if n > 1 else b"", block, n, salt)),
            "after a different first block",
        ),
        (salt_as_a_block, "keep salt and tokens apart"),
        (chained(random_start), "nothing would ever be found"),
        (chained(lambda b, block, salt, n: [b, block]), "which cannot be a key of a dict"),
        (lambda tokens, size, salt: digest(tokens), "needed a list of keys"),
        (lambda tokens, size, salt: right(tokens, size, salt)[:1], "got 1, needed 2"),
    ],
)
def test_wrong_keys(wrong: Callable[..., Any], message: str) -> None:
    report = check_block_keys(wrong)
    assert report.status == "not yet" and message in report.finding, report


def test_right_keys() -> None:
    assert check_block_keys(right)
    assert check_block_keys(
        lambda tokens, size, salt: [(salt, key) for key in salt_as_a_block(tokens, size, ())]
    )


def salt_first_only(tokens: Any, size: int, salt: Any) -> list[Any]:
    keys = right(tokens, size, ())
    return [digest(salt, key) if n == 0 else key for n, key in enumerate(keys)]


def test_a_salt_that_is_not_chained() -> None:
    report = check_block_keys(salt_first_only)
    assert "the salt is in the first key only" in report.finding, report


# append_key ---------------------------------------------------------------------------------------


def append_key(
    keys: Any,
    references: Any,
    table: Any,
    length: int,
    key: Any,
    *,
    copy_if: Callable[[int], bool] = lambda count: count > 1,
    content: bool = True,
    leave: bool = True,
    take: bool = True,
    rename: bool = True,
    full: bool = False,
    free: Callable[[Any], int] = lambda references: references.index(0),
    at: int = 0,
) -> int:
    size = keys.shape[1]
    if length % size == 0 and not full:
        table.append(free(references))
        references[table[-1]] += take
    elif copy_if(references[table[-1]]):
        old, new = table[-1], free(references)
        if content:
            keys[new] = keys[old]
        references[old] -= leave
        references[new] += take
        if rename:
            table[-1] = new
        else:
            table.append(new)
    keys[table[-1], length % size + at] = key
    return length + 1


def habit(**habits: Any) -> Callable[..., Any]:
    return lambda *args: append_key(*args, **habits)


def forgets_the_table(keys: Any, references: Any, table: Any, length: int, key: Any) -> int:
    mine = list(table)
    append_key(keys, references, mine, length, key)
    return length + 1


def same_length(*args: Any) -> int:
    return append_key(*args) - 1


def copies_full_blocks(keys: Any, references: Any, table: Any, length: int, key: Any) -> int:
    if references[table[-1]] > 1 and length % keys.shape[1] == 0:
        new = references.index(0)
        keys[new] = keys[table[-1]]
        references[table[-1]] -= 1
        references[new] += 1
        table[-1] = new
    return append_key(keys, references, table, length, key)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (habit(copy_if=lambda n: False), "the new key of a stands in a block that b holds"),
        (habit(copy_if=lambda n: True), "the last holder writes in place"),
        (habit(content=False), "Copy the keys that are already in the block"),
        (habit(leave=False), "block 1 stands in 1 block tables and has 2 references"),
        (habit(take=False), "block 2 stands in 1 block tables and has 0 references"),
        (habit(rename=False), "position 6 does not hold the new key"),
        (habit(full=True), "9 keys do not fit"),
        (habit(free=lambda r: 0), "it took block 0, which another request holds"),
        (forgets_the_table, "position 6 does not hold the new key"),
        (same_length, "the new length: got 6, needed 7"),
        (copies_full_blocks, "d's full block 3 was copied"),
    ],
)
def test_wrong_appends(wrong: Callable[..., Any], message: str) -> None:
    report = check_append_key(wrong)
    assert report.status == "not yet" and message in report.finding, report


def test_right_append() -> None:
    assert check_append_key(append_key)


# cascade ------------------------------------------------------------------------------------------


def part(q: Any, k: Any, v: Any, scale: bool = True) -> tuple[Any, Any]:
    """o (B, D), lse (B, 1)"""
    s = q @ k.T / (np.float32(np.sqrt(q.shape[1])) if scale else 1)
    top = s.max(axis=1, keepdims=True)
    p = np.exp(s - top)
    total = p.sum(axis=1, keepdims=True)
    return p @ v / total, top + np.log(total)


def sigmoid(a: Any, b: Any) -> Any:
    top = np.maximum(a, b)
    return np.exp(a - top) / (np.exp(a - top) + np.exp(b - top))


def two_parts(q: Any, k: Any, v: Any, own: Any, weigh: Any = sigmoid, scale: bool = True) -> Any:
    o, lse = part(q, k, v, scale)
    mine = [part(q[i : i + 1], *pair, scale) for i, pair in enumerate(own)]
    o_own, lse_own = (np.concatenate([m[i] for m in mine]) for i in (0, 1))
    share = weigh(lse, lse_own)
    return share * o + (1 - share) * o_own


def by_count(q: Any, k: Any, v: Any, own: Any) -> Any:
    sizes = np.array([[len(pair[0])] for pair in own], dtype=np.float32)
    return two_parts(q, k, v, own, lambda a, b: len(k) / (len(k) + sizes))


def all_private(q: Any, k: Any, v: Any, own: Any) -> Any:
    every = tuple(np.concatenate(x) for x in zip(*own))
    return two_parts(q, k, v, [every] * len(own))


def overflows(a: Any, b: Any) -> Any:
    return np.exp(a) / (np.exp(a) + np.exp(b))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda *x: two_parts(*x, weigh=lambda a, b: np.float32(0.5)), "the mean of the two parts"),
        (lambda *x: 2 * two_parts(*x, weigh=lambda a, b: np.float32(0.5)), "the sum of the two"),
        (by_count, "weighed by their number of keys"),
        (lambda *x: two_parts(*x, weigh=lambda a, b: sigmoid(b, a)), "the weights are exchanged"),
        (lambda *x: two_parts(*x, weigh=lambda a, b: a / (a + b)), "weighed by lse itself"),
        (all_private, "every request sees the private keys of all"),
        (lambda q, k, v, own: part(q, k, v)[0], "only the shared keys count"),
        (lambda *x: two_parts(*x, weigh=lambda a, b: np.float32(0)), "only the private keys count"),
        (lambda *x: two_parts(*x, scale=False), "not divided by √D"),
        (lambda *x: two_parts(*x, weigh=overflows), "e^lse overflows"),
        (lambda *x: two_parts(*x).astype(np.float64), "o is float64, needed float32"),
        (lambda *x: two_parts(*x)[None], "(B, D)"),
        (lambda q, k, v, own: two_parts(q[:2], k, v, own[:2]), "needed (3, 8)"),
    ],
)
def test_wrong_cascades(wrong: Callable[..., Any], message: str) -> None:
    report = check_cascade(wrong)
    assert report.status == "not yet" and message in report.finding, report


def test_right_cascade() -> None:
    assert check_cascade(two_parts)
