"""Keys that are moved by ``remove_span``, for every kind of rope and after a thousand moves."""

from typing import Any

import numpy as np
import oracle
import pytest
from test_editing import model_of, tokens_of

import kvlib
from kvlib import BlockPool, DenseCache, PagedCache
from kvlib.caches import KeepAll
from kvlib.model import RopeConfig
from kvlib.model.rope import frequencies, tables, turn

# golden checkpoint → the kinds of rope of its two layers
ROPES = {
    "llama": ("default", "default"), "llama-linear-bias": ("linear", "linear"),
    "llama-dynamic": ("dynamic", "dynamic"), "llama-3": ("llama3", "llama3"),
    "llama-yarn": ("yarn", "yarn"),
    "qwen3-yarn-old": ("yarn", "yarn"),  # cos and sin times 1.3
    "gpt-oss": ("yarn", "yarn"),  # the limits of the blend are not rounded
    "smollm3": (None, "default"),
    "gemma3": ("default", "linear"),  # theta 50, and theta 1,000 with factor 8
}
MODELS = {name: model_of(name) for name in ROPES}


def rotated(rope: RopeConfig | None, k: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """k (T, H, D) at positions (T,), by the definition: (T, H, D) in float64."""
    if rope is None:
        return k
    turned = oracle.rotate(k, np.asarray(positions), frequencies(rope, k.shape[-1]))
    return rope.attention_factor * turned


def stored(rope: RopeConfig | None, k: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """What a model appends: rotated by kvlib's own tables, in float32."""
    if rope is None:
        return k
    cos, sin = tables(rope, k.shape[-1], int(positions[-1]) + 1, np, np.float32)
    return kvlib.model.rope.rotate(k, cos[positions][:, None], sin[positions][:, None])


class Stream:
    """Requests of raw keys, appended rotated, layer by layer as the model's config says."""

    def __init__(self, name: str, home: str, room: int) -> None:
        self.model: Any = MODELS[name]
        specs: Any = self.model.layer_specs
        if home == "rows":
            self.cache: Any = DenseCache(specs, 1, room, retention=KeepAll(), xp=np)
        else:
            pool = BlockPool(3 * room // 4, 4)
            self.cache = PagedCache(specs, pool, retention=KeepAll(), xp=np)
        self.cache.add("a")
        self.rng = np.random.default_rng(0)
        self.raw = [self._raw(layer, 0) for layer in range(len(specs))]

    def _raw(self, layer: int, n: int) -> np.ndarray:
        spec = self.cache.layers[layer]
        return self.rng.standard_normal((n, spec.num_kv_heads, spec.head_dim), dtype=np.float32)

    def feed(self, n: int) -> None:
        step = self.cache.plan(["a"], [n])
        for layer in range(len(self.raw)):
            k = self._raw(layer, n)
            self.raw[layer] = np.concatenate([self.raw[layer], k])
            rope = self.model.config.rope_of(layer)
            self.cache.append(layer, stored(rope, k, step.positions), k, step)

    def cut(self, start: int, stop: int) -> None:
        kvlib.remove_span(self.model, self.cache, "a", start, stop)
        self.raw = [np.concatenate([k[:start], k[stop:]]) for k in self.raw]

    def check(self) -> None:
        for layer, raw in enumerate(self.raw):
            k, v, positions = self.cache.read(layer, "a")
            assert positions.tolist() == list(range(len(raw)))
            needed = rotated(self.model.config.rope_of(layer), raw, positions)
            assert np.abs(k - needed).max() <= 1e-5 * np.abs(needed).max()
            assert (v == raw).all()


@pytest.mark.parametrize("name", ROPES)
def test_each_layer_has_its_kind_of_rope(name: str) -> None:
    config = MODELS[name].config
    ropes = [config.rope_of(layer) for layer in (0, 1)]
    assert tuple(rope and rope.kind for rope in ropes) == ROPES[name]


@pytest.mark.parametrize("home", ["rows", "blocks"])
@pytest.mark.parametrize("name", ROPES)
def test_an_endless_text_holds_keys_of_where_they_have_arrived(name: str, home: str) -> None:
    """StreamingLLM: four first tokens stay; of the rest, the older half goes when all is full."""
    stream = Stream(name, home, 24)
    for _ in range(12):
        stream.feed(24 - len(stream.raw[0]) - 1)
        stream.feed(1)
        stream.cut(4, 11)
        stream.check()


@pytest.mark.untraced
def test_a_thousand_cuts_leave_no_drift() -> None:
    """One token after the other goes, so the last ones move 1,000 times, by one each time."""
    stream = Stream("gemma3", "rows", 1016)
    stream.feed(1016)
    for _ in range(1000):
        stream.cut(4, 5)
    stream.check()


@pytest.mark.untraced
@pytest.mark.parametrize("name", ROPES)
@pytest.mark.parametrize("distance", [-1, -7])
def test_a_thousand_turns_are_one(name: str, distance: int) -> None:
    config, rng = MODELS[name].config, np.random.default_rng(1)
    for rope in filter(None, (config.rope, config.window_rope)):
        raw = rng.standard_normal((8, 2, config.head_dim), dtype=np.float32)
        start = np.arange(-1000 * distance, -1000 * distance + 8)
        k = stored(rope, raw, start)
        for _ in range(1000):
            k = turn(rope, k, distance)
        needed = rotated(rope, raw, start + 1000 * distance)
        assert np.abs(k - needed).max() <= 1e-5 * np.abs(needed).max()


def test_many_small_turns_are_lost_in_a_narrow_cache() -> None:
    """What the docstring warns of: pairs that turn slowly stay where they are, each time."""
    rope, far = RopeConfig(), 3000
    k = np.random.default_rng(0).standard_normal((64, 2, 64), dtype=np.float32)
    needed = turn(rope, k.astype(np.float64), -far)
    off = {}
    for times in (1, 1000):
        x = k.astype(np.float16)
        for _ in range(times):
            x = turn(rope, x, -far // times)
        off[times] = np.sqrt(np.mean((x - needed) ** 2))
    assert off[1] < 1e-3 and off[1000] > 0.02


@pytest.mark.parametrize("name", ROPES)
def test_only_the_first_layer_is_what_the_shorter_text_gives(name: str) -> None:
    model, tokens, found = MODELS[name], tokens_of(24, seed=2), []
    for text in (tokens, tokens[:5] + tokens[13:]):
        cache = DenseCache(model.layer_specs, 1, 32, retention=KeepAll(), xp=np)
        cache.add("a")
        model.forward(text, cache, cache.plan(["a"], [len(text)]))
        found.append(cache)
    edited, fresh = found
    kvlib.remove_span(model, edited, "a", 5, 13)
    for x, y in zip(edited.read(0, "a"), fresh.read(0, "a"), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)
    for x, y in zip(edited.read(1, "a")[:2], fresh.read(1, "a")[:2], strict=True):
        np.testing.assert_allclose(x[:5], y[:5], atol=1e-5)
        assert np.abs(x[5:] - y[5:]).max() > 0.003 * np.abs(y).max()
