"""Free tokens between others in a StoredCache: choose those that stay, and move them together."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kvlib.arguments import describe
from kvlib.arrays import Array, to_numpy
from kvlib.attention.pieces import PagedTensor
from kvlib.caches.allocation.allocator import Ask, Move, first_changed
from kvlib.caches.allocation.table import Table
from kvlib.caches.retention.scored import PolicyState
from kvlib.caches.step import CachedSequence, Step
from kvlib.caches.store import Store
from kvlib.meter import report


def kept_ranks(
    cache: Any, g: int, seq: CachedSequence, final_length: int, waits: bool
) -> np.ndarray | None:
    """Return the ranks among stored tokens that stay, (n,) or (Hkv, n); None if all do.
    waits: whether tokens may stay until as many can be freed as have to move."""
    table, rule = seq.state.tables[g], cache.groups[g].retention
    if final_length < seq.length:  # it can still be truncated to before a gap
        return None
    if rule.per_layer:
        return best_ranks(cache, g, seq)
    positions = table.positions(seq.length)
    if not len(positions):
        return None
    stays = np.asarray(rule.kept(positions, seq.length))
    if stays.shape != positions.shape or stays.dtype != bool:
        raise ValueError(
            f"kept of {rule!r} must give one boolean for each of {len(positions)} tokens, got "
            f"{stays.dtype} of shape {stays.shape}"
        )
    ranks = np.flatnonzero(stays)
    least = rule.every or (len(ranks) - first_changed(ranks) if waits else 1)
    return None if len(stays) - len(ranks) < max(1, least) else ranks


def best_ranks(cache: Any, g: int, seq: CachedSequence) -> np.ndarray | None:
    """Return the ranks (Hkv, budget) of the highest scores; None while there is room."""
    rule: Any = cache.groups[g].retention  # a Scored: no other rule is `per_layer`
    layer, table = cache.groups[g].layers[0], seq.state.tables[g]
    n, state = seq.length - table.freed, table.policy_state
    full = n >= rule.budget + rule.every
    if not full and (state is None or state.q is None):
        return None
    # No token waits to be encoded, because such a codec and this rule refuse each other.
    k, v = cache.store(table, layer).decoded(table.pages, None, n, n, as_view=cache.one_array)
    if state is not None:
        state.pending = state.updated(cache.layers[layer], k, table.freed)
    if not full:
        return None
    score = rule.policy.score(None if state is None else state.pending, k, v)
    if getattr(score, "shape", None) != k.shape[:2]:
        raise ValueError(
            f"score of {rule.policy!r} must give a number for each of {k.shape[1]} tokens in "
            f"each of {k.shape[0]} kv heads, got {describe(score)}"
        )
    return to_numpy(rule.chosen(score)).astype(np.int64)


def close_holes(
    cache: Any,
    table: Table,
    ask: Ask,
    move: Move,
    pages: Sequence[int] | None = None,
    private_row: dict[int, Store] | None = None,
) -> None:
    """Move the tokens that stay together: into other `pages`, or within the same ones."""
    kept: Any = move.kept_ranks
    positions = table.positions(ask.length)
    for layer in cache.groups[move.group].layers:
        source = target = cache.store(table, layer)
        start = first_changed(kept)
        if pages is not None:
            target = (private_row or cache.stores)[layer]
            start = (move.copy_from or 0) * source.size
        page = start // source.size
        slots, at = kept[..., start:] - page * source.size, start - page * source.size
        old = table.pages[page:]
        tensors = zip(source.tensors, target.tensors, strict=True)
        copied = sum(gather_into(a, b, old, slots, pages or old, at) for a, b in tensors)
        report("move", copied=copied)
    if table.policy_state is not None:
        table.policy_state.commit(ask.length, kept)
    table.kept_positions, table.freed_at = positions_of(kept, positions), ask.length
    table.freed = move.freed


def observe_queries(cache: Any, layer: int, q: Array, lse: Array, step: Step) -> None:
    """Record the queries of a step, and their lse, for the policy of a layer that has one."""
    policy = getattr(cache.groups[cache.group_of[layer]].retention, "policy", None)
    if policy is None or policy.queries == 0:  # only a Scored has one
        return
    q = cache.xp.asarray(q, copy=True)  # until the next plan; the caller may reuse the array
    for i, table in enumerate(cache.placement(layer, step).tables):
        a, b = step.qo_indptr[i], step.qo_indptr[i + 1]
        if table.policy_state is None:
            table.policy_state = PolicyState(policy)
        table.policy_state.record(q[a:b, ...], lse[a:b, ...], step.seq_lens[i] - b + a)


def gather_into(
    source: PagedTensor,
    target: PagedTensor,
    pages: Sequence[int],
    slots: np.ndarray,
    target_pages: Sequence[int],
    at: int,
) -> int:
    """Copy tokens at slots (n,) or (Hkv, n) to slot `at` of other pages; return the bytes."""
    if not slots.size:
        return 0
    xp, n, room = source.xp, slots.shape[-1], len(pages) * source.size
    flat = slots + room * np.arange(source.heads)[:, None]  # (Hkv, n), counted over all heads
    index, parts = xp.asarray(flat.reshape(-1), dtype=xp.int64), {}
    for name, x in source.gather(pages, room).items():
        x = xp.take(xp.reshape(x, (source.heads * room, *x.shape[2:])), index, axis=0)
        parts[name] = xp.reshape(x, (source.heads, n, *x.shape[1:]))
    return target.put(target_pages, at, parts)


def positions_of(slots: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return the positions at slots (m,) or (Hkv, m), from positions (n,) or (Hkv, n)."""
    if slots.ndim == positions.ndim == 1:
        return positions[slots]
    heads = slots.shape[0] if slots.ndim == 2 else positions.shape[0]
    positions, slots = (np.broadcast_to(x, (heads, x.shape[-1])) for x in (positions, slots))
    return np.take_along_axis(positions, slots, axis=1)
