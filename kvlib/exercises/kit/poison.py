"""Make memory that holds nothing poisonous: NaN, so that whoever reads it is caught."""

from __future__ import annotations

from kvlib.arrays import Array
from kvlib.caches import Cache, DenseCache, PagedCache
from kvlib.caches.stored import StoredCache


def poison_all(cache: Cache) -> None:
    """NaN in every floating array of a cache that holds nothing yet."""
    for x in cache.storage():
        fill(cache, x)


def poison_unused(cache: Cache) -> None:
    """Overwrite with NaN what belongs to no token, where the test can know that."""
    if isinstance(cache, StoredCache):
        _poison_pages(cache)
        return
    if not isinstance(cache, DenseCache):
        return
    rows = {request.place: request.length for request in cache._requests.values()}
    for x in cache.storage():
        for row in range(cache.max_seqs):
            fill(cache, x[row, :, rows.get(row, 0) :, :])


def _poison_pages(cache: StoredCache) -> None:
    """Every slot that no request holds and no lookup can find; of codes their scales."""
    filled = cache._filled()
    found = cache.pool.index if isinstance(cache, PagedCache) else ()
    for store in cache.stores:
        for fields in store.both:
            for name, field in fields.fields.items():
                for page in range(fields.arrays[name].shape[0]):
                    if page not in found:
                        first = -(-filled.get(page, 0) // field.per)
                        fill(cache, fields.arrays[name][page, :, first:, ...])
    for request in cache._requests.values():
        for tail in request.place.tails:
            for x in (tail.k, tail.v) if tail is not None else ():
                if x is not None:
                    fill(cache, x[:, request.length - request.place.coded :, :])


def fill(cache: Cache, x: Array) -> None:
    """NaN in one array of the cache, if it is floating."""
    if cache.xp.isdtype(x.dtype, "real floating"):
        x[...] = float("nan")
