"""Keeping guesses that are right: the path of a tree moves together, a chain is cut after them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvlib.arguments import describe
from kvlib.caches.layers import StoredLayers
from kvlib.caches.residual import GUESSES
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


def coded_after(cache: StoredLayers, request: Request, length: int) -> tuple[int, int | None]:
    """How many tokens are codes after a cut to `length`, where some wait to be encoded.

    The second number is None if nothing of the last step is undone; else it says which token is the
    first of those that waited before it (`Residual.go_back`). Raises ValueError for a length at
    which a group would be cut that is encoded for good.
    """
    state, group, gap = request.state, cache.codec.group, cache._gap(request)
    short = request.length - state.start <= GUESSES  # then the step's own tokens have been kept
    back = request.length if short else state.start
    if state.before <= length <= back:
        due = cache.codec.coded(length if gap is None else min(gap, length))
        return max(state.before, due), state.before
    if length < state.coded and length % group:
        spans = dict.fromkeys(((state.before, back), (state.coded, request.length)))
        others = " and to ".join(f"{a} ... {b}" for a, b in spans)
        raise ValueError(
            f"request {describe(request.name)} cannot go back to {length} tokens: "
            f"{cache.codec.made_by} has encoded the first {state.coded} in groups of {group}; "
            f"it can to multiples of {group}, and to {others}"
        )
    return min(cache.settled(request), length), None
