"""Mutants of the pool, of prefixes, and of who may write into which block. See museum.py."""

from mutation_kind import Bug, Mutant

BLOCKS, PREFIXES = "kvlib.caches.allocation.pool", "kvlib.caches.allocation.prefixes"
PAGING, SHARING = "kvlib.caches.allocation.blocks", PREFIXES
RADIX = "kvlib.caches.allocation.radix"
STORED = "kvlib.caches.stored"


def blank_at_once(free, pool, blocks):
    free(pool, blocks)
    for block in blocks:
        if block in pool._free_published:
            del pool._free_published[block]
            pool._free_blank[block] = None


def beginning_first(free, pool, blocks):
    free(pool, blocks)
    for block in blocks:
        for queue in (pool._free_blank, pool._free_published):
            if block in queue:
                queue.move_to_end(block)


def freed_by_the_first(free, pool, blocks):
    for block in blocks:
        pool._ref_counts[block] = min(1, pool._ref_counts[block])
    free(pool, blocks)


def taken_and_still_blank(allocate, pool, count):
    taken = allocate(pool, count)
    pool._free_blank.update(dict.fromkeys(taken[-1:]))
    return taken


def first_token_believed(get, index, content):
    after, tokens, extra = content
    known = index._children.get(extra if after is None else after, {}).get(tokens[0], {})
    return next(iter(known.values())) if len(known) == 1 else get(index, content)


def any_parent(same, index, key, content):
    found = (block for block, known in index._content.items() if known[1:] == content[1:])
    return next(found, None)


def found_and_let_go(take, sharing, tokens, extra):
    held, tables, node = take(sharing, tokens, extra)
    for table in tables:
        sharing.pool.free(table.pages)
    return held, tables, node


def one_block_kept(truncate, blocks, state, length):
    truncate(blocks, state, length + 1)
    del state.tokens[length:]
    blocks.sharing.truncate(state, length // blocks.size)


def tokens_kept(truncate, blocks, state, length):
    before = list(state.tokens)
    truncate(blocks, state, length)
    state.tokens = before


def published_at_once(reserve, cache, requests, q_lens, tokens):
    states = reserve(cache, requests, q_lens, tokens)
    if cache.block_size is not None:
        for state in states:
            cache.allocator.sharing.publish(state, len(state.tokens))
    return states


def published_with_older_codes(final_length, cache, seq):
    return seq.state.undo_length if seq.next_gap() is not None else final_length(cache, seq)


def published_uncoded(final_length, cache, seq):
    return final_length(cache, seq) if seq.next_gap() is not None else seq.length


def shared_is_writable(copies_on_write, blocks, table, *asked):
    return copies_on_write(blocks, table, *asked) and table.pages[-1] in blocks.pool.index


def published_is_writable(copies_on_write, blocks, table, *asked):
    copies = copies_on_write(blocks, table, *asked)
    return copies and blocks.pool.ref_count(table.pages[-1]) > 1


MUTANTS = [
    # Who holds which block
    Bug("a freed block is blank and still findable", BLOCKS, "BlockPool.free", blank_at_once,
        "pool_and_its_model"),
    Bug("the beginning of a prefix goes first", BLOCKS, "BlockPool.free", beginning_first,
        "pool_and_its_model"),
    Mutant("useful prefixes go before blank blocks", BLOCKS, "BlockPool.allocate",
           "if self._free_blank:", "if self._free_blank and not self._free_published:",
           "pool_and_its_model"),
    Bug("a shared block is freed with its first holder", BLOCKS, "BlockPool.free",
        freed_by_the_first, "pool_and_its_model"),
    Bug("two caches on one pool", BLOCKS, "BlockPool.claim", lambda *_: None, "shared_prefixes"),
    Bug("two requests are given one block", BLOCKS, "BlockPool.allocate", taken_and_still_blank,
        "pool_and_its_model"),
    Bug("found blocks are not held", SHARING, "PrefixSharing.reuse", found_and_let_go,
        "shared_prefixes"),
    Bug("truncation keeps a block", PAGING, "Blocks.truncate", one_block_kept,
        "shared_prefixes"),
    # Which text a block belongs to
    Bug("a first token is believed", RADIX, "RadixIndex._get", first_token_believed,
        "pool_and_its_model"),
    Bug("a block is known without those before it", PREFIXES, "HashIndex._same", any_parent,
        "pool_and_its_model"),
    Bug("tenants share", BLOCKS, "BlockPool.lookup",
        lambda lookup, pool, tokens, extra=(): lookup(pool, tokens), "pool_and_its_model"),
    Bug("tenants share a cache's blocks", SHARING, "PrefixSharing.reuse",
        lambda take, sharing, tokens, extra: take(sharing, tokens, ()), "shared_prefixes"),
    Bug("published before the step is safe", STORED, "StoredCache._reserve", published_at_once,
        "shared_prefixes"),
    Bug("an unfinished pass is published", STORED, "StoredCache.final_length",
        lambda final_length, cache, seq: seq.state.num_paged, "shared_prefixes"),
    Bug("codes of an unfinished pass are published", STORED, "StoredCache.final_length",
        published_with_older_codes, "shared_codes"),
    Bug("published before it is encoded", STORED, "StoredCache.final_length", published_uncoded,
        "shared_codes"),
    Bug("tokens outlive their truncation", PAGING, "Blocks.truncate", tokens_kept,
        "shared_prefixes"),
    # Writing
    Bug("a shared block is written to", PAGING, "Blocks._copies_on_write", shared_is_writable,
        "shared_prefixes"),
    Bug("a published block is written to", PAGING, "Blocks._copies_on_write", published_is_writable,
        "shared_prefixes"),
]  # fmt: skip
