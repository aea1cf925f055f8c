"""The bytes of a StoredCache, measured from its arrays and counted by what they are for."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from kvlib.arrays import nbytes
from kvlib.caches.allocation.table import Table
from kvlib.caches.retention.base import first_kept
from kvlib.caches.retention.rules import KeepAll
from kvlib.caches.spec import Memory


def memory_of(cache: Any) -> Memory:
    """Return the bytes that a cache holds, measured from its arrays."""
    payload = metadata = claimed = 0
    for g, group in enumerate(cache.groups):
        filled = filled_pages(cache, g)
        live = _live(cache, g, filled)
        for layer in group.layers:
            store = cache.stores[layer]
            parts = [(store, tokens, pages) for tokens, pages in live.items()]
            claimed += len(filled) * store.nbytes(store.size)
            if store.keys.bounds is not None:  # of blocks that are full
                full = sum(tokens == store.size for tokens in filled.values())
                metadata += store.keys.bounds.nbytes(full)
                claimed += store.keys.bounds.nbytes(len(filled))
            for table, first, held in _tables(cache, g):
                if table.private_row is not None:
                    row = table.private_row[layer]
                    parts.append((row, max(0, held - first), 1))
                    claimed += row.nbytes(row.size) + store.nbytes(store.size)
            for store, tokens, pages in parts:
                for tensor in store.tensors:
                    numbers, scales = tensor.payload_and_metadata(tokens)
                    payload += pages * numbers
                    metadata += pages * scales
    for seq in cache._sequences.values():
        for layer, residual in enumerate(seq.state.residuals):
            claimed += sum(nbytes(x) for x in residual.arrays())
            rule = cache.groups[cache.group_of[layer]].retention
            seen = max(seq.state.num_paged, first_kept(rule, max(0, seq.length - 1)))
            payload += sum(nbytes(x[:, : seq.length - seen, :]) for x in residual.waiting)
    reserved = sum(nbytes(x) for x in cache.storage())
    return Memory(payload, metadata, reserved, wasted=claimed - payload - metadata)


def filled_pages(cache: Any, g: int) -> dict[int, int]:
    """Return page → how many tokens it holds, for the tables of a group; a shared page once."""
    filled: dict[int, int] = {}
    size = cache.stores[cache.groups[g].layers[0]].size
    for table, _, held in _tables(cache, g):
        if table.private_row is None:
            full = min(held // size, len(table.pages))
            filled.update(dict.fromkeys(table.pages[:full], size))
            for n, page in enumerate(table.pages[full:], full):
                filled[page] = max(filled.get(page, 0), max(0, held - n * size))
    return filled


def _live(cache: Any, g: int, filled: dict[int, int]) -> Counter[int]:
    """Return how many pages of a group have how many live tokens; shared ones count once."""
    if isinstance(cache.groups[g].retention, KeepAll):
        # Most pages are full: they are counted, and not looked at one by one.
        return Counter(filled.values())
    live: dict[int, set[int]] = {page: set() for page in filled}
    size = cache.stores[cache.groups[g].layers[0]].size
    for table, first, held in _tables(cache, g):
        if table.private_row is None:
            for n, page in enumerate(table.pages):
                live[page].update(range(max(0, first - n * size), min(size, held - n * size)))
    return Counter(len(slots) for slots in live.values())


def _tables(cache: Any, g: int) -> Iterator[tuple[Table, int, int]]:
    """Yield each table of a group, the first stored token that is live, and how many it holds."""
    for seq in cache._sequences.values():
        table, first = seq.state.tables[g], 0
        if table.kept_positions is None:  # live: seen by the newest query
            first = first_kept(cache.groups[g].retention, max(0, seq.length - 1)) - table.freed
        yield table, max(0, first), seq.state.num_paged - table.freed
