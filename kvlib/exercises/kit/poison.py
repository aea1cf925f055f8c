"""Make memory that holds nothing poisonous: NaN, so that whoever reads it is caught."""

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
        for page in range(store.keys.pages):
            if page not in found:
                _poison_behind(cache, store, page, filled[id(store)].get(page, 0))
    for request in cache._requests.values():
        for table in request.state.tables:
            for store in (table.own or {}).values():
                _poison_behind(cache, store, 0, cache.held(request) - table.gone)
        for residual in request.state.residuals:
            for x in residual.both if residual is not None else ():
                fill(cache, x[:, request.length - request.state.coded :, :])


def _poison_behind(cache: Any, store: Store, page: int, tokens: int) -> None:
    """What lies behind so many tokens of a page."""
    for fields in store.both:
        for name, field in fields.fields.items():
            fill(cache, fields.arrays[name][page, :, -(-tokens // field.per) :, ...])


def fill(cache: Cache, x: Array) -> None:
    """NaN in one array of the cache, if it is floating."""
    if cache.xp.isdtype(x.dtype, "real floating"):
        x[...] = float("nan")
