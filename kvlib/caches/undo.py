"""What changes a request of a StoredCache apart from its steps: truncate, keep and fork."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from kvlib.arguments import describe
from kvlib.attention.pieces import PagedTensor
from kvlib.caches.allocation.table import State
from kvlib.caches.retention.base import first_kept
from kvlib.caches.retention.eviction import gather_into
from kvlib.caches.step import CachedSequence
from kvlib.caches.store import GUESSES
from kvlib.meter import report


def truncate(cache: Any, seq: CachedSequence, length: int) -> None:
    """Forget all tokens after the first `length`, which `check_truncate` has let through."""
    state, paged = seq.state, cache.num_paged(seq)
    undo_from, num_paged = None, min(paged, length)
    waiting = state.residuals and length < seq.length
    if waiting:
        num_paged, undo_from = paged_after_cut(cache, seq, length)
    cache._roll_back(state, paged)
    cache.allocator.truncate(state, length)
    for table in state.tables if cache.wants_queries else ():
        if table.policy_state is not None:
            table.policy_state.truncate(length)
    state.num_paged = num_paged
    if waiting:
        for store, residual in zip(cache.stores, state.residuals, strict=True):
            residual.roll_back(undo_from, num_paged, length, store.room)
    cache._forget_undo(state)
    state.undo_length, state.undo_paged = length, num_paged
    cache._resize_residuals(state, length)


def check_truncate(cache: Any, seq: CachedSequence, length: int) -> None:
    """Refuse a length that cuts a group of codes in two, or that needs dropped tokens."""
    if seq.state.residuals and length < seq.length:
        paged_after_cut(cache, seq, length)
    for g, table in enumerate(seq.state.tables) if length else ():
        group, policy = cache.groups[g], table.policy_state
        if policy is not None and length < policy.length:
            raise ValueError(
                f"request {describe(seq.name)} cannot be truncated to {length} tokens: the scores "
                f"of layer {group.layers[0]} ({group.retention}) come from queries up to token "
                f"{policy.length}; it can to 0 and to {policy.length} ... {seq.length}"
            )
        if not table.freed:
            continue
        least = table.freed_at
        if table.kept_positions is None:  # the newest tokens, and the rule says how many are needed
            while least and first_kept(group.retention, least - 1) >= table.freed:
                least -= 1
        if length < least:
            raise ValueError(
                f"request {describe(seq.name)} cannot be truncated to {length} tokens: layer "
                f"{group.layers[0]} has given {table.freed} of them back ({group.retention}); "
                f"it can to 0 and to {least} ... {seq.length}"
            )


def paged_after_cut(cache: Any, seq: CachedSequence, length: int) -> tuple[int, int | None]:
    """Return how many tokens are codes after a cut, and how many were before the step, or None if
    no token has to wait again. ValueError if the cut would divide a group of codes."""
    state, group, gap = seq.state, cache.codec.group, seq.next_gap()
    # After a short step, the residuals still have its tokens.
    short = seq.length - state.undo_length <= GUESSES
    undoable_to = seq.length if short else state.undo_length
    if state.undo_paged <= length <= undoable_to:
        num_paged = cache.codec.coded(length if gap is None else min(gap, length))
        return max(state.undo_paged, num_paged), state.undo_paged
    if length < state.num_paged and length % group:
        spans = dict.fromkeys(((state.undo_paged, undoable_to), (state.num_paged, seq.length)))
        others = " and to ".join(f"{a} ... {b}" for a, b in spans)
        raise ValueError(
            f"request {describe(seq.name)} cannot be truncated to {length} tokens: "
            f"{cache.codec.made_by} has encoded the first {state.num_paged} in groups of "
            f"{group}; it can to multiples of {group}, and to {others}"
        )
    return min(cache.num_paged(seq), length), None


def keep(cache: Any, seq: CachedSequence, path: Sequence[int]) -> None:
    """Keep the new tokens of numbers `path` of a tree, and forget the others."""
    state, start, end = seq.state, seq.start, seq.start + len(path)
    moved = next((i for i, number in enumerate(path) if number != i), len(path))
    num_paged = end
    if cache.codec.waits:
        num_paged, written = max(state.num_paged, cache.codec.coded(end)), 0
        older = start - state.num_paged
        waiting = [*range(older), *(older + number for number in path)]
        for layer, residual in enumerate(state.residuals):
            table = state.tables[cache.group_of[layer]]
            paged = state.num_paged - table.freed, num_paged - table.freed
            written += cache.store(table, layer).keep(table.pages, residual, waiting, paged)
        report("keep", written=written)
    elif moved < len(path):
        close_up(cache, seq, start + moved, [start + number for number in path[moved:]])
    if len(state.tokens) == seq.length:
        state.tokens[start:] = [state.tokens[start + number] for number in path]
    cache.allocator.truncate(state, end)
    state.num_paged = state.undo_paged = num_paged
    state.undo_length = end


def close_up(cache: Any, seq: CachedSequence, target: int, sources: Sequence[int]) -> None:
    """Move the tokens `sources` of a request to `target` and on, in all layers."""
    copied = 0
    for g, group in enumerate(cache.groups):
        table = seq.state.tables[g]
        slots, to = [number - table.freed for number in sources], target - table.freed
        for layer in group.layers:
            for tensor in cache.store(table, layer).tensors:
                copied += pull_up(tensor, table.pages, slots, to)
    report("keep", copied=copied)


def pull_up(tensor: PagedTensor, pages: Sequence[int], slots: Sequence[int], to: int) -> int:
    """Move tokens at rising slots of some pages to slot `to` and on; return the bytes copied."""
    first, last = slots[0] // tensor.size, slots[-1] // tensor.size
    in_pages = np.asarray(slots, dtype=np.int64) - first * tensor.size
    if first < last:
        return gather_into(tensor, tensor, pages[first : last + 1], in_pages, pages, to)
    a, b = int(in_pages[0]), int(in_pages[-1]) + 1  # in one page, a few entries are enough
    index = tensor.xp.asarray(in_pages - a, dtype=tensor.xp.int64)
    parts = tensor.view(pages[first], a, b)
    return tensor.put(pages, to, {n: tensor.xp.take(x, index, axis=1) for n, x in parts.items()})


def fork(cache: Any, source: CachedSequence, seq_id: Hashable) -> CachedSequence:
    """Return a second request with the same tokens. Blocks are shared, and rows are copied."""
    old = source.state
    residuals = [residual.copy() for residual in old.residuals]
    private_rows = [
        None
        if table.private_row is None
        else {i: s.longer(s.size) for i, s in table.private_row.items()}
        for table in old.tables
    ]
    new = State(
        [], residuals, old.num_paged, list(old.tokens), old.extra, undo_length=old.undo_length
    )
    cache.allocator.copy(old, seq_id, new)
    if cache.allocator.one_page:  # blocks are shared
        copied = 0
        for g, (table, row) in enumerate(zip(new.tables, private_rows, strict=True)):
            table.private_row, pages = row, old.tables[g].pages
            table.pages = table.pages if row is None else [0]
            tokens = cache.num_paged(source) - table.freed
            for layer in cache.groups[g].layers:
                target, origin = cache.store(table, layer), cache.store(old.tables[g], layer)
                copied += target.move(origin, pages[0], table.pages[0], 0, tokens)
        report("fork", copied=copied)
    cache._roll_back(new, cache.num_paged(source))
    cache._forget_undo(new)
    new.undo_length, new.undo_paged = source.length, new.num_paged
    cache._resize_residuals(new, source.length)
    return CachedSequence(new)


def check_trees(cache: Any) -> None:
    """Refuse trees where a policy scores tokens by what all queries of a step saw."""
    for group in cache.groups:
        policy: Any = getattr(group.retention, "policy", None)
        if policy is not None and policy.queries != 0:
            raise ValueError(
                f"parents must be left out: {group.retention!r} of layer {group.layers[0]} "
                "scores tokens by the attention that they get, and the queries of wrong "
                "guesses would count; verify a chain of guesses, or use a rule that does not "
                "watch queries"
            )
