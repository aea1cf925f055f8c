"""Prompts fed in chunks: the same tokens, less memory, reads that follow a formula."""

import gc
import tracemalloc

import numpy as np
import pytest
from models import decoder, text
from schedules import close
from test_decoder import new_cache

from kvlib import (
    BlockPool,
    DenseCache,
    LayerSpec,
    Meter,
    PagedCache,
    QuantizedCache,
    generate,
    stream,
)
from kvlib.attention import causal
from kvlib.caches import layer_groups
from kvlib.codecs import fp8, int8, kivi
from kvlib.model import Decoder

pytestmark = pytest.mark.filterwarnings("error")

PROMPTS = [text(1, 9), text(2, 1), text(3, 17), text(4, 4)]
CHUNKS = (1, 2, 3, 5, 8, 16, 100)


def paged(model: Decoder, block_size: int, codec=None) -> PagedCache:
    blocks = 4 * -(-32 // block_size) * len(layer_groups(model.layer_specs))
    cache = PagedCache(model.layer_specs, BlockPool(blocks, block_size), codec=codec, xp=np)
    for x in cache.storage():
        if x.dtype.kind == "f":
            x[...] = np.nan
    return cache


EXACT = {
    "the cache that generate makes": lambda model: None,
    "dense": lambda model: new_cache(model, 4, 32), "blocks of 1": lambda model: paged(model, 1),
    "blocks of 4": lambda model: paged(model, 4), "blocks of 64": lambda model: paged(model, 64),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("make", EXACT.values(), ids=EXACT)
@pytest.mark.parametrize("kind", ["llama", "hybrid", "gpt2", "qwen3"])
def test_chunks_give_the_tokens_of_the_whole_prompt(kind, make):
    model = decoder(kind, seed=3)
    needed = generate(model, PROMPTS, max_new_tokens=12)
    for chunk in CHUNKS:
        cache = make(model)
        settings = dict(max_new_tokens=12, cache=cache, prefill_chunk=chunk)
        assert generate(model, PROMPTS, **settings) == needed, f"chunks of {chunk}"
        assert cache is None or cache.seq_ids == ()


def test_who_has_read_his_prompt_decodes_while_others_read():
    model = decoder("llama", seed=3)
    order = list(stream(model, PROMPTS, max_new_tokens=3, prefill_chunk=4))
    # prompts of 9, 1, 17 and 4 tokens are read in 3, 1, 5 and 1 passes
    assert [i for i, _ in order] == [1, 3, 1, 3, 0, 1, 3, 0, 0, 2, 2, 2]
    whole = generate(model, PROMPTS, max_new_tokens=3)
    assert [[t for i, t in order if i == n] for n in range(4)] == whole


def lengths_of_passes(monkeypatch) -> list[tuple[int, ...]]:
    """From now on, the q_lens of every forward pass."""
    seen, forward = [], Decoder.forward

    def watched(self, tokens, cache, step, rows="last"):
        seen.append(step.q_lens)
        return forward(self, tokens, cache, step, rows)

    monkeypatch.setattr(Decoder, "forward", watched)
    return seen


def test_passes_are_as_long_as_asked(monkeypatch):
    model, seen = decoder("llama", seed=3), lengths_of_passes(monkeypatch)
    generate(model, [text(1, 10), text(2, 3)], max_new_tokens=4, prefill_chunk=4)
    assert seen == [(4, 3), (4, 1), (2, 1), (1, 1), (1,), (1,)]
    seen.clear()
    generate(model, [text(1, 10), text(2, 3)], max_new_tokens=2, prefill_chunk=np.int64(10))
    assert seen == [(10, 3), (1, 1)]


@pytest.mark.parametrize("codec", [int8(), fp8("e4m3"), int8(residual=6), kivi(4, 8, 8)])
@pytest.mark.parametrize("blocks", [False, True])
def test_chunks_write_the_codes_of_the_whole_prompt(codec, blocks):
    """In the first layer, whose keys depend on no attention, over newest tokens or codes."""
    model, prompt = decoder("llama", seed=3), text(5, 30)
    found = []
    for chunk in (30, 7, 1):
        if blocks:
            cache = paged(model, 16, codec)
        else:
            cache = QuantizedCache(model.layer_specs, codec, 1, 32, xp=np)
        cache.add("a", prompt)
        for a in range(0, 30, chunk):
            part = prompt[a : a + chunk]
            logits = model.forward(part, cache, cache.plan(["a"], [len(part)], part))
        found.append((*cache.read(0, "a")[:2], logits))
    for k, v, logits in found[1:]:
        close(k, found[0][0], "keys of layer 0", 1e-5)
        close(v, found[0][1], "values of layer 0", 1e-5)
        assert np.abs(logits - found[0][2]).max() < 0.3 * np.abs(logits).max()


def peak_bytes(model: Decoder, prompt: list[int], chunk: int | None) -> int:
    """The most that a generate of one token holds beside the cache and the weights."""
    cache = PagedCache(model.layer_specs, BlockPool(-(-len(prompt) // 64), 64), xp=np)
    generate(model, [prompt[:200]], max_new_tokens=1, cache=cache)
    model._rotations[0].at(cache.plan([_open(cache)], [len(prompt)]))
    cache.free("tables")
    thresholds = gc.get_threshold()
    gc.set_threshold(700, 10, 10)  # those of Python: conftest.py lets cycles wait for longer
    tracemalloc.start()
    try:
        generate(model, [prompt], max_new_tokens=1, cache=cache, prefill_chunk=chunk)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.set_threshold(*thresholds)


def _open(cache: PagedCache) -> str:
    cache.add("tables")
    return "tables"


def test_peak_memory_follows_the_chunk_and_not_the_prompt():
    model = decoder(
        "llama", hidden_size=256, intermediate_size=512, num_hidden_layers=1, num_key_value_heads=1,
        max_position_embeddings=4096,
    )
    prompt = text(1, 4096)
    whole, half = peak_bytes(model, prompt, None), peak_bytes(model, prompt[:2048], None)
    assert 1.8 < whole / half < 2.2, "a whole prompt needs memory in proportion to its length"
    chunked = {c: peak_bytes(model, prompt, c) for c in (64, 256)}
    assert chunked[64] < whole / 15 and chunked[256] < whole / 8
    # Lists of the prompt's token ids, 8 bytes per token each, may grow; one activation per token
    # would take 4 · 256 bytes.
    for chunk, peak in chunked.items():
        assert peak - peak_bytes(model, prompt[:2048], chunk) < 2048 * 128, "grows with the prompt"


def keys_read(model: Decoder, cache, prompt: list[int], chunk: int) -> list[int]:
    """Tokens that each layer's attention reads, from the bytes counted."""
    cache.add("a", prompt)
    read = 0
    for a in range(0, len(prompt), chunk):
        part = prompt[a : a + chunk]
        step = cache.plan(["a"], [len(part)], part)
        with Meter() as meter:
            model.forward(part, cache, step)
        read += meter.by_label["attention"].read
    a_token = sum(4 * s.num_kv_heads * (s.head_dim + s.v_dim) for s in model.layer_specs)
    assert read % a_token == 0
    return read // a_token


@pytest.mark.parametrize("make", list(EXACT.values())[1:], ids=list(EXACT)[1:])
def test_chunks_read_what_the_formula_says(make):
    """P(P + C) / (2C) tokens per layer, if C divides P: chunk j reads the first jC tokens once."""
    model, prompt = decoder("llama", seed=3), text(5, 24)
    for chunk in (1, 2, 3, 4, 6, 8, 12, 24):
        needed = 24 * (24 + chunk) // (2 * chunk)
        assert keys_read(model, make(model), prompt, chunk) == needed


def test_one_pass_reads_in_chunks_of_its_own(monkeypatch):
    """CHUNK_ROWS query rows a kv head at a time, each of which reads the keys again."""
    model, prompt = decoder("llama", seed=3, num_hidden_layers=1), text(5, 24)
    monkeypatch.setattr(causal, "CHUNK_ROWS", 8)  # 4 queries in groups of 2
    for name in ("dense", "blocks of 4"):
        assert keys_read(model, EXACT[name](model), prompt, 24) == 24  # one row, all keys once
    deep = decoder("llama", seed=3, num_hidden_layers=2)
    whole = 24 * (24 + 4) // (2 * 4)
    # (inner chunks of layer 0 + one look of layer 1) / 2 layers
    assert keys_read(deep, EXACT["dense"](deep), prompt, 24) == (whole + 24) // 2


@pytest.mark.parametrize("chunk", [None, 5])
def test_a_second_prompt_computes_only_what_is_new(monkeypatch, chunk):
    model, seen = decoder("llama", seed=3), lengths_of_passes(monkeypatch)
    system, first, second = text(6, 18), text(7, 5), text(8, 6)
    needed = [generate(model, [system + x], max_new_tokens=3)[0] for x in (first, second)]
    cache = paged(model, 4)
    settings = dict(max_new_tokens=3, cache=cache, prefill_chunk=chunk)
    seen.clear()
    assert generate(model, [system + first], **settings) == needed[:1]
    assert sum(sum(n) for n in seen) == 23 + 2
    seen.clear()
    with Meter() as meter:
        assert generate(model, [system + second], **settings) == needed[1:]
    # 16 of the 18 shared tokens fill blocks; 8 of 24 remain, and 2 decodes
    assert sum(sum(n) for n in seen) == 8 + 2
    a_token = sum(4 * s.num_kv_heads * (s.head_dim + s.v_dim) for s in model.layer_specs)
    assert meter.by_label["append"].written == 10 * a_token


def test_a_prompt_that_is_held_whole_computes_one_token(monkeypatch):
    model, seen = decoder("llama", seed=3), lengths_of_passes(monkeypatch)
    cache, prompt = paged(model, 1), text(6, 12)
    first = generate(model, [prompt], max_new_tokens=4, cache=cache)
    seen.clear()
    assert generate(model, [prompt], max_new_tokens=4, cache=cache) == first
    assert seen == [(1,)] * 4


def other(model: Decoder, **changes) -> DenseCache:
    """A cache whose second layer differs from the model's."""
    spec = model.layer_specs[1]
    given = dict(num_kv_heads=spec.num_kv_heads, head_dim=spec.head_dim, window=spec.window)
    changed = LayerSpec(**{**given, **changes})
    return DenseCache([model.layer_specs[0], changed, *model.layer_specs[2:]], 1, 32)


@pytest.mark.parametrize(("make", "error", "words"), [
    (lambda m: DenseCache(m.layer_specs[:2], 1, 32), ValueError, "for 2 layers, .* has 3"),
    (lambda m: other(m, num_kv_heads=4), ValueError, "layer 1 .* num_kv_heads = 4, .* 2:"),
    (lambda m: other(m, head_dim=16), ValueError, "layer 1 .* head_dim = 16, .* has 8"),
    (lambda m: other(m, v_head_dim=4), ValueError, "layer 1 .* v_head_dim = 4, .* has 8"),
    (lambda m: other(m, window=4), ValueError, "layer 1 .* window = 4, .* has None"),
    (lambda m: other(m, softcap=2.0), ValueError, "layer 1 .* softcap = 2.0, .* has None"),
    (lambda m: other(m, sm_scale=1.0), ValueError, "layer 1 .* sm_scale = 1.0, .* has None"),
    (lambda m: other(m, v_from_k=True), ValueError, "layer 1 .* v_from_k = True, .* False"),
    (lambda m: BlockPool(4, 4), TypeError, "cache must be a cache of the model's layers"),
])
def test_a_cache_that_does_not_fit_the_model_is_refused(make, error, words):
    model = decoder("hybrid")
    cache = make(model)
    for f in (stream, generate):
        with pytest.raises(error, match=words):
            f(model, [[1, 2]], cache=cache)
