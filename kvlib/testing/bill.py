"""Whether a cache's ``memory()`` agrees with its arrays and its codec."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from kvlib.arrays import nbytes
from kvlib.caches import Cache


def check_bill(cache: Cache) -> None:
    """Raise AssertionError, in words, for bytes that do not add up or are not what they are called.

    Of a cache with a codec, payload must be what the fields that the codec marks as payload hold of
    live tokens, with the tokens that wait.
    """
    memory = cache.memory()
    arrays = sum(nbytes(x) for x in cache.storage())
    assert memory.reserved == arrays, (
        f"memory() says that {memory.reserved:,} bytes are reserved, but the arrays of "
        f"storage() have {arrays:,} bytes"
    )
    parts = (memory.payload, memory.metadata, memory.wasted, memory.free)
    assert sum(parts) == memory.reserved and min(parts) >= 0, f"the bytes do not add up: {memory}"
    if cache.groups:
        check_marks(cache)
        found = payload(cache)
        assert memory.payload == found, (
            f"memory() says that {memory.payload:,} bytes are payload, but the fields that the "
            f"codec marks as payload hold {found:,} bytes of live tokens"
        )


def check_marks(cache: Any) -> None:
    """A codec whose fields are all metadata would report caches without a key in them."""
    for store in cache.stores:
        for fields in store.both:
            if not any(field.payload for field in fields.fields.values()):
                names = ", ".join(fields.fields)
                raise AssertionError(
                    f"{fields.codec!r} marks no field as payload ({names}): leave payload=False "
                    "out of the Field that holds the keys or values themselves"
                )


def payload(cache: Any) -> int:
    """Bytes of live tokens in fields marked as payload, counted from the requests' own pages.

    A token is live while its layer's rule keeps it for the newest token of its request.
    """
    found = 0
    for layer in range(len(cache.layers)):
        live: dict[tuple[int, int], set[int]] = {}  # store, page → live tokens in it
        for name, request in cache._requests.items():
            table = request.state.tables[cache.group_of[layer]]
            store = cache.store(table, layer)
            positions = np.atleast_2d(table.positions(request.length))[0]  # every head has as many
            rule = cache.groups[cache.group_of[layer]].retention
            first = 0 if rule.holes else rule.first(max(0, request.length - 1))
            in_pages = request.state.coded if cache.codec.waits else request.length
            owner, size = id(name if table.own else cache), store.size
            for n in np.flatnonzero((first <= positions) & (positions < in_pages)).tolist():
                live.setdefault((owner, table.pages[n // size]), set()).add(n % size)
            residual = request.state.residual(layer)
            if residual is not None:
                waiting = request.length - max(in_pages, first)
                found += sum(nbytes(x[:, :waiting, :]) for x in residual.both)
        counts = Counter(len(tokens) for tokens in live.values())
        for fields in cache.stores[layer].both:
            marked = [(fields.arrays[n], f.per) for n, f in fields.fields.items() if f.payload]
            for tokens, pages in counts.items():
                # a row of the request's own has the same bytes a token
                found += sum(
                    pages * nbytes(x[0, :, :1, ...]) * -(-tokens // per) for x, per in marked
                )
    return found
