"""What a layer with a window gives back: bytes, blocks, and what a request can still do."""

from typing import Any

import numpy as np
import pytest
from caches import poison_all
from schedules import close

from kvlib import BlockPool, DenseCache, LayerSpec, OutOfBlocks, PagedCache, QuantizedCache
from kvlib.caches import KeepAll, Window, layer_groups
from kvlib.codecs import int8, kivi
from kvlib.costs.spec import MODELS
from kvlib.testing import oracle
from kvlib.testing.memory import poison_unused

TWO = [LayerSpec(1, 4, window=128), LayerSpec(1, 4)]  # 32 bytes per token and layer


def make(home: str, layers: list[LayerSpec], tokens: int, block: int = 16, **more: Any) -> Any:
    """A cache for one request of so many tokens."""
    if home == "rows":
        return DenseCache(layers, 1, tokens, xp=np, **more)
    blocks = len(layer_groups(layers)) * -(-tokens // block)
    return PagedCache(layers, BlockPool(blocks, block), xp=np, **more)


def feed(cache: Any, name: str, tokens: int, chunk: int = 4096, seed: int | None = None) -> Any:
    """So many tokens in every layer, a chunk at a time; zeros unless there is a seed."""
    rng, step = np.random.default_rng(seed), None
    while tokens:
        n = min(chunk, tokens)
        step = cache.plan([name], [n])
        for layer, spec in enumerate(cache.layers):
            shape = (n, spec.num_kv_heads)
            k, v = (np.zeros((*shape, d), np.float32) for d in (spec.head_dim, spec.v_dim))
            if seed is not None:
                k[...], v[...] = rng.standard_normal(k.shape), rng.standard_normal(v.shape)
            cache.append(layer, k, v, step)
        tokens -= n
    return step


def claimed(cache: Any) -> int:
    memory = cache.memory()
    return memory.payload + memory.metadata + memory.wasted


@pytest.mark.parametrize("home", ["rows", "blocks"])
@pytest.mark.parametrize("tokens", [100, 8192, 131072])
@pytest.mark.parametrize("name", ["mistral-7b-v0.1", "gemma-3-27b", "gpt-oss-120b"])
def test_payload_is_what_the_calculator_says(name: str, tokens: int, home: str) -> None:
    """The model's own pattern of windows, on one kv head of one number."""
    found = {}
    for group in MODELS[name].layers:
        found |= {i: LayerSpec(1, 1, window=group.window or None) for i in group.indices}
    cache = make(home, [found[i] for i in sorted(found)], tokens, 512 if tokens > 10000 else 16)
    cache.add("a")
    feed(cache, "a", tokens)
    real = 2 * MODELS[name].layers[0].num_kv_heads * MODELS[name].layers[0].head_dim
    needed = MODELS[name].kv_bytes(1, tokens, "float32").value * 2 // real
    assert cache.memory().payload == needed
    feed(cache, "a", 0)


def test_a_window_beside_all_tokens_takes_half() -> None:
    """Everything would be 524,288 bytes; the two bounds are 8,192 and 128 tokens of 32 bytes."""
    block, needed = 16 * 32, 266_240
    rows = make("rows", TWO, 8192)
    assert rows.memory().reserved <= needed + 2 * block
    paged = PagedCache(TWO, BlockPool(8192 // 16 + 128 // 16 + 2, 16), xp=np)
    for cache in (rows, paged):
        cache.add("a")
        feed(cache, "a", 8176, 16)
        feed(cache, "a", 16, 1)
        assert cache.memory().payload == needed
        assert claimed(cache) <= needed + 2 * block, cache
    everything = make("blocks", TWO, 8192, retention=KeepAll())
    everything.add("a")
    feed(everything, "a", 8192)
    assert everything.memory().payload == 524_288


@pytest.mark.parametrize("codec", ["plain", "int8", "kivi4"])
def test_a_long_prompt_has_a_row_of_its_own_until_the_next_step(codec: str) -> None:
    cache = QuantizedCache([LayerSpec(1, 32, window=8)], codec, 2, 2048, xp=np)
    cache.add("a")
    base = cache.memory().reserved
    feed(cache, "a", 1000, 1000, seed=1)
    assert cache.memory().reserved > base + 1000
    k, v, at = (x.copy() for x in cache.read(0, "a"))
    cache.fork("a", "b")
    step = feed(cache, "a", 1, seed=2)
    poison_unused(cache)
    assert cache.pages(step) == [[0]], "the row that the cache gave it"
    again = cache.read(0, "b")
    for x, y in zip((k, v, at), again, strict=True):
        assert (x == y).all(), "the fork has rows of its own"
    after = cache.read(0, "a")
    kept = np.isin(at, after[2])
    assert after[2][-1] == 1000 and (after[0][:-1] == k[kept]).all()
    cache.free("b")
    assert cache.memory().reserved <= base + (codec == "kivi4") * 10**6


@pytest.mark.parametrize("home", ["rows", "blocks"])
def test_the_last_step_is_taken_back_exactly_and_more_is_refused(home: str) -> None:
    cache = make(home, [LayerSpec(1, 4), LayerSpec(1, 4, window=8)], 400, 4)
    poison_all(cache)
    cache.add("a")
    feed(cache, "a", 60, 5, seed=3)
    before = [tuple(x.copy() for x in cache.read(layer, "a")) for layer in (0, 1)]
    feed(cache, "a", 9, 9, seed=4)
    words = r"'a' cannot be truncated to 40 tokens: layer 1 .*Window.*8"
    with pytest.raises(ValueError, match=words):
        cache.truncate("a", 40)
    assert cache.seq_len("a") == 69
    cache.truncate("a", 60)
    for layer in (0, 1):
        for x, y in zip(before[layer], cache.read(layer, "a"), strict=True):
            assert (x[-7:] == y[-7:]).all(), "what the token at 60 sees"
    cache.truncate("a", 0)
    assert cache.seq_len("a") == 0
    feed(cache, "a", 30, 7, seed=5)
    attends(cache, "a", feed(cache, "a", 3, 3, seed=6))


def attends(cache: Any, name: str, step: Any) -> None:
    """Every layer, the step's queries, in float64 over what it reads."""
    rng = np.random.default_rng(9)
    for layer, spec in enumerate(cache.layers):
        q = rng.standard_normal((step.num_tokens, 2, spec.head_dim)).astype(np.float32)
        k, v, at = cache.read(layer, name)
        o, _ = oracle.attention(q, k, v, step.positions, at, **spec.settings)
        close(cache.run(layer, q, step), o, f"layer {layer}")


def test_no_blocks_no_change() -> None:
    """Blocks that would be given back count as free, and where they are too few all stay."""
    layers = [LayerSpec(1, 4, window=8)]
    cache = PagedCache(layers, BlockPool(3, 4), xp=np)
    cache.add("a")
    feed(cache, "a", 11, 1)
    held = cache.blocks("a")
    with pytest.raises(OutOfBlocks, match="request 'a' holds 11 tokens and 9 more"):
        cache.plan(["a"], [9])
    assert cache.blocks("a") == held and cache.seq_len("a") == 11
    feed(cache, "a", 5, 5)
    cache.pool.check()


def computed(cache: PagedCache, name: str, text: list[int]) -> int:
    held = cache.add(name, text)
    step = cache.plan([name], [len(text) - held], text[held:])
    for layer in range(len(cache.layers)):
        at = np.arange(held, len(text), dtype=np.float32)[:, None, None]
        x = np.broadcast_to(at + 1000 * layer, (len(at), 1, 4)).astype(np.float32)
        cache.append(layer, x, -x, step)
    return held


@pytest.mark.parametrize("order", [(8, None), (None, 8), (8, 8)], ids=str)
def test_a_prefix_needs_the_last_window_alone(order: tuple) -> None:
    layers = [LayerSpec(1, 4, window=w) for w in order]
    cache, text = PagedCache(layers, BlockPool(64, 4), xp=np), list(range(41))
    assert computed(cache, "a", text) == 0
    cache.plan(["a"], [1], [99])  # what no layer needs goes, and can be found
    cache.free("a")
    before = cache.pool.num_free
    assert cache.add("b", text) == 40
    table = cache.blocks("b", order.index(8))
    assert len(table) == 2 and cache.read(order.index(8), "b")[2].tolist() == [*range(32, 40)]
    for layer in (0, 1):
        k, _, at = cache.read(layer, "b")
        assert (k[:, 0, 0] == at + 1000 * layer).all()
    assert before - cache.pool.num_free == sum(10 if w is None else 2 for w in order) // (
        2 if order == (8, 8) else 1
    )
    cache.pool.check()


def test_a_window_without_its_last_blocks_is_not_found() -> None:
    """Early blocks of the window may go; without a late one a shorter beginning is found."""
    layers = [LayerSpec(1, 4), LayerSpec(1, 4, window=8)]
    cache, text = PagedCache(layers, BlockPool(20, 4), xp=np), list(range(41))
    computed(cache, "a", text[:33])
    cache.free("a")  # 8 blocks of each group can be found, and one block of each is half full
    taken = cache.pool.allocate(4)  # two that hold nothing anyone finds, and the first that goes
    assert cache.pool.num_published == 16
    cache.pool.allocate(4)
    found = cache.add("b", text)
    assert found % 4 == 0
    for layer in (0, 1):
        k, _, at = cache.read(layer, "b")
        assert (k[:, 0, 0] == at + 1000 * layer).all() and (not found or at[-1] == found - 1)
    assert taken
    cache.pool.check()


def test_layers_that_keep_the_same_share_tables() -> None:
    full, local = LayerSpec(1, 8), LayerSpec(1, 8, window=4)
    assert [g.layers for g in layer_groups([full] * 3)] == [(0, 1, 2)]
    assert [g.layers for g in layer_groups([local] * 3)] == [(0, 1, 2)]
    five = [local, local, local, local, full] * 2
    assert [g.layers for g in layer_groups(five)] == [(0, 1), (2, 3), (5, 6), (7, 8), (4, 9)]
    other = [full, LayerSpec(2, 8, window=4), LayerSpec(2, 8, window=4)]
    assert [g.layers for g in layer_groups(other)] == [(0,), (1, 2)], "shapes differ"
    assert len(layer_groups(five, KeepAll())) == 1


def test_groups_of_one_shape_draw_from_one_memory() -> None:
    one = PagedCache([LayerSpec(1, 4)], BlockPool(10, 4), xp=np)
    two = PagedCache([LayerSpec(1, 4), LayerSpec(1, 4, window=3)], BlockPool(10, 4), xp=np)
    apart = PagedCache([LayerSpec(1, 4), LayerSpec(1, 8, window=3)], BlockPool(10, 4), xp=np)
    size = one.memory().reserved
    assert (two.memory().reserved, apart.memory().reserved) == (size, 3 * size)


@pytest.mark.parametrize("codec", [None, int8(), kivi(4, 8, 3)], ids=["plain", "int8", "kivi"])
def test_a_rule_of_ones_own_choice(codec: Any) -> None:
    """Window(6) on layers that could look farther: attention over what is still there."""
    cache = PagedCache(
        [LayerSpec(1, 8)] * 2, BlockPool(40, 8), codec=codec, retention=Window(6), xp=np
    )
    poison_all(cache)
    cache.add("a")
    feed(cache, "a", 50, 3, seed=1)
    step = feed(cache, "a", 2, 2, seed=2)
    assert len(cache.read(0, "a")[2]) < 30
    attends(cache, "a", step)
