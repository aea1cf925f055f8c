"""100,000 tokens (usually 20,000) through a small cache, which holds no more bytes at the end."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from effort import number

import kvlib
from kvlib import BlockPool, DenseCache, LayerSpec, PagedCache
from kvlib.caches import H2O, KNorm, Scored, Sinks, SnapKV
from kvlib.model import RopeConfig
from kvlib.testing import oracle
from kvlib.testing.rounding import sum_bound

W, STEP, TOKENS = 128, 64, 100_000
KEEP = 4  # first tokens that stay
SPEC = LayerSpec(1, 8)


def dense(rule: Any, room: int = TOKENS, spec: LayerSpec = SPEC) -> Any:
    return DenseCache([spec], 1, room, retention=rule, xp=np)


def paged(rule: Any, blocks: int, spec: LayerSpec = SPEC) -> Any:
    return PagedCache([spec], BlockPool(blocks, 16), retention=rule, xp=np)


# What a rule may hold just after a plan of STEP tokens: those it keeps, those it gives back late
# (a part of a block, a quarter of a row, or `every`), and the new ones.
WINDOWED = LayerSpec(1, 8, window=W)
STREAMS: dict[str, tuple[Callable[[], Any], int]] = {
    "window in a row": (lambda: dense(None, spec=WINDOWED), W - 1 + max(W // 4, STEP)),
    "window in blocks": (lambda: paged(None, 13, WINDOWED), W - 1 + 15 + STEP),
    "sinks in a row": (lambda: dense(Sinks(KEEP, W, 32)), KEEP + W + 31 + STEP),
    "sinks in blocks": (lambda: paged(Sinks(KEEP, W, 32), 26), KEEP + W + 31 + STEP),
    "k-norm in blocks": (lambda: paged(Scored(KNorm(8), W, 32), 26), W + 31 + STEP),
    "k-norm in a row": (lambda: dense(Scored(KNorm(8), W, 32)), W + 31 + STEP),
    "h2o in blocks": (lambda: paged(Scored(H2O(8), W), 24), W + STEP),
    "snapkv in blocks": (lambda: paged(Scored(SnapKV(16), W), 24), W + STEP),
    "span after span": (lambda: dense(None, 2 * W), 2 * W),
}


@pytest.mark.untraced
@pytest.mark.parametrize("name", STREAMS)
def test_memory_is_flat(name: str, effort: Any) -> None:
    make, most = STREAMS[name]
    cache, tokens = make(), number(quick=5_000, usual=20_000, whole=TOKENS)
    effort.ran("tokens of endless texts", tokens, TOKENS)
    cut = name == "span after span"
    rng, at, steps = np.random.default_rng(0), 0, 0
    q, k, v = rng.standard_normal((3, STEP, 1, 8), dtype=np.float32)
    cache.add("a")
    reserved, top, late = cache.memory().reserved, 0, []
    while at < tokens:
        n = min(1 if steps % 12 > 7 else STEP, tokens - at)
        if cut and cache.seq_len("a") + n > 2 * W:
            remove(cache, KEEP, KEEP + W)
        step = cache.plan(["a"], [n])
        cache.append(0, k[:n], v[:n], step)
        o, lse = cache.run(0, q[:n], step, return_lse=True)
        at, steps = at + n, steps + 1
        if steps % 40 == 0 or at == tokens:
            compare(cache, q[:n], o, lse)
            memory = cache.memory()
            held = cache.read(0, "a")[0].shape[0]
            assert memory.reserved == sum(x.nbytes for x in cache.storage())
            longer = memory.reserved - reserved  # a separate row, for a step that is too long
            assert longer in (0, held * 64), f"{longer} bytes more than at the start"
            assert held <= most and memory.payload <= most * 64, f"{held} tokens at {at}"
            top = max(top, held)
            late.append(memory.payload + memory.wasted if not cut else memory.reserved)
    assert at == tokens == (cache.seq_len("a") if not cut else tokens)
    assert top > W - 2, "it holds what it may"
    third = len(late) // 3
    assert max(late[-third:]) <= max(late[:third]), "no byte more at the end than at the start"
    if cache.block_size is not None:
        cache.free("a")
        cache.pool.check()
        assert cache.pool.num_free == cache.pool.num_blocks


def remove(cache: Any, start: int, stop: int) -> None:
    """What StreamingLLM does: later tokens move to smaller positions, so these never run out."""
    rope = RopeConfig()
    width = cache.layers[0].head_dim
    config: Any = SimpleNamespace(
        model_type="llama", rope=rope, rope_of=lambda layer: rope, rope_dim=width
    )
    kvlib.remove_span(
        SimpleNamespace(config=config, layer_specs=cache.layers), cache, "a", start, stop
    )  # type: ignore


def compare(cache: Any, q: np.ndarray, o: np.ndarray, lse: np.ndarray) -> None:
    """The step's last query against float64, over what the cache reads."""
    k, v, held = cache.read(0, "a")
    settings, at = cache.layers[0].settings, [cache.seq_len("a") - 1]
    right, right_lse = oracle.attention(q[-1:], k, v, at, held, **settings)
    bound = sum_bound(8 + len(k), 4.0)
    np.testing.assert_allclose(o[-1:], right, atol=bound)
    np.testing.assert_allclose(lse[-1:], right_lse, atol=bound)
