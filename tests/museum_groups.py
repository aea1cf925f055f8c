"""Mutants of groups of layers: windows that give back, nodes, holes, bytes. See museum.py."""

from collections import Counter
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
from mutation_kind import Bug

from kvlib.caches.retention.rules import KeepAll

STORED = "kvlib.caches.stored"
ROWS, BLOCKS = "kvlib.caches.allocation.rows", "kvlib.caches.allocation.blocks"
TABLE = "kvlib.caches.allocation.table"
SHARING, STORE = "kvlib.caches.allocation.prefixes", "kvlib.caches.store"
BYTES = "kvlib.caches.stored_bytes"


@contextmanager
def nothing_gone(cache):
    """Inside, every table says that all of its tokens are still there."""
    tables = [t for seq in cache._sequences.values() for t in seq.state.tables]
    gone = [table.freed for table in tables]
    try:
        for table in tables:
            table.freed = 0
        yield
    finally:
        for table, n in zip(tables, gone):
            table.freed = n


def absolute_lengths(init, placement, tables, seq_lens, *rest):
    init(placement, tables, seq_lens, *rest)
    placement.stored_lens = list(seq_lens)


def from_the_start(function, cache, *args, **settings):
    with nothing_gone(cache):
        return function(cache, *args, **settings)


def to_the_end_of_the_text(attend_one, cache, layer, q, step, *more):
    placement = cache.placement(layer, step)
    with patch.object(placement, "stored_lens", list(step.seq_lens)):
        return attend_one(cache, layer, q, step, *more)


def one_block_early(move, blocks, ask, *asked):
    found = move(blocks, ask, *asked)
    gone = found.freed + blocks.size
    if not found.freed_pages or gone > ask.length:
        return found
    return found._replace(freed=gone, freed_pages=found.freed_pages + 1)


def not_moved_back(leave, cache, state, ask, move, own):
    table = state.tables[move.group]
    if table.private_row is None or own is not None or move.kept_ranks is not None:
        return leave(cache, state, ask, move, own)
    table.pages, table.private_row = [state.row], None
    table.freed, table.freed_at = move.freed, ask.final_length


def longer_row_shared(copy, cache, source, seq_id):
    seq = copy(cache, source, seq_id)
    for new, old in zip(seq.state.tables, source.state.tables):
        new.private_row = old.private_row
    return seq


def one_block_for_two_groups(reserve, cache, *asked):
    states = reserve(cache, *asked)
    for state in states if cache.block_size is not None else ():
        first, *others = state.tables
        for table in others:
            table.pages[-1] = first.pages[-1]
    return states


def one_block_too_few(take, sharing, tokens, extra):
    held, tables, node = take(sharing, tokens, extra)
    for table in tables:
        if table.freed and table.pages:
            sharing.pool.free([table.pages.pop(0)])
            table.freed += sharing.pool.block_size
    return held, tables, node


def forgotten(prune, index, node):
    if node is not None and not index._blocks[node]:
        index._node_refs[node] = 0
    prune(index, node)


def behind_the_node_before(node, index, parent, piece, extra):
    return node(index, None if parent is None else index.index.parent(parent), piece, extra)


def twin_of_the_first_group(block, index, node, group):
    return block(index, node, 0)


def needed_by_one_group(complete, index, nodes, end, g):
    return g > 0 or complete(index, nodes, end, g)


def pages_of_every_table(live, cache, g, filled):
    if not isinstance(cache.groups[g].retention, KeepAll):
        return live(cache, g, filled)
    held = [(r.state.num_paged, r.state.tables[g]) for r in cache._sequences.values()]
    size = cache.stores[cache.groups[g].layers[0]].size
    return Counter(
        min(size, max(0, n - at * size))
        for n, table in held
        if table.private_row is None
        for at in range(len(table.pages))
    )


def moved_in_place(move, blocks, ask, g, copied):
    found, pages = move(blocks, ask, g, copied), len(ask.tables[g].pages)
    if found.kept_ranks is None:
        return found
    needed = -(-found.kept_ranks.shape[-1] // blocks.size)
    return found._replace(copy_from=None, copy_pages=0, spare_pages=pages - needed)


MUTANTS = [
    # What a window gives back
    Bug("a window gives back one token too many", "kvlib.caches.retention.rules", "Window.first",
        lambda first, rule, length: (n := first(rule, length)) + (n > 0), "any_schedule"),
    Bug("a window gives back one block too early", BLOCKS, "Blocks._move", one_block_early,
        "windows_give_back"),
    Bug("a window gives back what an unfinished pass may need", STORED, "StoredCache.final_length",
        lambda final_length, cache, seq: seq.length, "windows_give_back"),
    Bug("a block that is given back is not freed", BLOCKS, "Blocks.free", lambda *_: None,
        "windows_give_back"),
    Bug("append counts tokens that are gone", STORED, "StoredCache.append", from_the_start,
        "windows_give_back"),
    Bug("attention counts tokens that are gone", STORED, "StoredCache.attend_one",
        to_the_end_of_the_text, "windows_give_back"),
    Bug("a step's lengths count tokens that are gone", "kvlib.caches.step", "Placement.__init__",
        absolute_lengths, "any_schedule"),
    Bug("read counts tokens that are gone", STORED, "StoredCache._read", from_the_start,
        "windows_give_back"),
    Bug("a request goes back to keys that are gone", "kvlib.caches.undo", "check_truncate",
        lambda *_: None, "windows_give_back"),
    # Rows that are moved
    Bug("a longer row is not moved back", STORED, "StoredCache._copy_pages", not_moved_back,
        "any_schedule"),
    Bug("what stays is copied from the front of its row", STORE, "Store.move",
        lambda move, mine, other, origin, target, first, tokens: move(
            mine, other, origin, target, 0, tokens
        ), "any_schedule"),
    # Nobody writes into a longer row, so only the bytes say that two requests hold one.
    Bug("a fork shares the longer row", STORED, "StoredCache._copy", longer_row_shared,
        "windows_give_back"),
    # Groups that draw from one pool, and what is found
    Bug("two groups write to one block", STORED, "StoredCache._reserve", one_block_for_two_groups,
        "windows_give_back"),
    Bug("a window finds one block too few", SHARING, "PrefixSharing.reuse", one_block_too_few,
        "windows_give_back"),
    Bug("a prefix is found that the first group lacks", SHARING, "PrefixSharing._complete",
        needed_by_one_group, "windows_give_back"),
    Bug("a node is forgotten under a request", SHARING, "PrefixSharing._prune", forgotten,
        "windows_give_back"),
    Bug("a block is published behind the wrong node", SHARING, "PrefixSharing.find_or_add",
        behind_the_node_before, "shared_prefixes"),
    Bug("a twin of another group is taken", SHARING, "PrefixSharing.block", twin_of_the_first_group,
        "windows_give_back"),
    # Bytes
    Bug("memory counts tokens behind the window", BYTES, "_tables",
        lambda tables, cache, g: ((table, 0, held) for table, _, held in tables(cache, g)),
        "any_schedule"),
    Bug("memory counts shared pages twice", BYTES, "_live", pages_of_every_table,
        "shared_prefixes"),
    # Kernels
    Bug("kernels read the tables of layer 0", "kvlib.kernels.caches", "_CurrentStep.tables",
        lambda tables, last, cache, step, layer: tables(last, cache, step, 0),
        "kernels_find_their_tables"),
    # Holes
    Bug("positions of what stays are lost", TABLE, "Table.positions",
        lambda positions, table, length: np.arange(table.freed, length), "holes_keep_positions"),
    Bug("what stays is moved within shared blocks", BLOCKS, "Blocks._move", moved_in_place,
        "holes_keep_positions"),
]  # fmt: skip
