"""Rules that take tokens out from between others: which stay in a StoredCache, and their move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kvlib.arguments import describe
from kvlib.arrays import Array, to_numpy
from kvlib.caches.allocation.table import Ask, Move, Table, first_changed
from kvlib.caches.retention.seen import PolicyState, positions_of
from kvlib.caches.step import CachedSequence, Step
from kvlib.caches.store import Fields, Store
from kvlib.meter import report


def staying(cache: Any, g: int, seq: CachedSequence, kept: int, waits: bool) -> np.ndarray | None:
    """The numbers (n,), or (Hkv, n), of a group's stored tokens that stay; None where all do.

    waits: whether tokens may stay until as many can go as have to move.
    """
    table, rule = seq.state.tables[g], cache.groups[g].retention
    if kept < seq.length:  # it can still be taken back to before a gap
        return None
    if rule.per_layer:
        return best(cache, g, seq)
    positions = table.positions(seq.length)
    if not len(positions):
        return None
    stays = np.asarray(rule.kept(positions, seq.length))
    if stays.shape != positions.shape or stays.dtype != bool:
        raise ValueError(
            f"kept of {rule!r} must give one boolean for each of {len(positions)} tokens, got "
            f"{stays.dtype} of shape {stays.shape}"
        )
    stay = np.flatnonzero(stays)
    least = rule.every or (len(stay) - first_changed(stay) if waits else 1)
    return None if len(stays) - len(stay) < max(1, least) else stay


def best(cache: Any, g: int, seq: CachedSequence) -> np.ndarray | None:
    """The numbers (Hkv, budget) of the tokens of highest score; None while there is room."""
    rule: Any = cache.groups[g].retention  # a Scored: no other rule is `alone`
    table = seq.state.tables[g]
    if seq.length - table.freed < rule.budget + rule.every:
        if table.policy_state is not None and table.policy_state.q is not None:
            folded(cache, g, seq, decoded(cache, g, seq)[0])
        return None
    k, v = decoded(cache, g, seq)
    score = rule.policy.score(folded(cache, g, seq, k), k, v)
    if getattr(score, "shape", None) != k.shape[:2]:
        raise ValueError(
            f"score of {rule.policy!r} must give a number for each of {k.shape[1]} tokens in "
            f"each of {k.shape[0]} kv heads, got {describe(score)}"
        )
    return to_numpy(rule.chosen(score)).astype(np.int64)


def folded(cache: Any, g: int, seq: CachedSequence, k: Array) -> Any:
    """What a policy has noted of the stored keys k (Hkv, S, D), the last step included."""
    table, rule = seq.state.tables[g], cache.groups[g].retention
    if table.policy_state is None:
        return None
    policy, spec = getattr(rule, "policy", None), cache.layers[cache.groups[g].layers[0]]
    table.policy_state.folding = table.policy_state.folded(policy, spec, k, table.freed)
    return table.policy_state.folding


def decoded(cache: Any, g: int, seq: CachedSequence) -> tuple[Array, Array]:
    """What the first layer of a group holds: k (Hkv, S, Dk), v (Hkv, S, Dv), decoded."""
    layer, table = cache.groups[g].layers[0], seq.state.tables[g]
    n = seq.length - table.freed  # none wait: such a codec doesn't go with the rules in question
    return cache.store(table, layer).decoded(table.pages, None, n, n, as_view=cache.in_rows)


def take_out(
    cache: Any,
    table: Table,
    ask: Ask,
    move: Move,
    new: Sequence[int] | None = None,
    own: dict[int, Store] | None = None,
) -> None:
    """Move the tokens that stay together: into the pages `new`, or within their own."""
    stay: Any = move.kept_slots
    positions = table.positions(ask.length)
    for layer in cache.groups[move.group].layers:
        store = target = cache.store(table, layer)
        start = first_changed(stay)
        if new is not None:
            target, start = (own or cache.stores)[layer], (move.copy_from or 0) * store.size
        page = start // store.size
        which, at = stay[..., start:] - page * store.size, start - page * store.size
        slots = table.pages[page:], which, table.pages[page:] if new is None else new, at
        both = zip(store.both, target.both, strict=True)
        copied = sum(gather_into(mine, other, *slots) for mine, other in both)
        report("move", copied=copied)
    if table.policy_state is not None:
        table.policy_state.commit(ask.length, stay)
    table.kept_positions, table.freed_at = positions_of(stay, positions), ask.length
    table.freed = move.freed


def observe_queries(cache: Any, layer: int, q: Array, lse: Array, step: Step) -> None:
    """Show the queries of a step, and their lse, to the policy of a layer that has one."""
    policy = getattr(cache.groups[cache.group_of[layer]].retention, "policy", None)
    if policy is None or policy.queries == 0:  # only a Scored has one
        return
    q = cache.xp.asarray(q, copy=True)  # until the next plan; the caller may reuse the array
    for i, table in enumerate(cache.placement(layer, step).tables):
        a, b = step.qo_indptr[i], step.qo_indptr[i + 1]
        if table.policy_state is None:
            table.policy_state = PolicyState(policy.by_token)
        table.policy_state.record(q[a:b, ...], lse[a:b, ...], step.seq_lens[i] - b + a)


def gather_into(
    fields: Fields,
    other: Fields,
    pages: Sequence[int],
    which: np.ndarray,
    target: Sequence[int],
    at: int,
) -> int:
    """Copy tokens `which` (n,) or (Hkv, n), each written alone, to slot `at`; gives bytes."""
    if not which.size:
        return 0
    xp, n, room = fields.xp, which.shape[-1], len(pages) * fields.size
    slots = which + room * np.arange(fields.heads)[:, None]  # (Hkv, n), counted over all heads
    index, found = xp.asarray(slots.reshape(-1), dtype=xp.int64), {}
    for name, x in fields.gather(pages, room).items():
        x = xp.take(xp.reshape(x, (fields.heads * room, *x.shape[2:])), index, axis=0)
        found[name] = xp.reshape(x, (fields.heads, n, *x.shape[1:]))
    return other.put(target, at, found)
