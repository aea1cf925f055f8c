"""Keeping a path of a tree of guesses: its tokens move together, and the rest is given back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvlib.caches.layers import StoredLayers
from kvlib.caches.step import Request
from kvlib.meter import report


def check_trees(cache: StoredLayers) -> None:
    """Refuse trees where a policy scores tokens by what all queries of a step saw."""
    for group in cache.groups:
        policy: Any = getattr(group.retention, "policy", None)
        if policy is not None and policy.queries != 0:
            raise ValueError(
                f"parents must be left out: {group.retention!r} of layer {group.layers[0]} scores "
                "tokens by the attention that they get, and the queries of wrong guesses would "
                "count; verify a chain of guesses, or use a rule that does not watch queries"
            )


def keep(cache: StoredLayers, request: Request, path: Sequence[int]) -> None:
    """What `Cache.keep` asks of a cache of pages and residuals; the path has been checked."""
    state, start, end = request.state, request.begun, request.begun + len(path)
    moved = next((i for i, number in enumerate(path) if number != i), len(path))
    coded = max(state.coded, cache.codec.coded(end))
    if cache.codec.waits:
        _keep_waiting(cache, request, path, coded)
    elif moved < len(path):
        _move(cache, request, start + moved, [start + number for number in path[moved:]])
    if len(state.tokens) == request.length:
        state.tokens[start:] = [state.tokens[start + number] for number in path]
    cache.allocator.truncate(request, end)
    state.coded = state.before = coded
    state.start = end


def _move(cache: StoredLayers, request: Request, target: int, sources: Sequence[int]) -> None:
    """Tokens number `sources` of a request to number `target` and on, in all layers."""
    copied = 0
    for g, group in enumerate(cache.groups):
        table = request.state.tables[g]
        which, at = [number - table.gone for number in sources], target - table.gone
        for layer in group.layers:
            for fields in cache.store(table, layer).both:
                copied += fields.close_up(table.pages, which, at)
    report("keep", copied=copied)


def _keep_waiting(cache: StoredLayers, request: Request, path: Sequence[int], coded: int) -> None:
    """The same where new tokens wait to be encoded: what is due is encoded now."""
    state, start = request.state, request.begun
    waiting = start - state.coded
    which, written = [*range(waiting), *(waiting + number for number in path)], 0
    for layer, residual in enumerate(state.residuals):
        table = state.tables[cache.group_of[layer]]
        counted = state.coded - table.gone, coded - table.gone
        written += cache.store(table, layer).keep(table.pages, residual, which, counted)
    report("keep", written=written)
