"""Known wrong answers to the exercises on batches, each refused in the words that fit it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kvbook.exercises.batched import (
    check_append_rows,
    check_pack,
    check_packed_mask,
    check_serve,
)
from kvbook.exercises.batched_serve import NEW_TOKENS, ROWS, passes_needed, task, tiny_model
from kvlib.serve import greedy

# pack ---------------------------------------------------------------------------------------------


def pack(prompts: Any, start: Any = lambda p, longest: 0, dtype: Any = np.int64) -> Any:
    lengths = [len(p) for p in prompts]
    tokens = np.array([t for p in prompts for t in p], dtype=dtype)
    first = [start(p, max(lengths)) for p in prompts]
    positions = np.concatenate([np.arange(a, a + n) for a, n in zip(first, lengths)]).astype(dtype)
    return tokens, positions, np.cumsum([0, *lengths]).astype(dtype)


def run_on(prompts: Any) -> Any:
    tokens, _, indptr = pack(prompts)
    return tokens, np.arange(len(tokens)), indptr


def left_padded_positions(prompts: Any) -> Any:
    return pack(prompts, start=lambda p, longest: longest - len(p))


def from_one(prompts: Any) -> Any:
    return pack(prompts, start=lambda p, longest: 1)


def lengths_for_offsets(prompts: Any) -> Any:
    return *pack(prompts)[:2], np.array([len(p) for p in prompts])


def no_last_entry(prompts: Any) -> Any:
    return *pack(prompts)[:2], pack(prompts)[2][:-1]


def no_first_entry(prompts: Any) -> Any:
    return *pack(prompts)[:2], pack(prompts)[2][1:]


def floats(prompts: Any) -> Any:
    return pack(prompts, dtype=np.float64)


def rectangle(prompts: Any) -> Any:
    longest = max(map(len, prompts))
    return np.array([p + [0] * (longest - len(p)) for p in prompts]), *pack(prompts)[1:]


def only_tokens(prompts: Any) -> Any:
    return pack(prompts)[0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (run_on, "positions run on across requests"),
        (left_padded_positions, "one position for the whole batch"),
        (from_one, "positions start at 1"),
        (lengths_for_offsets, "indptr holds the lengths 3, 1, 5"),
        (no_last_entry, "lacks the last entry"),
        (no_first_entry, "lacks the first entry"),
        (floats, "tokens is float64, needed integers"),
        (rectangle, "pack it without padding"),
        (only_tokens, "needed (tokens, positions, indptr)"),
    ],
)
def test_wrong_packs(wrong: Callable[..., Any], message: str) -> None:
    report = check_pack(wrong)
    assert report.status == "not yet" and message in report.finding, report


def test_right_pack() -> None:
    assert check_pack(lambda prompts: pack(prompts))


# packed_mask --------------------------------------------------------------------------------------


def mask(indptr: Any) -> Any:
    rows = np.arange(indptr[-1])
    owner = np.searchsorted(indptr, rows, side="right")
    return (owner[:, None] == owner[None, :]) & (rows[:, None] >= rows[None, :])


def causal_only(indptr: Any) -> Any:
    return np.tri(indptr[-1], dtype=bool)


def blocks_only(indptr: Any) -> Any:
    return mask(indptr) | mask(indptr).T


def neighbour_seen(indptr: Any) -> Any:
    seen = mask(indptr)
    seen[indptr[1], indptr[1] - 1] = True
    return seen


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (causal_only, "lets request B see request A"),
        (blocks_only, "lets the past see the future"),
        (lambda i: mask(i).T, "the mask is transposed"),
        (lambda i: ~mask(i), "exchanged"),
        (lambda i: mask(i) & ~np.eye(i[-1], dtype=bool), "a query sees itself"),
        (neighbour_seen, "row 3 of request 1 sees key 2 of request 0"),
        (lambda i: mask(i).astype(np.float32), "the mask is float32, needed bool"),
        (lambda i: mask(i)[None], "(T, T)"),
    ],
)
def test_wrong_masks(wrong: Callable[..., Any], message: str) -> None:
    report = check_packed_mask(wrong)
    assert report.status == "not yet" and message in report.finding, report


def test_right_mask() -> None:
    assert check_packed_mask(mask)


# append_rows --------------------------------------------------------------------------------------


def append_at(slots: Any, new: Any, places: Any, rows: Any, lengths: Any) -> Any:
    slots[rows, places] = new
    return lengths + 1


def everyone(slots: Any) -> Any:
    return np.arange(len(slots))


def longest_offset(slots: Any, new: Any, lengths: Any) -> Any:
    return append_at(slots, new, lengths.max(), everyone(slots), lengths)


def on_the_last(slots: Any, new: Any, lengths: Any) -> Any:
    return append_at(slots, new, lengths - 1, everyone(slots), lengths)


def one_late(slots: Any, new: Any, lengths: Any) -> Any:
    return append_at(slots, new, lengths + 1, everyone(slots), lengths)


def shared_row(slots: Any, new: Any, lengths: Any) -> Any:
    return append_at(slots, new, lengths, 0, lengths)


def crossed(slots: Any, new: Any, lengths: Any) -> Any:
    return append_at(slots, new, lengths, slice(None), lengths)


def same_lengths(slots: Any, new: Any, lengths: Any) -> Any:
    slots[everyone(slots), lengths] = new
    return lengths.copy()


def lengths_in_place(slots: Any, new: Any, lengths: Any) -> Any:
    slots[everyone(slots), lengths] = new
    lengths += 1
    return lengths


def into_a_copy(slots: Any, new: Any, lengths: Any) -> Any:
    slots = slots.copy()
    slots[everyone(slots), lengths] = new
    return lengths + 1


def remembers_the_batch(slots: Any, new: Any, lengths: Any) -> Any:
    # Right while all three rows are there; then it goes by the end the first row once had.
    places = lengths if len(slots) == 3 else np.full(len(slots), 6)
    return append_at(slots, new, places, everyone(slots), lengths)


def one_by_one(slots: Any, new: Any, lengths: Any) -> Any:
    for i, n in enumerate(lengths):
        slots[i, n] = new[i]
    return lengths + 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (one_by_one, "somewhere a loop goes over the rows"),
        (longest_offset, "went to slot 5, the longest row's end"),
        (on_the_last, "slot 1 was overwritten"),
        (one_late, "slot 2 stays empty"),
        (shared_row, "one cache is shared by all rows"),
        (crossed, "crosses every row with every length"),
        (same_lengths, "add 1"),
        (lengths_in_place, "lengths was changed in place"),
        (into_a_copy, "slots is unchanged"),
        (remembers_the_batch, "slots after the longest row left"),
    ],
)
def test_wrong_appends(wrong: Callable[..., Any], message: str) -> None:
    report = check_append_rows(wrong)
    assert report.status == "not yet" and message in report.finding, report


# serve --------------------------------------------------------------------------------------------


def loop(
    model: Any,
    cache: Any,
    prompts: Any,
    new_tokens: Any,
    *,
    join: bool = True,  # at once, or only when every row is empty
    free: bool = True,
    reuse: bool = False,  # a new request goes on in the request that left
    go_on: bool = False,  # nobody leaves before the longest of the batch
    apart: bool = False,  # prompts in a pass of their own
    by_slot: bool = False,  # logits row r is taken to be the r-th request that ever joined
    extra: bool = False,  # the last token is fed back, too
) -> list[list[int]]:
    waiting, feed, out = list(range(len(prompts))), {}, [[] for _ in prompts]
    names: dict[int, Any] = {}
    left: list[Any] = []
    while waiting or feed:
        while waiting and len(feed) < cache.max_seqs and (join or not names):
            i = waiting.pop(0)
            names[i] = left.pop() if left else i
            if names[i] == i:
                cache.add(i)
            feed[i] = prompts[i]
        names = {i: names[i] for i in feed}
        rows = list(feed)
        if apart and any(len(out[i]) == 0 for i in rows) and any(out[i] for i in rows):
            rows = [i for i in rows if not out[i]]
        step = cache.plan([names[i] for i in rows], [len(feed[i]) for i in rows])
        drawn = greedy(model.forward([t for i in rows for t in feed[i]], cache, step))
        if by_slot:
            rows = sorted(rows, key=lambda i: (i % 2, i))
        for i, token in zip(rows, drawn):
            out[i].append(token)
            feed[i] = [token]
        for i in rows:
            enough = len(out[i]) >= new_tokens[i] + extra
            if go_on:
                enough = all(len(out[j]) >= new_tokens[j] for j in feed)
            if enough:
                del feed[i]
                if reuse:
                    left.append(names[i])
                elif free:
                    cache.free(names[i])
        names = {i: n for i, n in names.items() if i in feed}
    return [o[:n] for o, n in zip(out, new_tokens)] if extra else out


def with_(**habits: Any) -> Callable[..., Any]:
    return lambda *args: loop(*args, **habits)


def all_at_once(model: Any, cache: Any, prompts: Any, new_tokens: Any) -> Any:
    for i in range(len(prompts)):
        cache.add(i)
    return []


def too_few(*args: Any) -> Any:
    return [tokens[:-1] for tokens in loop(*args)]


def as_a_dict(*args: Any) -> Any:
    return dict(enumerate(loop(*args)))


def left_open(model: Any, cache: Any, prompts: Any, new_tokens: Any) -> Any:
    out = loop(model, cache, prompts, new_tokens)
    cache.add("forgotten")
    return out


def one_token_wrong(*args: Any) -> Any:
    out = loop(*args)
    out[1][4] = (out[1][4] + 1) % 61
    return out


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (with_(go_on=True), "a finished request keeps generating"),
        (with_(free=False), "a finished request still holds its row"),
        (with_(reuse=True), "that another request left in the cache"),
        (with_(join=False), "rows stood empty while requests waited"),
        (with_(apart=True), "fit into one plan"),
        (with_(by_slot=True), "got the first token of request"),
        (with_(extra=True), "fed back although nothing is needed"),
        (all_at_once, "let it wait until a row is free"),
        (too_few, "the step over the prompt gives the first"),
        (as_a_dict, "needed a list of B lists"),
        (left_open, "still open at the end: 'forgotten'"),
        (one_token_wrong, "request 1, token 4"),
    ],
)
def test_wrong_loops(wrong: Callable[..., Any], message: str) -> None:
    report = check_serve(wrong)
    assert report.status == "not yet" and message in report.finding, report


def test_right_loop() -> None:
    assert check_serve(with_())


def test_the_task_of_the_loop_is_worth_checking() -> None:
    prompts, alone = task(tiny_model())
    assert tiny_model().num_parameters < 50_000
    assert [len(tokens) for tokens in alone] == list(NEW_TOKENS)
    assert len({tokens[0] for tokens in alone}) == len(alone), "requests that look alike"
    assert len(prompts) > ROWS
    assert passes_needed(NEW_TOKENS, ROWS) < passes_needed(sorted(NEW_TOKENS), 1)


def test_passes_needed() -> None:
    assert passes_needed([3, 1, 2], 3) == 3
    assert passes_needed([3, 1, 2], 2) == 3
    assert passes_needed([3, 1, 2], 1) == 6
