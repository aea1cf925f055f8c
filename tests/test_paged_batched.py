"""Decoding in blocks: requests of similar length attend in one product."""

import numpy as np
import pytest
from caches import give
from schedules import check_run, close

from kvlib import BlockPool, LayerSpec, Meter, PagedCache, QuantizedCache, testing
from kvlib.attention import batched
from kvlib.attention.batched import batches_copied
from kvlib.caches.batches import batches
from kvlib.codecs import int8


def filled(lengths, spec=None, size=4, new=1, **settings):
    """A cache of requests of so many tokens, the step of their `new` last ones, and queries."""
    spec = LayerSpec(2, 8) if spec is None else spec
    blocks = sum(-(-n // size) for n in lengths)
    cache = PagedCache([spec], BlockPool(blocks, size), xp=np, **settings)
    rng = np.random.default_rng(7)

    new = [new] * len(lengths) if type(new) is int else new
    for i, n in enumerate(lengths):
        cache.add(i)
        if n > new[i]:
            give(cache, cache.plan([i], [n - new[i]]), rng)
    step = cache.plan(list(range(len(lengths)))[::-1], new[::-1])
    give(cache, step, rng)
    q = rng.standard_normal((step.num_tokens, 2 * spec.num_kv_heads, spec.head_dim))
    return cache, step, q.astype(np.float32)


@pytest.mark.parametrize("new", [1, 2])
@pytest.mark.parametrize(("gathered", "sizes"), [(2**19, [7]), (1500, [4, 3]), (700, [3])])
@pytest.mark.parametrize("spec", [
    LayerSpec(2, 8), LayerSpec(1, 8, 4), LayerSpec(2, 8, 6, v_from_k=True),
    LayerSpec(2, 8, softcap=5.0, sinks=np.ones(4, np.float32)),
], ids=["plain", "short values", "values from keys", "softcap and sinks"])  # fmt: skip
def test_each_gets_what_it_gets_alone(monkeypatch, spec, gathered, sizes, new):
    """All in one batch; in two; in one of three, and four requests alone."""
    monkeypatch.setattr(batched, "GATHERED", gathered * spec.num_kv_heads * spec.v_dim // 16)
    cache, step, q = filled([5, 30, 9, 17, 30, 2, 29], spec, new=new)
    assert [len(batch) for batch in batches(cache, 0, step, 2)] == sizes
    o, _ = check_run(cache, 0, q, step, 2e-6)
    close(cache.run(0, q, step), o, "o without lse", 2e-6)


@pytest.mark.parametrize("window", [1, 4, 7, 30])
def test_blocks_before_a_window_are_not_copied(window):
    cache, step, q = filled([30] * 3, LayerSpec(2, 8, window=window))
    assert [len(b) for b in batches(cache, 0, step, 2)] == [3]
    with Meter() as meter:
        o = cache.run(0, q, step)
    assert meter.by_label["attention"].read == 3 * window * 2 * (8 + 8) * 4
    close(o, check_run(cache, 0, q, step, 2e-6)[0], "o", 2e-6)


@pytest.mark.parametrize("gathered", [2**19, 300, 40])
@pytest.mark.parametrize("size", [1, 4])
def test_any_life(monkeypatch, gathered, size):
    monkeypatch.setattr(batched, "GATHERED", gathered)
    trial = testing.check_cache(
        lambda layers: PagedCache(layers, BlockPool(160 // size, size), xp=np),
        schedules=6, xp=np,
    )
    assert trial and trial.compared > 100, trial


def by_length(lengths, numbers, window):
    """Which go together, of texts with one query each."""
    return batches_copied(lengths, [1] * len(lengths), numbers, window)


def test_which_go_together():
    as_many_queries = batches_copied([8, 8, 8, 8], [1, 2, 1, 2], 16, None)
    assert as_many_queries == [[0, 2], [1, 3]]
    assert by_length([8, 8, 8], 16, None) == [[0, 1, 2]]
    assert by_length([8, 300, 8, 301], 16, None) == [[0, 2], [1, 3]], "292 tokens are too many"
    assert by_length([8, 9], 16, 4) == [], "windows that hide other keys of each"
    assert by_length([9, 9], 16, 4) == [[0, 1]]
    assert by_length([513, 513], 16, None) == [], "longer than a piece"
    assert by_length([512, 512], 257, None) == [], "more numbers than ALONE"
    assert [len(b) for b in by_length([512] * 9, 256, None)] == [4, 4], "GATHERED; one is left"
    assert by_length([], 16, None) == by_length([3], 16, None) == []


def test_codes_and_narrow_numbers_go_one_by_one():
    for settings in ({"codec": int8()}, {"dtype": np.float16}):
        cache, step, _ = filled([6, 6], **settings)
        assert batches(cache, 0, step, 2) == []
    cache, step, _ = filled([100, 100], size=64)
    assert batches(cache, 0, step, 2) == [], "large blocks are read as they lie"
    rows = QuantizedCache([LayerSpec(2, 8)], "plain", 2, 64, xp=np)
    rows.add("a"), rows.add("b")
    step = rows.plan(["a", "b"], [1, 1])
    assert [len(b) for b in batches(rows, 0, step, 2)] == [2], "rows, plain"
