"""NaN in a cache's memory that holds no token, and a second count of its bytes."""

from collections import Counter
from typing import Any

import numpy as np

from kvlib.arrays import Array, nbytes
from kvlib.caches import Cache
from kvlib.caches.store import Store
from kvlib.caches.stored_bytes import filled_pages


def poison_all(cache: Cache) -> None:
    """Write NaN to every floating array of a cache that holds nothing yet."""
    for x in cache.storage():
        fill(cache, x)


def fill(cache: Cache, x: Array) -> None:
    """Write NaN to one array of the cache, if it is floating."""
    if cache.xp.isdtype(x.dtype, "real floating"):
        x[...] = float("nan")


def poison_unused(cache: Any) -> None:
    """Write NaN to each slot of kvlib's caches that no request holds and no lookup can find."""
    if not cache.groups:
        return
    filled: dict[int, dict[int, int]] = {}  # store → page → stored tokens, whichever group has it
    for g, group in enumerate(cache.groups):
        for layer in group.layers:
            filled.setdefault(id(cache.stores[layer]), {}).update(filled_pages(cache, g))
    found = cache.pool.index if cache.block_size is not None else ()
    for store in dict.fromkeys(cache.stores):
        held = filled[id(store)]
        live = {page: held.get(page, 0) for page in range(store.keys.pages) if page not in found}
        _poison_after(cache, store, live)
    for seq in cache._sequences.values():
        for table in seq.state.tables:
            for store in (table.private_row or {}).values():
                _poison_after(cache, store, {0: seq.state.num_paged - table.freed})
        for layer, residual in enumerate(seq.state.residuals):
            waiting = seq.length - cache.num_paged_in(layer, seq)
            for x in residual.waiting:
                fill(cache, x[:, waiting:, :])


def _poison_after(cache: Any, store: Store, live: dict[int, int]) -> None:
    """Write NaN after the live tokens of some pages. live: page → how many of its tokens are."""
    empty: list[tuple[int, int]] = []  # runs of empty pages: the first, one past the last
    for page in (page for page, tokens in live.items() if not tokens):
        if empty and empty[-1][1] == page:
            empty[-1] = empty[-1][0], page + 1
        else:
            empty.append((page, page + 1))
    begun = [(page, tokens) for page, tokens in live.items() if 0 < tokens < store.size]
    if store.keys.bounds is not None:
        for page in (page for page, tokens in live.items() if tokens < store.size):
            store.keys.bounds.array[page, ...] = float("nan")
    for tensor in store.tensors:
        for name, field in tensor.fields.items():
            x = tensor.arrays[name]
            if cache.xp.isdtype(x.dtype, "real floating"):
                for first, last in empty:
                    x[first:last, ...] = float("nan")
                for page, tokens in begun:
                    x[page, :, -(-tokens // field.per) :, ...] = float("nan")


def check_bill(cache: Cache) -> None:
    """Raise AssertionError if ``memory()`` disagrees with the arrays or with a second count."""
    memory = cache.memory()
    arrays = sum(nbytes(x) for x in cache.storage())
    assert memory.reserved == arrays, (
        f"memory() says that {memory.reserved:,} bytes are reserved, but the arrays of "
        f"storage() have {arrays:,} bytes"
    )
    parts = (memory.payload, memory.metadata, memory.wasted, memory.free)
    assert sum(parts) == memory.reserved and min(parts) >= 0, f"the bytes do not add up: {memory}"
    counted = _live_bytes(cache) if cache.groups else {}
    for kind, needed in counted.items():
        said = getattr(memory, kind)
        assert said == needed, (
            f"memory() says that {said:,} bytes are {kind}, but the fields that the "
            f"codec marks as {kind} hold {needed:,} bytes of live tokens"
        )


def _live_bytes(cache: Any) -> dict[str, int]:
    """Count payload and metadata of live tokens again, from the requests' own pages."""
    counted = {"payload": 0, "metadata": 0}
    for layer in range(len(cache.layers)):
        live: dict[tuple[int, int], set[int]] = {}  # store, page → live tokens in it
        for name, seq in cache._sequences.items():
            table = seq.state.tables[cache.group_of[layer]]
            store = cache.store(table, layer)
            positions = np.atleast_2d(table.positions(seq.length))[0]  # every head has as many
            rule = cache.groups[cache.group_of[layer]].retention
            first = 0 if rule.holes else rule.first(max(0, seq.length - 1))
            in_pages = seq.state.num_paged
            owner, size = id(name if table.private_row else cache), store.size
            for n in np.flatnonzero((first <= positions) & (positions < in_pages)).tolist():
                live.setdefault((owner, table.pages[n // size]), set()).add(n % size)
            residual = seq.state.residual(layer)
            if residual is not None:
                waiting = seq.length - max(in_pages, first)
                counted["payload"] += sum(nbytes(x[:, :waiting, :]) for x in residual.waiting)
        store = cache.stores[layer]
        if store.keys.bounds is not None:
            filled = filled_pages(cache, cache.group_of[layer]).values()
            counted["metadata"] += store.keys.bounds.nbytes(list(filled).count(store.size))
        pages_by_tokens = Counter(len(tokens) for tokens in live.values())
        for tensor in store.tensors:
            assert any(field.payload for field in tensor.fields.values()), (
                f"{tensor.codec!r} marks no field as payload ({', '.join(tensor.fields)}): leave "
                "payload=False out of the Field that holds the keys or values themselves"
            )
            for name, field in tensor.fields.items():  # rows of requests have as many bytes
                each = nbytes(tensor.arrays[name][0, :, :1, ...])
                counted["payload" if field.payload else "metadata"] += sum(
                    pages * each * -(-n // field.per) for n, pages in pages_by_tokens.items()
                )
    return counted
