"""Latent attention, one layer in any cache, against its paper's formula, expanded, in float64."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
from costs_configs import DEEPSEEK
from schedules import close

import kvlib
from kvlib import BlockPool, DenseCache, PagedCache, QuantizedCache
from kvlib.caches import KeepAll
from kvlib.codecs import fp8, int8
from kvlib.config.shape import Latent
from kvlib.costs import ModelSpec
from kvlib.model import Decoder, ModelConfig, RopeConfig, random_weights
from kvlib.model.latent import EPS, LatentAttention
from kvlib.speculation import PromptLookup, branches, lower_layers

ROOT = Path(__file__).resolve().parent.parent
SIZES = {
    "queries in one step": Latent(None, 20, 10, 6, 14),
    "queries in two": Latent(12, 20, 10, 6, 14), "no more than a head": Latent(None, 3, 4, 2, 5),
}
HEADS, HIDDEN = 4, 24
CACHES: dict[str, Any] = {
    "rows": lambda specs: DenseCache(specs, 3, 48),
    "blocks": lambda specs: PagedCache(specs, BlockPool(40, 4)),
    "large blocks": lambda specs: PagedCache(specs, BlockPool(6, 32)),
}


def config_of(sizes: Latent, **changes: Any) -> ModelConfig:
    fields: dict[str, Any] = dict(
        model_type="deepseek_v2", vocab_size=31, hidden_size=HIDDEN, intermediate_size=20,
        num_hidden_layers=2, num_attention_heads=HEADS, num_key_value_heads=HEADS,
        head_dim=sizes.qk_head_dim, max_position_embeddings=48, rope=RopeConfig(theta=50.0),
        latent=sizes,
    )
    return ModelConfig(**{**fields, **changes})


def decoder(name: str = "queries in two", **changes: Any) -> Decoder:
    config = config_of(SIZES[name], **changes)
    return Decoder(config, random_weights(config, 3))


def expanded(config: ModelConfig, w: dict[str, np.ndarray], h: np.ndarray) -> np.ndarray:
    """o (T, hidden) in float64 of a whole text h (T, hidden): equations 37 to 47 of the paper."""
    c: Any = config.latent
    w = {name: x.astype(np.float64) for name, x in w.items()}
    h, t = h.astype(np.float64), len(h)

    def norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + EPS) * weight

    def turned(x: np.ndarray) -> np.ndarray:
        frequencies = oracle.rope_frequencies(config.rope, c.qk_rope_head_dim)
        return oracle.rotate(x, np.arange(t), frequencies)

    if c.q_lora_rank is None:
        q = h @ w["q.weight"].T
    else:
        q = norm(h @ w["q_down.weight"].T, w["q_norm.weight"]) @ w["q_up.weight"].T
    q = q.reshape(t, HEADS, c.qk_head_dim)
    q = np.concatenate([q[..., : c.qk_nope_head_dim], turned(q[..., c.qk_nope_head_dim :])], -1)
    both = h @ w["kv_down.weight"].T
    latents = norm(both[:, : c.kv_lora_rank], w["kv_norm.weight"])
    per_head = (latents @ w["kv_up.weight"].T).reshape(t, HEADS, -1)
    k, v = np.split(per_head, [c.qk_nope_head_dim], axis=-1)
    shared = turned(both[:, None, c.kv_lora_rank :])
    k = np.concatenate([k, np.broadcast_to(shared, (t, HEADS, c.qk_rope_head_dim))], axis=-1)
    scores = np.einsum("qhd,khd->hqk", q, k) / math.sqrt(c.qk_head_dim)
    scores = np.where(np.tri(t, dtype=bool), scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    o = np.einsum("hqk,khd->qhd", p / p.sum(-1, keepdims=True), v)
    return o.reshape(t, -1) @ w["o.weight"].T


@pytest.mark.parametrize("home", CACHES)
@pytest.mark.parametrize("name", SIZES)
def test_a_layer_is_what_it_would_be_with_expanded_keys(name, home):
    """Three texts, ragged steps of 1 to 9 tokens, everything free filled with NaN."""
    config, rng = config_of(SIZES[name]), np.random.default_rng(5)
    model = Decoder(config, random_weights(config, 3))
    cache = CACHES[home](model.layer_specs)
    for array in cache.storage():
        array[...] = np.nan
    mixer: Any = model._blocks[1].mixer
    texts = {n: rng.standard_normal((n, HIDDEN), dtype=np.float32) for n in (23, 9, 31)}
    expected = {i: expanded(config, mixer.w, h) for i, h in texts.items()}
    for i in texts:
        cache.add(i)
    done = dict.fromkeys(texts, 0)
    while any(done[i] < len(h) for i, h in texts.items()):
        todo = [i for i, h in texts.items() if done[i] < len(h) and rng.random() < 0.8]
        if not todo:
            continue
        news = [int(min(rng.integers(1, 10), len(texts[i]) - done[i])) for i in todo]
        step = cache.plan(todo, news)
        angles = model._rotations[0].at(step)
        spans = [(i, done[i], done[i] + n) for i, n in zip(todo, news, strict=True)]
        h = np.concatenate([texts[i][a:b] for i, a, b in spans])
        model._blocks[0].mixer.forward(h, cache, step, angles)  # each layer stores its tokens
        o = mixer.forward(h, cache, step, angles)
        assert o.dtype == np.float32
        right = np.concatenate([expected[i][a:b] for i, a, b in spans])
        close(o, right, f"spans {spans}")
        done |= {i: b for i, _, b in spans}


def test_the_cache_holds_one_small_vector_and_the_bill_says_so():
    config = ModelConfig.from_dict(DEEPSEEK)
    model, spec = Decoder(config, random_weights(config)), ModelSpec.from_config(DEEPSEEK)
    assert model.num_parameters == spec.num_parameters
    cache = model.new_cache(2, 16)
    for i, n in enumerate((11, 4)):
        cache.add(i)
        model.forward(list(range(n)), cache, cache.plan([i], [n]))
    latent = config.latent
    assert latent is not None
    assert cache.memory().payload == 15 * 4 * 4 * (latent.kv_lora_rank + latent.qk_rope_head_dim)
    assert cache.memory().payload == int(spec.kv_bytes(1, 15, "float32"))
    assert "8 heads on one latent vector of 40" in repr(model)


@pytest.mark.parametrize("name", SIZES)
def test_what_a_decode_step_computes_and_reads(name):
    """The absorbed form: queries and outputs pass W_UK and W_UV, and no key is expanded."""
    sizes, model = SIZES[name], decoder(name)
    cache = model.new_cache(1, 48)
    cache.add(0)
    model.forward(list(range(20)), cache, cache.plan([0], [20]))
    mixer: Any = model._blocks[1].mixer
    with kvlib.Meter() as meter:
        step = cache.plan([0], [1])
        angles = model._rotations[0].at(step)
        h = np.ones((1, HIDDEN), np.float32)
        q = mixer.absorbed(mixer.queries(h, angles))
        mixer.latents(h, angles)
    assert q.shape == (1, HEADS, sizes.width)
    weights = model.weights
    first = ("q.", "q_down.", "q_up.", "kv_down.")
    down = [w for n, w in weights.items() if n.startswith(tuple(f"layers.1.{p}" for p in first))]
    absorbed = HEADS * sizes.qk_nope_head_dim * sizes.kv_lora_rank
    assert meter.flops == 2 * (sum(w.size for w in down if w.ndim == 2) + absorbed)


@pytest.mark.parametrize("drafter", ["lookup", "lower layers", "tree"])
def test_guesses_change_no_text(drafter):
    model = decoder(num_hidden_layers=3)
    drafters: dict[str, Any] = {
        "lookup": PromptLookup(),
        "lower layers": kvlib.speculation.DraftModel(lower_layers(model, 1)),
        "tree": kvlib.speculation.DraftModel(lower_layers(model, 2), tree=branches(2, 1)),
    }
    prompts = [[3, 1, 4, 1, 5, 9, 2, 6], [2, 7], [1, 1, 1, 1]]
    plain = kvlib.generate(model, prompts, max_new_tokens=24, stop_tokens=())
    settings: dict[str, Any] = dict(max_new_tokens=24, stop_tokens=())
    for home in ("rows", "blocks"):
        cache = CACHES[home](model.layer_specs)
        found = kvlib.generate(
            model, prompts, cache=cache, drafter=drafters[drafter], gamma=3, **settings
        )
        assert found == plain


@pytest.mark.parametrize("codec, bound", [(int8, 0.03), (fp8, 0.2)])
def test_codes_of_latents(codec, bound):
    """Values are read from the keys' codes: logits are near, and nothing is kept twice."""
    model, tokens = decoder(), list(range(30))
    exact = model.new_cache(1, 48)
    cache = QuantizedCache(model.layer_specs, codec(), 1, 48)
    logits = []
    for one in (exact, cache):
        one.add(0)
        logits.append(model.forward(tokens, one, one.plan([0], [30]), rows="all"))
    error = math.sqrt(((logits[0] - logits[1]) ** 2).mean() / (logits[0] ** 2).mean())
    assert 1e-4 < error < bound  # of a number: the codes round, and nothing else does
    assert cache.memory().payload < exact.memory().payload / 2


def test_a_window_over_latents():
    wide, tokens = decoder(windows=(5, 5)), list(range(30))
    whole = PagedCache(wide.layer_specs, BlockPool(12, 4), retention=KeepAll())
    cache = PagedCache(wide.layer_specs, BlockPool(12, 4))
    for one in (whole, cache):
        one.add(0)
    right = wide.forward(tokens, whole, whole.plan([0], [30]), rows="all")
    found = np.concatenate([wide.forward([t], cache, cache.plan([0], [1])) for t in tokens])
    close(found, right, "logits", 1e-4)
    assert cache.memory().payload < whole.memory().payload / 4


def test_a_span_that_is_cut_out_turns_only_the_part_with_the_position():
    model, tokens = decoder(), list(range(20))
    cache = model.new_cache(1, 48)
    cache.add(0)
    model.forward(tokens, cache, cache.plan([0], [20]))
    before = [cache.read(layer, 0)[0].copy() for layer in range(2)]
    kvlib.remove_span(model, cache, 0, 4, 9)
    rank = SIZES["queries in two"].kv_lora_rank
    frequencies = oracle.rope_frequencies(model.config.rope, 6)
    for layer in range(2):
        after = cache.read(layer, 0)[0]
        assert (after[:, :, :rank] == before[layer][[*range(4), *range(9, 20)], :, :rank]).all()
        moved = oracle.rotate(
            before[layer][9:, :, rank:].astype(float), np.full(11, -5), frequencies
        )
        close(after[4:, :, rank:], moved, "turned part")


@pytest.mark.parametrize("change, message", [
    (dict(head_dim=24), "head_dim is 24, needed with latent: its qk_head_dim"),
    (dict(latent=SIZES["queries in two"]._replace(kv_lora_rank=0)), "kv_lora_rank"),
    (dict(latent=SIZES["queries in two"]._replace(q_lora_rank=0)), "q_lora_rank"),
    (dict(latent=Latent(12, 20, 11, 5, 14)), "qk_rope_head_dim is 5, needed: an even"),
    (dict(qk_norm=True), "qk_norm is True, needed with latent: False"),
    (dict(sinks=True), "sinks is True, needed with latent: False"),
])
def test_sizes_that_cannot_be(change, message):
    with pytest.raises(ValueError, match=message):
        config_of(SIZES["queries in two"], **change)


def test_a_config_without_latents_has_no_latent_attention():
    plain = config_of(SIZES["queries in two"], latent=None)
    with pytest.raises(ValueError, match="states no latent attention"):
        LatentAttention(plain, 0, {"o.weight": np.zeros((1, 1))})


@pytest.mark.parametrize("name", ["deepseek-v2", "deepseek-v3", "deepseek-v2-lite"])
def test_lower_layers_without_experts(name):
    model = kvlib.load_model(f"{ROOT}/tests/golden/{name}")
    low = lower_layers(model, 1)  # the first layer has no experts
    assert low.config.experts is None and len(low.layer_specs) == 1
    cache = low.new_cache(1, 8)
    cache.add(0)
    assert np.isfinite(low.forward([1, 2, 3], cache, cache.plan([0], [3]))).all()


@pytest.mark.parametrize("texts", [1, 3])
@pytest.mark.parametrize("home", CACHES)
def test_latents_are_read_once(home, texts):
    """As keys and as values: a decode step reads each stored number a single time."""
    model = decoder()
    cache = CACHES[home](model.layer_specs)
    for i in range(texts):
        cache.add(i)
    ids = list(range(texts))
    model.forward([5] * 12 * texts, cache, cache.plan(ids, [12] * texts))
    with kvlib.Meter() as meter:
        model.forward([7] * texts, cache, cache.plan(ids, [1] * texts))
    width = SIZES["queries in two"].width
    assert meter.by_label["attention"].read == texts * 2 * 13 * 4 * width
