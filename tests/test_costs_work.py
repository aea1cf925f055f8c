"""Work of a pass: equal to what kvlib's float32 decoders count while they run, exactly."""

from typing import Any

import numpy as np
import pytest
from repository import ROOT

from kvlib import Decoder, Meter, ModelConfig, attend, load_reference_model
from kvlib.costs import (
    CODECS,
    GPUS,
    MODELS,
    Bytes,
    Flops,
    FlopsPerByte,
    ModelSpec,
    Tokens,
    decode,
    formulas,
    prefill,
    uncached,
)
from kvlib.model import random_weights

SIZES: dict[str, Any] = dict(
    vocab_size=31, hidden_size=24, intermediate_size=20, num_hidden_layers=3, num_attention_heads=6,
    num_key_value_heads=2, head_dim=8, max_position_embeddings=64,
)
LAYERS = ["sliding_attention", "full_attention", "sliding_attention"]
CONFIGS: dict[str, dict[str, Any]] = {
    "gqa": dict(SIZES, model_type="llama"),
    "mha": dict(SIZES, model_type="llama", num_key_value_heads=6, head_dim=4),
    "mqa, biases, tied": dict(
        SIZES, model_type="qwen2", num_key_value_heads=1, head_dim=4, tie_word_embeddings=True,
    ),
    "windows": dict(SIZES, model_type="mistral", sliding_window=5),
    "hybrid": dict(
        SIZES, model_type="qwen3", use_sliding_window=True, sliding_window=4, layer_types=LAYERS,
    ),
}
FLOAT32 = dict(kv_dtype="float32", weight_dtype="float32")


def both(name: str) -> tuple[Decoder, ModelSpec]:
    if name == "reference":
        path = ROOT / "kvlib/reference/config.json"
        return load_reference_model(), ModelSpec.from_config(path)
    config = ModelConfig.from_dict(CONFIGS[name])
    return Decoder(config, random_weights(config, 0)), ModelSpec.from_config(CONFIGS[name], name)


def ids(model: Decoder, count: int) -> list[int]:
    return np.random.default_rng(count).integers(0, model.config.vocab_size, count).tolist()


def filled(model: Decoder, contexts: list[int]) -> Any:
    """A cache whose requests hold one token less than `contexts`."""
    cache = model.new_cache(len(contexts), max(contexts))
    for i, n in enumerate(contexts):
        cache.add(i)
        model.forward(ids(model, n - 1), cache, cache.plan([i], [n - 1]))
    return cache


def counted_step(model: Decoder, cache: Any, batch: int) -> Meter:
    with Meter() as meter:
        step = cache.plan(list(range(batch)), [1] * batch)
        model.forward(ids(model, batch), cache, step)
    return meter


def inputs(model: Decoder, rows: int) -> int:
    """Bytes of x that `linear` reads beside the weights, which the formulas do not count."""
    c = model.config
    a_layer = 2 * c.hidden_size + c.num_attention_heads * c.head_dim + c.intermediate_size
    return 4 * rows * (c.num_hidden_layers * a_layer + c.hidden_size)


def last_layer(model: Decoder) -> int:
    """Weights of the last layer behind its keys and values, which only wanted rows pass."""
    at = f"layers.{model.config.num_hidden_layers - 1}."
    return sum(model.weights[f"{at}{name}.weight"].size for name in ("o", "gate_up", "down"))


# ---------------------------------------------------------------------------- decoding


@pytest.mark.parametrize("name, batch, context", [
    *((name, *sizes) for name in CONFIGS for sizes in ((1, 2), (1, 5), (3, 6), (1, 40), (9, 40))),
    *(("reference", *sizes) for sizes in ((1, 2), (1, 600), (8, 128))),
])  # fmt: skip
def test_decode_equals_what_is_counted(name: str, batch: int, context: int) -> None:
    model, spec = both(name)
    cache = filled(model, [context] * batch)
    meter, work = counted_step(model, cache, batch), decode(spec, batch, context, **FLOAT32)
    attention, linear = meter.by_label["attention"], meter.by_label["linear"]
    assert Flops(attention.flops) == work.attention.flops
    assert Bytes(attention.read) == work.kv_read
    assert Bytes(meter.by_label["append"].written) == work.kv_written
    assert Flops(linear.flops) == work.linear.flops
    assert Bytes(linear.read - inputs(model, batch)) == work.weights
    assert Flops(meter.flops) == work.total.flops
    assert spec.num_parameters == model.num_parameters
    # and the cache holds what the spec says
    payload = cache.memory().payload
    assert Bytes(payload) == spec.kv_bytes(batch, context, "float32")


def test_requests_of_different_lengths_add_up() -> None:
    model, spec = both("hybrid")
    lengths = [2, 3, 17, 40]
    meter = counted_step(model, filled(model, lengths), len(lengths))
    works = [decode(spec, 1, n, **FLOAT32) for n in lengths]
    attention = meter.by_label["attention"]
    assert attention.flops == sum(int(w.attention_flops) for w in works)
    assert attention.read == sum(int(w.kv_read) for w in works)
    assert meter.by_label["linear"].flops == sum(int(w.linear_flops) for w in works)


# ---------------------------------------------------------------------------- prompts


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("batch, prompt", [(1, 2), (1, 30), (3, 9)])
def test_prefill_equals_what_is_counted(name, batch, prompt, monkeypatch) -> None:
    # A chunk of queries is computed against all keys that its last one sees; chunks of one query
    # compute the needed pairs and no others. So do texts of which each is computed alone.
    monkeypatch.setattr("kvlib.attention.causal.CHUNK_ROWS", 1)
    monkeypatch.setattr("kvlib.attention.batched.few_queries", lambda queries, _: queries == 1)
    model, spec = both(name)
    work = prefill(spec, batch, prompt, **FLOAT32)
    head = model.config.vocab_size * model.config.hidden_size

    def run(rows: str) -> Meter:
        cache = model.new_cache(batch, prompt)
        for i in range(batch):
            cache.add(i)
        step = cache.plan(list(range(batch)), [prompt] * batch)
        with Meter() as meter:
            model.forward(ids(model, batch * prompt), cache, step, rows)
        return meter

    whole, spared = run(rows="all"), run(rows="last")
    unwanted = batch * (prompt - 1)
    assert whole.by_label["attention"].flops == int(work.attention_flops)
    assert whole.by_label["append"].written == int(work.kv_written)
    # Logits of every row: the formula counts the head for the last row of each request alone.
    assert whole.by_label["linear"].flops == int(work.linear_flops) + 2 * unwanted * head
    assert whole.by_label["linear"].read == int(work.weights) + inputs(model, batch * prompt)
    # Wanted rows alone: the decoder also spares the others the last layer, once its keys and
    # values are stored. The formula, like common engines, does not.
    less = int(work.linear_flops) - spared.by_label["linear"].flops
    assert less == 2 * unwanted * last_layer(model)
    c, window = model.config, model.config.windows[-1] or 0
    pairs = batch * formulas.pairs(prompt - 1, prompt - 1, window)
    less = int(work.attention_flops) - spared.by_label["attention"].flops
    assert less == pairs * c.num_attention_heads * 2 * 2 * c.head_dim
    assert spared.by_label["append"].written == int(work.kv_written)


def test_one_chunk_reads_each_key_once() -> None:
    model, spec = both("gqa")
    cache = model.new_cache(1, 40)
    cache.add("a")
    with Meter() as meter:
        model.forward(ids(model, 40), cache, cache.plan(["a"], [40]), rows="all")
    # the formula has fresh keys and values in 16 bits, the decoder in 32
    assert meter.by_label["attention"].read == 2 * int(prefill(spec, 1, 40, **FLOAT32).kv_read)


@pytest.mark.parametrize("name", ["gqa", "hybrid"])
def test_generation_with_a_cache_and_without(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvlib.attention.causal.CHUNK_ROWS", 1)
    model, spec = both(name)
    prompt, new = 7, 6
    text = ids(model, prompt + new)
    with Meter() as recomputed:
        for n in range(prompt, prompt + new):
            cache = model.new_cache(1, n)
            cache.add("a")
            model.forward(text[:n], cache, cache.plan(["a"], [n]), rows="all")
    cache = model.new_cache(1, prompt + new)
    cache.add("a")
    with Meter() as cached:
        model.forward(text[:prompt], cache, cache.plan(["a"], [prompt]), rows="all")
        for n in range(prompt, prompt + new - 1):
            model.forward(text[n : n + 1], cache, cache.plan(["a"], [1]))
    found = uncached(spec, prompt, new)
    assert found.recomputed == Flops(recomputed.flops)
    assert found.cached == Flops(cached.flops)
    for part in ("linear", "attention"):
        assert getattr(found, part).cached == Flops(cached.by_label[part].flops)
        assert getattr(found, part).recomputed == Flops(recomputed.by_label[part].flops)
    assert found.ratio == recomputed.flops / cached.flops


def test_latent_attention_is_counted_as_attend_counts_it() -> None:
    """One stored vector of 576 numbers serves 128 heads, as key and, up to 512, as value."""
    seq, model = 48, MODELS["deepseek-v3"]
    k = np.ones((seq, 1, 576), np.float16)
    q = np.ones((1, 128, 576), np.float16)
    with Meter() as meter:
        attend(q, k, k[..., :512], np.array([seq - 1]), np.arange(seq))
    work = decode(model, 1, seq)
    assert Flops(61 * meter.flops) == work.attention_flops
    assert Bytes(61 * k.nbytes) == work.kv_read
    assert meter.read == k.nbytes  # the values are a part of the keys
    assert round(meter.flops / k.nbytes, 1) == 241.8
    limit = decode(model, 1, model.max_context).attention.intensity
    assert 241.0 < limit.value < 241.8


# ---------------------------------------------------------------------------- named figures


def test_a_step_of_llama_2_7b_on_an_h100() -> None:
    step = decode(MODELS["llama-2-7b"], 1, 4096)
    assert f"{step.weights:GB}" == "13.21 GB"  # 13.48 with the table of embeddings
    assert f"{step.kv_read:GB}" == "2.15 GB"
    floor = step.floor(GPUS["h100-sxm"])
    assert floor.bound == "memory" and floor.seconds == floor.memory
    assert f"{floor.seconds:ms}" == "4.59 ms"
    assert floor.tokens_per_second == Tokens(1) / floor.seconds
    assert step.linear.intensity == FlopsPerByte(1)


def test_cached_against_uncached_of_llama_2_7b() -> None:
    found = uncached("llama-2-7b", 1024, 100)
    assert (found.passes.cached, found.passes.recomputed) == (Tokens(1_123), Tokens(107_350))
    ratios = (found.linear.ratio, found.attention.ratio, found.ratio)
    assert [round(r, 1) for r in ratios] == [95.6, 91.4, 95.5]
    assert found.cached == found.linear.cached + found.attention.cached


def test_no_compressed_entry_is_read_before_it_is_whole() -> None:
    assert prefill("deepseek-v4-flash", 4, 3).kv_read == Bytes(4 * 3 * 43 * 512 * 2)


def test_batch_moves_products_and_not_attention() -> None:
    one, many = (decode("llama-3.1-8b", n, 8192) for n in (1, 64))
    assert many.attention.intensity == one.attention.intensity
    assert many.linear.intensity == 64 * one.linear.intensity
    assert one.attention.intensity.value == pytest.approx(4, rel=1e-3)
    eight = decode("llama-3.1-8b", 1, 8192, kv_dtype="fp8")
    assert eight.attention.intensity.value == pytest.approx(8, rel=2e-3)
    assert decode("llama-3.1-8b", 1, 8192, weight_dtype="int8").weights * 2 == one.weights
    together = decode("llama-3.1-8b", 64, 8192, shared=8191)
    assert together.kv_read.value == pytest.approx(one.kv_read.value, rel=0.01)
    assert together.attention.intensity > 40 * one.attention.intensity


def test_prefill_is_compute_bound_and_its_floor_counts_prompt_tokens() -> None:
    work = prefill("llama-3.1-8b", 2, 4096)
    floor = work.floor("h100-sxm")
    assert floor.bound == "compute" and floor.seconds == work.total.flops / GPUS["h100-sxm"].bf16
    assert floor.tokens_per_second == Tokens(2 * 4096) / floor.seconds
    faster = work.floor("h100-sxm", compute="fp8")
    assert faster.compute.value == pytest.approx(floor.compute.value * 989 / 1979)


@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_every_part_counts_what_is_kept_and_no_activations(phase: str) -> None:
    work = {"decode": decode, "prefill": prefill}[phase]("llama-3.1-8b", 4, 8192)
    assert work.linear.bytes == work.weights
    assert work.attention.bytes == work.kv_read + work.kv_written
    assert work.total.bytes == work.weights + work.kv_read + work.kv_written
    assert work.floor("h100-sxm").memory == work.total.bytes / GPUS["h100-sxm"].bandwidth


def test_gpus_share_the_work_but_repeat_heads() -> None:
    work = decode("llama-3.1-70b", 4, 65_536)  # 8 key/value heads
    kv, rest = work.kv_read + work.kv_written, work.weights
    bandwidth = GPUS["h100-sxm"].bandwidth
    for gpus, share in ((1, 1.0), (2, 1 / 2), (8, 1 / 8), (16, 1 / 8), (64, 1 / 8)):
        floor = work.floor("h100-sxm", gpus)
        expected = (rest / gpus + kv * share) / bandwidth
        assert floor.memory.value == pytest.approx(expected.value)
        assert floor.compute.value == pytest.approx(work.floor("h100-sxm").compute.value / gpus)
    latent = decode("deepseek-v3", 64, 65_536)  # every GPU holds the one latent vector
    expected = latent.weights / 8 + latent.kv_read + latent.kv_written
    assert latent.floor("h200-sxm", 8).memory.value == pytest.approx(
        (expected / GPUS["h200-sxm"].bandwidth).value
    )


def test_work_reads_as_a_table() -> None:
    lines = repr(decode("llama-2-7b", 2, 4096)).splitlines()
    assert lines[0] == "decode of Llama-2-7B, 2 requests of 4,096 tokens"
    assert [line.split()[0] for line in lines[1:]] == ["linear", "attention", "total"]
    assert "13.21 GFLOP" not in lines[1] and "26.43 GFLOP" in lines[1]
    assert repr(uncached("llama-2-7b", 1024, 100)).splitlines()[-1].endswith("95.5")
    assert repr(decode("llama-2-7b", 1, 4096).floor("h100-sxm")).startswith("Floor(4.59 ms, mem")


# ---------------------------------------------------------------------------- errors


@pytest.mark.parametrize("call, error, words", [
    (lambda: decode("llama-2-7b", 0, 5), ValueError, "batch is 0, needed: a whole number"),
    (lambda: decode("llama-2-7b", 1, Bytes(2)), TypeError, "context is Bytes"),
    (lambda: decode("llama-2-7b", 1, 4097), ValueError, "4,097 tokens, needed: at most 4,096"),
    (lambda: prefill("llama-2-7b", 1, 4097), ValueError, "prompt is 4,097 tokens"),
    (lambda: uncached("llama-2-7b", 4000, 98), ValueError, "prompt . new - 1 is 4,097"),
    (lambda: decode("llama-2-7b", 1, 5, shared=5), ValueError, "shared is 5.*which is 5"),
    (lambda: decode("llama-2-7b", 1, 5, "bf17"), ValueError, "'bf17'.*bfloat16"),
    (lambda: decode("llama-2-7b", 1, 5, weight_dtype="x"), ValueError, "'x'"),
    (lambda: decode("lama-2-7b", 1, 5), ValueError, "llama-2-7b"),
    (lambda: decode(7, 1, 5), TypeError, "model is 7, needed: a ModelSpec"),
    (lambda: decode("llama-2-7b", 1, 5).floor("h100"), ValueError, "h100-sxm"),
    (lambda: decode("llama-2-7b", 1, 5).floor(None), TypeError, "gpu is None"),
    (lambda: decode("llama-2-7b", 1, 5).floor("l4", 3), ValueError, "gpus is 3.*32 query"),
    (lambda: decode("llama-2-7b", 1, 5).floor("l4", 1, "fp4"), ValueError, "'fp4'"),
    (lambda: decode("llama-2-7b", 1, 5).floor("a100-80-sxm", 1, "fp8"), ValueError, "no fp8"),
    (lambda: decode("deepseek-v3", 1, 5).floor("l4", 256), ValueError, "128 query heads of"),
])
def test_errors_name_what_came_and_what_was_needed(call: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_tokens_and_codecs_are_taken_as_they_are() -> None:
    plain = decode("llama-2-7b", 1, 4096, "int8")
    assert decode(MODELS["llama-2-7b"], 1, Tokens(4096), CODECS["int8"]) == plain
    assert decode("llama-2-7b", np.int64(1), np.int32(4096), "int8") == plain
