"""Taking tokens out from between others, for rules that leave holes."""

from __future__ import annotations

import numpy as np

from kvlib.caches.layers import StoredLayers
from kvlib.caches.step import Request
from kvlib.meter import report


def staying(cache: StoredLayers, g: int, request: Request) -> np.ndarray | None:
    """Which stored tokens of a group stay: their numbers (n,), or None where all do."""
    table, rule = request.state.tables[g], cache.groups[g].retention
    if cache.kept_by(request) < request.length:  # it can still be taken back to before a gap
        return None
    positions = table.positions(request.length)
    if not len(positions):
        return None
    stays = np.asarray(rule.kept(positions, request.length))
    if stays.shape != positions.shape or stays.dtype != bool:
        raise ValueError(
            f"kept of {rule!r} must give one boolean for each of {len(positions)} tokens, got "
            f"{stays.dtype} of shape {stays.shape}"
        )
    return None if stays.all() else np.flatnonzero(stays)


def take_out(
    cache: StoredLayers,
    g: int,
    request: Request,
    stay: np.ndarray,
    pages: list[int] | None = None,
) -> None:
    """Move the tokens that stay together.

    stay: their numbers, from `staying`. pages: those they are moved into, from the first page that
    changes on; its own unless given.
    """
    table = request.state.tables[g]
    positions = table.positions(request.length)
    changed = first_changed(stay)
    for layer in cache.groups[g].layers:
        store = cache.stores[layer]
        page = changed // store.size
        start = page * store.size if pages is not None else changed
        which = [int(i) - page * store.size for i in stay[start:]]
        target = table.pages[page:] if pages is None else pages
        copied = store.gather_into(table.pages[page:], which, target, start - page * store.size)
        report("move", copied=copied)
    table.kept, table.since = positions[stay], request.length
    table.gone = request.length - len(stay)


def first_changed(stay: np.ndarray) -> int:
    """The first place in which another token will lie."""
    same = stay == np.arange(len(stay))
    return len(stay) if same.all() else int(np.argmin(same))
