"""Sizes that no machine holds: refused in words that name the bytes, before anything grows."""

import resource
import time
import tracemalloc

import numpy as np
import pytest
from arguments_integers import drawn, model
from caches import refused

import kvlib
from kvlib import BlockPool, DenseCache, LayerSpec, PagedCache, QuantizedCache, caches, codecs
from kvlib.caches import layouts
from kvlib.model import random_weights

ONE, NARROW = LayerSpec(1, 64), LayerSpec(1, 64, window=8)
WIDE, WIDE_WINDOW = LayerSpec(1, 10**6), LayerSpec(1, 10**6, window=8)
HUGE = (10**9, 10**12, 10**18, 2**63 - 1)


def pool(blocks, size):
    return PagedCache([ONE], BlockPool(blocks, size), xp=np)


def grown(cache, tokens):
    cache.add("a")
    return cache.plan(["a"], [tokens])


def csr(columns):
    table = np.array([[3, 1], [7, 8]], np.int32)
    return layouts.from_csr(layouts.to_csr(table, [7, 8], 4), 4, columns)


# Each takes a size and would need 2^18 times as many bytes: for the least, more than 2^47, which no
# process can address, however freely its system promises memory.
SIZES = {
    "DenseCache max_seqs": lambda n: DenseCache([ONE], n, 10**4, xp=np),
    "DenseCache max_seq_len": lambda n: DenseCache([ONE], 10**4, n, xp=np),
    "DenseCache of both": lambda n: DenseCache([ONE], n, n, xp=np),
    "DenseCache of codes": lambda n: DenseCache([ONE], n, 10**4, codec="int8", xp=np),
    "QuantizedCache": lambda n: QuantizedCache([ONE], "kivi4", n, 32000, xp=np),
    "PagedCache num_blocks": lambda n: pool(n, 10**4),
    "PagedCache block_size": lambda n: pool(10**4, n),
    "PagedCache of both": lambda n: pool(n, n),
    "LayerSpec head_dim": lambda n: DenseCache([LayerSpec(1, n)], 8, 10**4, xp=np),
    "LayerSpec num_kv_heads": lambda n: DenseCache([LayerSpec(n, 64)], 8, 10**4, xp=np),
    "Decoder.new_cache": lambda n: model().new_cache(n, 10**4),
    "a residual": lambda n: DenseCache([WIDE], 1, 8, codec=codecs.int8(n), xp=np).add("a"),
    "a residual in blocks": lambda n: PagedCache(
        [WIDE], BlockPool(4, 4), codec=codecs.int8(n), xp=np
    ).add("a"),
    "a step beside a window": lambda n: grown(DenseCache([WIDE_WINDOW], 1, n, xp=np), n),
    "from_csr max_blocks": lambda n: csr(n * 10**6),
}  # fmt: skip


@pytest.mark.parametrize("size", HUGE)
@pytest.mark.parametrize("name", SIZES)
def test_what_no_machine_holds(name, size):
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises((MemoryError, ValueError), match="bytes are needed|must be an integer of"):
        SIZES[name](size)
    assert time.process_time() - start < 0.5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024  # kB


FINE = {
    "BlockPool num_blocks": lambda n: BlockPool(n, 4).allocate(3),
    "BlockPool block_size": lambda n: BlockPool(4, n).allocate(3),
    "Rows max_seqs": lambda n: caches.Rows(n, 4),
    "Window size": lambda n: caches.Window(n).room(100),
    "LayerSpec window": lambda n: DenseCache([LayerSpec(1, 8, window=n)], 1, 8, xp=np),
    "a window of rows": lambda n: grown(DenseCache([NARROW], 1, n, xp=np), 9).seq_lens,
    "attend_tiled tile": lambda n: kvlib.attention.attend_tiled(
        *[drawn(3, 1, 8)] * 3, np.arange(3), np.arange(3), tile=n, window=n
    ),
    "prefill_chunk": lambda n: kvlib.generate(
        model(), [[1, 2]], max_new_tokens=1, prefill_chunk=n, top_k=n
    ),
    "kivi group": lambda n: codecs.kivi(4, n).coded(10),
}


@pytest.mark.parametrize("size", HUGE)
@pytest.mark.parametrize("name", FINE)
def test_what_takes_no_memory(name, size):
    tracemalloc.start()
    try:
        FINE[name](size)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_a_request_that_finds_no_memory_leaves_its_row_and_blocks():
    """The residual of a request is allocated when it is opened."""
    codec = codecs.int8(10**12)
    for cache in (
        DenseCache([ONE], 2, 8, codec=codec, xp=np),
        PagedCache([ONE], BlockPool(4, 4), codec=codec, xp=np),
    ):
        words = "residual of a request: [0-9,]+ bytes"
        for _ in range(3):  # more often than there are rows
            refused(cache, MemoryError, words, lambda cache=cache: cache.add("a", [1, 2, 3]))


def test_a_step_that_finds_no_memory_changes_nothing():
    cache = DenseCache([NARROW], 1, 10**15, xp=np)
    step = grown(cache, 4)
    x = drawn(4, 1, 64)
    cache.append(0, x, x, step)
    refused(cache, MemoryError, "bytes are needed", lambda: cache.plan(["a"], [10**14]))
    assert cache.run(0, x, step).shape == x.shape and cache.plan(["a"], [4]).seq_lens == (8,)


def test_a_custom_cache_that_has_no_bound():
    class Boundless(kvlib.Cache):
        pass

    cache = Boundless([ONE], xp=np)
    cache.add("a")
    with pytest.raises(MemoryError):
        cache.plan(["a"], [10**14])
    assert cache.seq_len("a") == 0 and cache.plan(["a"], [2]).seq_lens == (2,)


def test_weights():
    config = model().config.__class__(
        model_type="llama", vocab_size=2**24, hidden_size=2**22, intermediate_size=8,
        num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1, head_dim=8,
        max_position_embeddings=8,
    )  # fmt: skip
    with pytest.raises(MemoryError, match="weights: [0-9,]+ bytes are needed"):
        random_weights(config, xp=np)


def test_rows_are_allocated_in_order():
    cache = DenseCache([ONE], 3, 8, xp=np)
    rows = []
    for name, gone in (("a", None), ("b", "a"), ("c", None), ("d", "b"), ("e", None)):
        if gone:
            cache.free(gone)
        cache.add(name)
        rows.append(cache._sequences[name].state.row)
    assert rows == [0, 0, 1, 0, 2]
