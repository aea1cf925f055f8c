"""What mutants of shared blocks, of windows that free blocks and of holes must not survive."""

from collections.abc import Callable
from functools import partial

import numpy as np
from killers_lives import ALIKE, CODED, FULL, NARROW, SHAPES, EndsOnly, Life, key_of, paged
from schedules import close

from kvlib import BlockPool, DenseCache, LayerSpec, PagedCache
from kvlib.caches import HashIndex, KeepAll, RadixIndex
from kvlib.codecs import fp8, int8, kivi
from kvlib.kernels import Kernels

INDEXES = {
    "hash": HashIndex,
    "hash that always collides": partial(HashIndex, lambda before, tokens, extra: b"same"),
    "radix": RadixIndex,
}


def refuses(call: Callable[[], object]) -> bool:
    try:
        call()
    except ValueError:
        return True
    return False


def rows(cache, layer: int, tokens: list[int], first: int) -> list[np.ndarray]:
    spec = cache.layers[layer]
    shape = (spec.num_kv_heads, spec.head_dim, spec.v_dim)
    found = [key_of(tuple(tokens[: i + 1]), shape, layer) for i in range(first, len(tokens))]
    return [np.concatenate(parts) for parts in zip(*found)]


def fill(cache, name, tokens: list[int], extra: tuple = ()) -> int:
    """Open a request on a prompt and run what is not cached; return how many tokens were cached."""
    held = cache.add(name, tokens, extra=extra)
    fill_more(cache, name, tokens[:held], tokens[held:])
    return held


def fill_more(cache, name, before: list[int], tokens: list[int]) -> None:
    step = cache.plan([name], [len(tokens)], tokens)
    for layer in range(len(cache.layers)):
        cache.append(layer, *rows(cache, layer, before + tokens, len(before)), step)


def check_content(cache, name: str, tokens: list[int]) -> None:
    for layer, spec in enumerate(cache.layers):
        *found, positions = cache.read(layer, name)
        assert positions[0] <= max(0, len(tokens) - (spec.window or len(tokens) + 1) + 1)
        for got, needed in zip(found, rows(cache, layer, tokens, 0)):
            assert (got == needed[positions]).all(), f"layer {layer} of {name} changed"


def shared_prefixes() -> None:
    for index in INDEXES.values():
        pool = BlockPool(48, 2, index=index())
        cache = PagedCache(SHAPES, pool, xp=np)
        assert refuses(partial(PagedCache, SHAPES, pool, xp=np)), "two caches on one pool"
        assert fill(cache, "a", [1, 2, 3, 4]) == 0
        assert pool.num_published == 0, "the step can still be taken back"
        cache.truncate("a", 2)
        fill_more(cache, "a", [1, 2], [5, 6])
        cache.free("a")
        assert fill(cache, "b", [1, 2, 3, 4]) == 2, "found by tokens that were taken back"
        assert fill(cache, "c", [1, 2, 5, 6]) == 2, "the last token is computed"
        cache.truncate("c", 1)
        fill_more(cache, "c", [1], [9])  # into a copy: the block may be found
        assert fill(cache, "d", [1, 2, 5, 6, 7]) == 4
        for name in "bc":
            cache.free(name)
        check_content(cache, "d", [1, 2, 5, 6, 7])
        cache.truncate("d", 3)  # used by d alone, and published
        fill_more(cache, "d", [1, 2, 5], [8])
        assert fill(cache, "e", [1, 2, 5, 6, 7]) == 4
        check_content(cache, "e", [1, 2, 5, 6, 7])
        cache.fork("e", "h")  # the last block is half full
        fill_more(cache, "h", [1, 2, 5, 6, 7], [4])
        fill_more(cache, "e", [1, 2, 5, 6, 7], [3])
        check_content(cache, "h", [1, 2, 5, 6, 7, 4])
        cache.add("f")
        cache.plan(["f"], [4], [7, 7, 7, 7])  # a pass that never ends
        cache.fork("f", "g")
        for name in "gf":
            cache.free(name)
        assert pool.lookup([7, 7, 7, 7]) == []
    for index in INDEXES.values():
        for seed in range(4):
            Life(seed, paged(seed, FULL, index)).play(60)
            Life(seed, paged(seed, SHAPES, index)).play(60)


def shared_codes() -> None:
    cache = PagedCache([LayerSpec(1, 8)], BlockPool(16, 2), codec=int8(3), xp=np)
    cache.add("a")
    x = np.random.default_rng(1).standard_normal((8, 1, 8)).astype(np.float32)
    cache.append(0, x, x, cache.plan(["a"], [8], range(8)))
    cache.plan(["a"], [4], range(4))  # a pass that never ends: nothing is encoded in it
    cache.free("a")
    assert len(cache.pool.lookup(range(8))) == 2, "5 of 8 tokens were codes"
    for codec in (int8(), int8(3), fp8(), kivi(4, 4, 3), kivi(2, 2, 0)):
        for seed in range(3):
            Life(seed, paged(seed, CODED, HashIndex, codec)).play(40)


def windows_give_back() -> None:
    """Groups that draw from one pool, and prefixes of which a window needs the end only."""
    text = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
    for layers in (SHAPES, ALIKE, NARROW):
        cache = PagedCache(layers, BlockPool(60, 2), xp=np)
        fill(cache, "a", text)
        for i in range(4):
            fill_more(cache, "a", text + [7] * i, [7])
        assert fill(cache, "b", [*text[:10], 8]) == 10, "every layer has what it needs of this"
        check_content(cache, "b", [*text[:10], 8])
        cache.plan(["a"], [1])  # a pass that never ends
        cache.plan(["a"], [1])
        cache.truncate("a", len(text) + 4)
        check_content(cache, "a", [*text, 7, 7, 7, 7])
    cache = DenseCache(NARROW, 2, 40, xp=np)
    fill(cache, "a", text)  # longer than the rows of a window
    cache.fork("a", "b")
    fill_more(cache, "b", text, [7])
    check_content(cache, "a", text)
    check_content(cache, "b", [*text, 7])
    cache.free("b")
    cache.fork("a", "b")
    assert len({id(x) for x in cache.storage()}) == len([*cache.storage()]), "an array twice"
    for seed in range(8):
        index = (HashIndex, RadixIndex)[seed % 2]
        for layers in (ALIKE, NARROW):
            Life(seed, paged(seed, layers, index)).play(60)
        Life(seed, paged(seed, ALIKE, index, retention=KeepAll())).play(40)


def holes_keep_positions() -> None:
    ends = EndsOnly()
    for seed in range(6):
        Life(seed, paged(seed, FULL, HashIndex, retention=ends)).play(60)
        Life(seed, paged(seed, CODED[:1], HashIndex, int8(), ends)).play(60)
        Life(seed, DenseCache(FULL, 3, 40, retention=ends, xp=np)).play(60)


def kernels_find_their_tables() -> None:
    layers = (LayerSpec(1, 64), LayerSpec(1, 64, window=5))
    rng = np.random.default_rng(5)
    for cache in (
        PagedCache(layers, BlockPool(40, 4), xp=np, attention=Kernels(run_on="twin")),
        DenseCache(layers, 2, 32, xp=np, attention=Kernels(run_on="twin")),
    ):
        cache.add("a")
        cache.add("b")
        for q_lens in ([7, 3], [1, 1], [1, 2], [1, 1], [4, 1], [1, 1], [1, 1]):
            step = cache.plan(["a", "b"], q_lens)
            for layer in range(2):
                q, k, v = rng.standard_normal((3, step.num_tokens, 1, 64)).astype(np.float32)
                cache.append(layer, k, v, step)
                got, needed = cache.run(layer, q, step), cache.attend(layer, q, step)
                close(got, needed, f"layer {layer} of {cache}", 1e-4)


CHECKS = (
    shared_prefixes, shared_codes, windows_give_back, holes_keep_positions,
    kernels_find_their_tables,
)
