"""Answers on shared prefixes that passed once and must not, and right ones of other forms."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kvbook.exercises.prefixes import (
    check_append_key,
    check_block_keys,
    check_reusable,
)


def refused(report: Any, message: str) -> None:
    assert report.status == "not yet" and message in report.finding, report


# reusable -----------------------------------------------------------------------------------------


def reusable(known: Any, prompt: Any, size: int) -> Any:
    """Block by block, backwards."""
    for n in range((len(prompt) - 1) // size, 0, -1):
        if len(known) >= n * size and tuple(known[: n * size]) == tuple(prompt[: n * size]):
            return n * size
    return 0


def on_arrays(known: Any, prompt: Any, size: int) -> Any:
    n = min(len(known), len(prompt) - 1)
    same = np.array(known[:n]) == np.array(prompt[:n])
    agreed = n if same.all() else int(np.argmin(same))
    return np.int64(agreed // size * size)


def pops_the_prompt(known: Any, prompt: Any, size: int) -> Any:
    prompt.pop()
    return on_arrays(known, [*prompt, -1], size)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (pops_the_prompt, "argument 2 of pops_the_prompt was changed"),
        (lambda known, *a: known.clear() or 0, "argument 1 of <lambda> was changed"),
        (lambda *a: float(reusable(*a)), "got 4.0 (float), needed a whole number"),
        (lambda *a: np.array([4, 4]), "(ndarray), needed a whole number"),
        (lambda known, prompt, size: reusable(known, prompt, 4), "blocks of"),
    ],
)
def test_reuse_that_passed_or_broke_the_checker(wrong: Callable[..., Any], message: str) -> None:
    refused(check_reusable(wrong), message)


@pytest.mark.parametrize("right", [reusable, on_arrays])
def test_reuse_of_other_forms(right: Callable[..., Any]) -> None:
    assert check_reusable(right)


# block_keys ---------------------------------------------------------------------------------------


def sha(*parts: Any) -> bytes:
    return hashlib.sha256(repr(parts).encode()).digest()


def keys(
    tokens: Any,
    size: int,
    salt: Any,
    *,
    root: Callable[[Any], Any] = lambda salt: salt,
    block: Callable[[Any], Any] = tuple,
    cut: int = 32,
    stop: int = 1,
) -> list[Any]:
    found, before = [], sha("salt", root(salt))
    for a in range(0, len(tokens) - size + stop, size):
        before = sha(before, block(tokens[a : a + size]))[:cut]
        found.append(before)
    return found


def with_(**habits: Any) -> Callable[..., Any]:
    return lambda *a: keys(*a, **habits)


def eats_the_tokens(tokens: Any, size: int, salt: Any) -> Any:
    found = keys(tokens, size, salt)
    del tokens[: len(found) * size]
    return found


def knows_the_length(tokens: Any, size: int, salt: Any) -> Any:
    return keys(tokens, size, (len(tokens), salt))


def polynomial(tokens: Any, size: int, salt: Any) -> Any:
    found, value = [], int.from_bytes(sha(salt)[:2], "big")
    for i, token in enumerate(tokens, 1):
        value = (value * 31 + token) % 65_521
        found += [value] if i % size == 0 else []
    return found


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (eats_the_tokens, "argument 1 of eats_the_tokens was changed"),
        (with_(stop=0), "keys of 4 tokens in blocks of 4: got 0, needed 1"),
        (with_(block=lambda b: bytes(t % 256 for t in b)), "14 and 270 have the same key"),
        (with_(block=lambda b: np.array(b).astype(np.int16).tobytes()), "cut to 16 bits"),
        (with_(block=lambda b: b[:-1]), "token 3 of a block was changed from 14 to 99"),
        (with_(cut=3), "too few different keys"),
        (with_(cut=2), "too few different keys"),
        (polynomial, "too few different keys"),
        (with_(root=lambda salt: "".join(map(str, salt))), "('a', 'b') and ('ab',) gave one key"),
        (with_(root=lambda salt: ",".join(map(str, salt))), "and ('a,b',) gave one key"),
        (with_(root=lambda salt: salt[:1]), "('a',) and ('a', 'b') gave one key"),
        (with_(root=len), "('a',) and ('b',) gave one key"),
        (with_(root=lambda salt: sorted(map(str, salt))), "gave one key"),
        (with_(root=lambda salt: [str(x) for x in salt]), "(1,) and ('1',) gave one key"),
        (knows_the_length, "a key must not depend on the length of the text"),
        (lambda tokens, size, salt: [None] * (len(tokens) // size), "have the same key, None"),
        (lambda t, s, salt: [sha(t[max(0, a - s) : a + s], salt)
                             for a in range(0, len(t) - s + 1, s)],
         "block 2 of"),
    ],
)  # fmt: skip
def test_keys_that_passed_or_broke_the_checker(wrong: Callable[..., Any], message: str) -> None:
    refused(check_block_keys(wrong), message)


def nested(tokens: Any, size: int, salt: Any) -> Any:
    """Tuples in tuples, by recursion."""
    n = len(tokens) // size
    if n == 0:
        return []
    before = nested(tokens[: (n - 1) * size], size, salt)
    parent = before[-1] if before else ("root", salt)
    return [*before, (parent, tuple(tokens[(n - 1) * size : n * size]))]


def one_hasher(tokens: Any, size: int, salt: Any) -> Any:
    hasher, found = hashlib.blake2b(repr(("salt", salt)).encode(), digest_size=16), []
    for row in np.array(tokens[: len(tokens) // size * size], np.int64).reshape(-1, size):
        hasher.update(row.tobytes())
        found.append(int(hasher.hexdigest(), 16))
    return found


def numbered(tokens: Any, size: int, salt: Any, known: Any = {}) -> Any:  # noqa: B006
    """No hash at all: names are counted out as they come."""
    found, before = [], known.setdefault(("salt", salt), len(known))
    for a in range(0, len(tokens) - size + 1, size):
        before = known.setdefault((before, *tokens[a : a + size]), len(known))
        found.append(before)
    return found


# Tokens are never below 0, so unsigned bytes may be asked for.
UNSIGNED = [
    with_(block=lambda b: b"".join(t.to_bytes(4, "little") for t in b)),
    with_(block=lambda b: struct.pack(f"{len(b)}I", *b)),
    with_(block=lambda b: np.array(b, np.uint32).tobytes()),
]


@pytest.mark.parametrize("right", [keys, nested, one_hasher, numbered, *UNSIGNED])
def test_keys_of_other_forms(right: Callable[..., Any]) -> None:
    assert check_block_keys(right)


# append_key ---------------------------------------------------------------------------------------


def append_key(keys: Any, references: Any, table: Any, length: int, key: Any) -> Any:
    """Takes the entry out of the table and puts one back; the highest free block."""
    off = length % keys.shape[1]
    free = max(b for b, n in enumerate(references) if n == 0)
    if off == 0:
        table += [free]
        references[free] += 1
    else:
        old = table.pop()
        if references[old] > 1:
            keys[free, :off] = keys[old, :off]
            references[old] -= 1
            references[free], old = 1, free
        table.append(old)
    keys[table[-1]][off][:] = key
    return np.int32(length + 1)


def copying(
    keys: Any, references: Any, table: Any, length: int, key: Any, *,
    size: int = 0, shared: Callable[[int], bool] = lambda n: n > 1, left: Any = None,
    all_blocks: bool = False,
) -> Any:  # fmt: skip
    off = length % (size or keys.shape[1])
    for i in range(len(table)) if all_blocks else [len(table) - 1]:
        if off and shared(references[table[i]]):
            old, new = table[i], references.index(0)
            keys[new] = keys[old]
            references[old] = references[old] - 1 if left is None else left
            references[new] = 1
            table[i] = new
    if off == 0:
        table.append(references.index(0))
        references[table[-1]] = 1
    keys[table[-1], off] = key
    return length + 1


def habit(**habits: Any) -> Callable[..., Any]:
    return lambda *a: copying(*a, **habits)


def after(change: Callable[[Any, Any, Any, Any], Any]) -> Callable[..., Any]:
    """The right answer, and then something else."""

    def wrong(keys: Any, references: Any, table: Any, length: int, key: Any) -> Any:
        result = append_key(keys, references, table, length, key)
        change(keys, references, table, key)
        return result

    return wrong


def needs_a_block(keys: Any, references: Any, table: Any, length: int, key: Any) -> Any:
    assert references[table[-1]] > 0
    return copying(keys, references, table, length, key)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (habit(all_blocks=True), "its block 3 is full, so nothing is written into it"),
        (habit(size=4), "index 1 is out of bounds"),
        (habit(shared=lambda n: n == 2), "the new key of a stands in a block that"),
        (habit(left=1), "block 1 stands in 2 block tables and has 1 references"),
        (needs_a_block, "list index out of range"),
        (after(lambda keys, refs, table, key: keys.__setitem__(refs.index(0), 7)),
         "was written to, although it is not in its table"),
        (after(lambda keys, refs, table, key: key.fill(0)), "the new key, argument 5,"),
        (after(lambda keys, refs, table, key: table.append("x")), "got 'x' (str)"),
        (after(lambda keys, refs, table, key: table.__setitem__(0, None)), "got None"),
        (after(lambda keys, refs, table, key: refs.__setitem__(0, None)), "references[0]: got"),
        (after(lambda keys, refs, table, key: refs.clear()), "references has 0 entries now"),
        (after(lambda keys, refs, table, key: table.clear()), "7 keys do not fit into 0 blocks"),
        (lambda *a: np.array([append_key(*a)] * 2), "needed a whole number"),
    ],
)  # fmt: skip
def test_appends_that_passed_or_broke_the_checker(wrong: Callable[..., Any], message: str) -> None:
    refused(check_append_key(wrong), message)


@pytest.mark.parametrize("right", [append_key, copying])
def test_appends_of_other_forms(right: Callable[..., Any]) -> None:
    assert check_append_key(right)
