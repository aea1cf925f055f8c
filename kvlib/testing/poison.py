"""Fill memory that holds nothing with NaN, so that reading it shows."""

from __future__ import annotations

from typing import Any

from kvlib.arrays import Array
from kvlib.caches import Cache
from kvlib.caches.store import Store
from kvlib.caches.stored_bytes import filled_pages


def poison_all(cache: Cache) -> None:
    """NaN in every floating array of a cache that holds nothing yet."""
    for x in cache.storage():
        fill(cache, x)


def poison_unused(cache: Cache) -> None:
    """Overwrite with NaN what belongs to no token, where the test can know that."""
    if cache.groups:
        _poison_pages(cache)


def _poison_pages(cache: Any) -> None:
    """Every slot that no request holds and no lookup can find; of codes their scales."""
    filled: dict[int, dict[int, int]] = {}  # store → page → stored tokens, whichever group has it
    for g, group in enumerate(cache.groups):
        for layer in group.layers:
            filled.setdefault(id(cache.stores[layer]), {}).update(filled_pages(cache, g))
    found = cache.pool.index if cache.block_size is not None else ()
    for store in dict.fromkeys(cache.stores):
        held = filled[id(store)]
        live = {page: held.get(page, 0) for page in range(store.keys.pages) if page not in found}
        _poison_behind(cache, store, live)
    for request in cache._requests.values():
        for table in request.state.tables:
            for store in (table.own or {}).values():
                _poison_behind(cache, store, {0: cache.held(request) - table.gone})
        for layer, residual in enumerate(request.state.residuals):
            waiting = request.length - cache.coded_in(layer, request)
            for x in residual.both:
                fill(cache, x[:, waiting:, :])


def _poison_behind(cache: Any, store: Store, live: dict[int, int]) -> None:
    """What lies behind the live tokens of some pages. live: page → tokens of it that are."""
    empty = _runs([page for page, tokens in live.items() if not tokens])
    begun = [(page, tokens) for page, tokens in live.items() if 0 < tokens < store.size]
    if store.keys.bounds is not None:
        for page in (page for page, tokens in live.items() if tokens < store.size):
            store.keys.bounds.array[page, ...] = float("nan")
    for fields in store.both:
        for name, field in fields.fields.items():
            x = fields.arrays[name]
            if cache.xp.isdtype(x.dtype, "real floating"):
                for first, last in empty:
                    x[first:last, ...] = float("nan")
                for page, tokens in begun:
                    x[page, :, -(-tokens // field.per) :, ...] = float("nan")


def _runs(pages: list[int]) -> list[tuple[int, int]]:
    """Pages in order as runs of neighbours, each (first, one past the last)."""
    found: list[tuple[int, int]] = []
    for page in pages:
        if found and found[-1][1] == page:
            found[-1] = (found[-1][0], page + 1)
        else:
            found.append((page, page + 1))
    return found


def fill(cache: Cache, x: Array) -> None:
    """NaN in one array of the cache, if it is floating."""
    if cache.xp.isdtype(x.dtype, "real floating"):
        x[...] = float("nan")
