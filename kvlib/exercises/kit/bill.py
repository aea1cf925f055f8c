"""Whether a cache's ``memory()`` says what its arrays and its codec say."""

from __future__ import annotations

from collections import Counter

from kvlib.arrays import nbytes
from kvlib.caches import Cache
from kvlib.caches.stored import StoredCache


def check_bill(cache: Cache) -> None:
    """Raise AssertionError, in words, for bytes that do not add up or are not what they are called.

    Of a cache with a codec, payload must be what the fields that the codec marks as payload hold of
    live tokens, with the tokens that wait.
    """
    memory = cache.memory()
    arrays = sum(nbytes(x) for x in cache.storage())
    assert memory.reserved == arrays, (
        f"memory() says that {memory.reserved:,} bytes are reserved, and the arrays of "
        f"storage() have {arrays:,}"
    )
    parts = (memory.payload, memory.metadata, memory.wasted, memory.free)
    assert sum(parts) == memory.reserved and min(parts) >= 0, f"bytes that do not add up: {memory}"
    if isinstance(cache, StoredCache):
        check_marks(cache)
        found = payload(cache)
        assert memory.payload == found, (
            f"memory() says that {memory.payload:,} bytes are payload, and the fields that the "
            f"codec marks as payload hold {found:,} of live tokens"
        )


def check_marks(cache: StoredCache) -> None:
    """A codec whose fields are all metadata would report caches without a key in them."""
    for store in cache.stores:
        for fields in store.both:
            if not any(field.payload for field in fields.fields.values()):
                names = ", ".join(fields.fields)
                raise AssertionError(
                    f"{fields.codec!r} marks no field as payload ({names}): leave payload=False "
                    "out of the Field that holds the keys or values themselves"
                )


def payload(cache: StoredCache) -> int:
    """Bytes of live tokens in fields marked as payload, counted from the requests' own pages."""
    size, held = cache.page_size, dict[int, int]()
    for request in cache._requests.values():
        place = request.place
        tokens = place.coded if cache.codec.waits else request.length
        for n, page in enumerate(place.pages):
            held[page] = max(held.get(page, 0), min(size, tokens - n * size))
    alike, found = Counter(n for n in held.values() if n > 0), 0
    for store in cache.stores:
        for fields in store.both:
            marked = [(fields.arrays[n], f.per) for n, f in fields.fields.items() if f.payload]
            for tokens, pages in alike.items():
                found += sum(pages * nbytes(x[0, :, : -(-tokens // per), ...]) for x, per in marked)
    for request in cache._requests.values():
        waiting = request.length - request.place.coded
        for tail in request.place.tails:
            if tail is not None:
                kept = [x for x in (tail.k, tail.v) if x is not None]
                found += sum(nbytes(x[:, :waiting, :]) for x in kept)
    return found
