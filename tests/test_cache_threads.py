"""Threads that only attend, each in a separate step, and the memory that reading takes."""

import threading
import tracemalloc

import numpy as np
import pytest
from caches import feed

from kvlib import BlockPool, DenseCache, LayerSpec, PagedCache, QuantizedCache
from kvlib.codecs import int8, kivi

LAYERS = [LayerSpec(2, 32)]
CACHES = {
    "dense": lambda: DenseCache(LAYERS, 4, 512, xp=np),
    "paged": lambda: PagedCache(LAYERS, BlockPool(80, 16), xp=np),
    "codes in blocks": lambda: PagedCache(LAYERS, BlockPool(80, 32), codec=kivi(4, 32, 0), xp=np),
    "int8 in blocks": lambda: PagedCache(LAYERS, BlockPool(80, 16), codec=int8(), xp=np),
    "rows of codes": lambda: QuantizedCache(LAYERS, kivi(4, 32, 0), 4, 512, xp=np),
}


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("make", CACHES.values(), ids=CACHES)
def test_threads_may_attend_at_once(make):
    cache = make()
    work = []
    for name, n in enumerate((200, 311, 256, 250)):
        cache.add(name)
        step, _ = feed(cache, [name], [n], name)
        q, last = normal(name + 20, 1, 4, 32), step.last()
        work.append((q, last, cache.run(0, q, last)))
    start, wrong = threading.Barrier(len(work)), []

    def attend(q, step, needed):
        start.wait()
        for _ in range(150):
            off = np.abs(cache.run(0, q, step) - needed).max()
            if off > 0:
                wrong.append(off)

    threads = [threading.Thread(target=attend, args=each) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, f"{len(wrong)} results are off, by up to {max(wrong)}"


def test_reading_keeps_no_memory():
    cache = PagedCache(LAYERS, BlockPool(512, 16), xp=np)
    cache.add("a")
    feed(cache, ["a"], [8000])
    held = sum(x.nbytes for x in cache.storage())
    tracemalloc.start()
    for length in range(8000, 7000, -77):
        cache.truncate("a", length)
        cache.read(0, "a")
        step, _ = feed(cache, ["a"], [1])
        cache.run(0, normal(5, 1, 4, 32), step)
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept < held / 50, f"{kept} bytes stay, of a cache of {held}"


def test_what_was_read_stays_as_it_was():
    for make in CACHES.values():
        cache = make()
        for name in "ab":
            cache.add(name)
            step, _ = feed(cache, [name], [100], ord(name))
        k, v, _ = cache.read(0, "a")
        before = k.copy(), v.copy()
        cache.read(0, "b")
        cache.run(0, normal(3, 100, 4, 32), step)
        assert (k == before[0]).all() and (v == before[1]).all()
