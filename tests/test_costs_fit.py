"""Does it fit: the range of contexts, the number of GPUs, the whole bill."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlib.costs import (
    ASSUMPTIONS,
    GPUS,
    MODELS,
    Assumption,
    Bytes,
    ModelSpec,
    Tokens,
    decode,
    fit,
    gpus_needed,
    kv_on_one,
    max_context,
)

H100 = GPUS["h100-sxm"]
MANY = [("llama-2-7b", "h100-sxm"), ("llama-3.1-8b", "l4"), ("gemma-3-27b", "h200-sxm")]
MANY += [("deepseek-v2-lite", "a100-80-sxm"), ("mistral-7b-v0.1", "rtx-4090")]
SMALL = dict(
    model_type="llama", vocab_size=1000, hidden_size=6, intermediate_size=11, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, head_dim=3, max_position_embeddings=512,
)
dtypes = st.sampled_from(("bfloat16", "fp8", "int8", "int4", "int2", "float32"))


def numbers(found: Any) -> list[int]:
    return [int(tokens) for tokens in found.cases.values()]


# ---------------------------------------------------------------------------- contexts


def test_llama_2_7b_on_an_h100_is_a_range() -> None:
    found = max_context(MODELS["llama-2-7b"], H100)
    assert (
        list(found.cases)
        == list(ASSUMPTIONS)
        == ["weights only", "1 GiB overhead", "92 % utilisation", "90 % utilisation"]
    )
    assert numbers(found) == [137_412, 135_364, 124_363, 121_101]
    assert (found.low, found.high) == (Tokens(121_101), Tokens(137_412))
    assert found.model_limit == Tokens(4096)
    # The copied "121,378" is inside the range by accident: the weights it took off are half.
    assert found.low < Tokens(121_378) < found.high
    assert max_context("llama-3.1-8b", "h100-sxm").high == Tokens(529_939)


def test_the_range_reads_as_a_table() -> None:
    assert repr(max_context("llama-2-7b", "h100-sxm")).splitlines() == [
        "Llama-2-7B (bfloat16) on H100 SXM, 1 request, keys and values in bfloat16",
        "  weights only            137,412 tokens", "  1 GiB overhead          135,364 tokens",
        "  92 % utilisation        124,363 tokens", "  90 % utilisation        121,101 tokens",
        "  the model's limit         4,096 tokens",
    ]
    two = repr(max_context("mistral-7b-v0.1", "h100-sxm", 2, "fp8", "fp8", gpus=2))
    assert "(fp8) on 2 H100 SXM, 2 requests, keys and values in fp8" in two
    assert two.count("no limit") == 4


@pytest.mark.parametrize("model, gpu", MANY)
@given(st.integers(1, 64), dtypes, st.sampled_from((None, 1, 16, 128)))
def test_the_longest_context_fits_and_one_token_more_does_not(model, gpu, batch, dtype, block):
    spec, card = MODELS[model], GPUS[gpu]
    weights = spec.weight_bytes("int8")
    found = max_context(spec, card, batch, dtype, "int8", block_size=block)
    for name, tokens in found.cases.items():
        room = ASSUMPTIONS[name].budget(card) - weights
        if tokens == Tokens(2**40):  # bounded by windows: any length takes the same
            assert spec.kv_bytes(batch, 2**40, dtype, block) <= room
            assert all(g.window for g in spec.layers)
            continue
        if tokens:
            assert spec.kv_bytes(batch, tokens, dtype, block) <= room
        assert spec.kv_bytes(batch, int(tokens) + 1, dtype, block) > room


def test_gpus_give_room_until_heads_repeat() -> None:
    held = MODELS["llama-3.1-8b"].weight_bytes()
    tokens = MODELS["llama-3.1-8b"].kv_bytes_per_token()
    for gpus in (1, 2, 4, 8, 16, 32):
        found = max_context("llama-3.1-8b", "h100-sxm", gpus=gpus)
        room = H100.usable - Bytes(-(-held.value // gpus))
        assert int(found.high) == room // (tokens / min(gpus, 8))  # it has 8 key/value heads
    # MLA: the latent vectors are on every GPU, so only the weights make room
    held = MODELS["deepseek-v2-lite"].weight_bytes()
    for gpus in (1, 4, 16):
        found = max_context("deepseek-v2-lite", "h100-sxm", gpus=gpus)
        assert int(found.high) == (H100.usable - Bytes(-(-held.value // gpus))) // Bytes(31_104)


def test_assumptions_of_ones_own() -> None:
    own = {"half": Assumption(0.5), "half, less 2 GiB": Assumption(0.5, Bytes(2**31))}
    found = max_context("llama-2-7b", "h100-sxm", assumptions=own)
    room = int(H100.usable.value * 0.5) - 2 * 6_738_415_616
    assert numbers(found) == [room // 524_288, (room - 2**31) // 524_288]
    # weights that fit under some assumptions only: no token under the others
    tight = {"all": Assumption(), "a tenth": Assumption(0.1)}
    assert numbers(max_context("llama-2-7b", "h100-sxm", assumptions=tight)) == [137_412, 0]


@pytest.mark.parametrize("call, error, words", [
    (lambda: Assumption(0), ValueError, "utilisation is 0"),
    (lambda: Assumption(1.5), ValueError, "utilisation is 1.5, needed: above 0, at most 1"),
    (lambda: Assumption(overhead=Bytes(-1)), ValueError, "overhead is .*not below 0"),
    (lambda: max_context("llama-2-7b", "l4", assumptions={}), ValueError, "assumptions is em"),
    (
        lambda: max_context("llama-3.1-70b", "h100-sxm"), ValueError,
        "weights of Llama-3.1-70B .* take 131.42 GiB on each GPU, needed: at most 79.65 GiB",
    ),
    (lambda: max_context("llama-2-7b", "l4", 0), ValueError, "batch is 0, needed"),
    (lambda: max_context("qwen2.5-7b", "l4", gpus=8), ValueError, "28 query heads and 4 key"),
    (lambda: max_context("llama-3.1-8b", "l4", gpus=3), ValueError, "gpus is 3"),
    (lambda: max_context("lama2 7b", "l4"), ValueError, "did you mean llama-2-7b"),
    (lambda: max_context("llama-2-7b", "h10"), ValueError, "did you mean h100"),
    (lambda: max_context("llama-2-7b", "l4", kv_dtype="int9"), ValueError, "unknown dtype"),
    (lambda: max_context("llama-2-7b", "l4", weight_dtype="q4"), ValueError, "unknown dtype"),
    (lambda: fit("llama-2-7b", "l4", 1, 4097), ValueError, "4,097 tokens, needed: at most"),
    (lambda: fit("llama-2-7b", 3, 1, 8), TypeError, "gpu is 3, needed: a Gpu or the name"),
    (lambda: gpus_needed("llama-2-7b", "l4", 1, 4097), ValueError, "context is 4,097"),
    (
        lambda: gpus_needed("llama-2-7b", "l4", 1, 8, assumption="none"), ValueError,
        "assumption is 'none', needed: one of weights only",
    ),
    (lambda: kv_on_one("llama-3.1-8b", "expert", 2, 1, 10), ValueError, "way must be one of"),
    (lambda: kv_on_one("llama-3.1-8b", "tensor", 3, 1, 10), ValueError, "evenly"),
    (lambda: kv_on_one("llama-3.1-8b", "pipeline", 33, 1, 10), ValueError, "at most 32"),
])
def test_errors_name_what_came_and_what_was_needed(call: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        call()


# ---------------------------------------------------------------------------- GPUs


def test_gpus_needed_is_the_smallest_that_fits() -> None:
    for model, gpu in (("llama-3.1-70b", "h100-sxm"), ("llama-3.1-8b", "l4"), *MANY):
        for batch in (1, 4, 16):
            plan = gpus_needed(model, gpu, batch, 8192 if model != "llama-2-7b" else 4096)
            context = 8192 if model != "llama-2-7b" else 4096
            assert plan.free >= Bytes(0) and plan.free == plan.budget - plan.weights - plan.kv
            assert fit(model, gpu, batch, context, gpus=plan.gpus).cases["90 % utilisation"].fits
            assert list(plan.refused) == [2**i for i in range(plan.gpus.bit_length() - 1)]
            for fewer in plan.refused:
                assert not fit(model, gpu, batch, context, gpus=fewer).fits


def test_one_token_too_many_takes_another_gpu() -> None:
    for gpus in (1, 2, 4):
        edge = int(max_context("llama-2-7b", "l4", 200, "int4", gpus=gpus).low)
        assert 1 < edge < 4096
        assert gpus_needed("llama-2-7b", "l4", 200, edge, "int4").gpus == gpus
        assert gpus_needed("llama-2-7b", "l4", 200, edge + 1, "int4").gpus == 2 * gpus
    edge = int(max_context("llama-3.1-8b", "rtx-4090").low)  # here a token is 0.1 MB, not 33
    assert gpus_needed("llama-3.1-8b", "rtx-4090", 1, edge).gpus == 1
    assert gpus_needed("llama-3.1-8b", "rtx-4090", 1, edge + 1).gpus == 2


def test_weights_are_dealt_out_in_whole_bytes() -> None:
    spec = ModelSpec.from_config(dict(SMALL, vocab_size=1001), name="odd")
    whole = spec.weight_bytes("int4").value
    assert whole % 4
    assert fit(spec, "l4", 1, 8, weight_dtype="int4", gpus=4).weights == Bytes(whole // 4 + 1)


def test_a_large_model_on_many_gpus() -> None:
    plan = gpus_needed("llama-3.1-405b", "h100-sxm", 8, 32_768)
    assert (plan.gpus, plan.copies) == (16, 2)  # 8 key/value heads on 16 GPUs
    assert plan.weights == Bytes(2 * 405_853_388_800 // 16)
    assert plan.kv == Bytes(8 * 32_768 * 516_096 // 8)
    latent = gpus_needed("deepseek-v3", "h200-sxm", 8, 32_768)
    assert latent.copies == latent.gpus == 16
    assert latent.kv == Bytes(8 * 32_768 * 70_272)
    assert "the latent vectors are held by 16 GPUs" in repr(latent)
    lines = repr(plan).splitlines()
    assert lines[0].endswith("8 x 32,768 tokens in bfloat16, 90 % utilisation: 16 GPUs")
    assert "each key/value head is held by 2 GPUs" in repr(plan)
    assert lines[-1] == "  not 8: 38.56 GiB too little on each"


def test_no_number_is_enough() -> None:
    with pytest.raises(ValueError, match="no number of L4 holds Qwen2.5-7B .*28 query heads"):
        gpus_needed("qwen2.5-7b", "l4", 64, 131_072)
    with pytest.raises(ValueError, match="no number of L4 holds DeepSeek-V3 .*128: "):
        gpus_needed("deepseek-v3", "l4", 64, 131_072)  # more GPUs do not spread the latents
    # a looser assumption can be enough where the cautious one is not
    loose = gpus_needed("llama-2-7b", "h100-sxm", 32, 4096, assumption="weights only")
    assert loose.gpus == 1
    assert gpus_needed("llama-2-7b", "h100-sxm", 32, 4096).gpus == 2


# ---------------------------------------------------------------------------- the bill


def test_the_bill_adds_up() -> None:
    found = fit("llama-3.1-8b", "h100-sxm", 8, 32_768, "int8")
    spec = MODELS["llama-3.1-8b"]
    assert found.fits and found.weights == spec.weight_bytes()
    assert found.kv == spec.kv_bytes(8, 32_768, "int8")
    contexts = max_context(spec, H100, 8, "int8")
    for name, case in found.cases.items():
        assert case.budget == ASSUMPTIONS[name].budget(H100)
        assert case.headroom == case.budget - found.weights - found.kv
        assert case.longest == contexts.cases[name]
        assert case.fits == (case.longest >= Tokens(32_768)) == (case.requests >= 8)
        one = spec.kv_bytes(1, 32_768, "int8")
        left = case.budget - found.weights
        assert one * case.requests <= left < one * (case.requests + 1)
    assert found.floor == decode(spec, 8, 32_768, "int8").floor(H100)
    assert found.enough == 1
    assert found.verdict == "It fits: 40.23 GiB left (90 % utilisation)."


@pytest.mark.parametrize("model, gpu", MANY)
@given(batch=st.integers(1, 300), context=st.integers(1, 4096), dtype=dtypes)
def test_the_three_answers_never_contradict(model, gpu, batch, context, dtype) -> None:
    found = fit(model, gpu, batch, context, dtype, "int8", block_size=16)
    for case in found.cases.values():
        assert case.fits == (case.longest >= Tokens(context)) == (case.requests >= batch)
    assert found.fits == all(case.fits for case in found.cases.values())
    if found.fits:
        assert found.enough == 1 and found.verdict.startswith("It fits")
    json.dumps(found.to_dict(), allow_nan=False)


def test_verdicts() -> None:
    huge = fit("llama-3.1-70b", "h100-sxm", 8, 32_768)
    assert not huge.fits and huge.floor is None
    assert huge.verdict == (
        "It does not fit: the weights alone take 131.42 GiB, 79.65 GiB can be used; "
        "4 H100 SXM are enough (90 % utilisation)."
    )
    assert [case.requests for case in huge.cases.values()] == [0] * 4
    assert "a decode step" not in repr(huge)
    long = fit("llama-3.1-8b", "rtx-4090", 1, 131_072)
    assert long.verdict.startswith("It does not fit: 6.97 GiB too little at best; 2 RTX 4090")
    tight = fit("llama-2-7b", "h100-sxm", 32, 4096)
    assert [case.fits for case in tight.cases.values()] == [True, True, False, False]
    assert not tight.fits and tight.floor is not None
    assert tight.verdict == (
        "Tight: it fits assuming weights only or 1 GiB overhead, not otherwise; "
        "2 H100 SXM are enough (90 % utilisation)."
    )
    never = fit("deepseek-v3", "l4", 64, 131_072)
    assert never.verdict.endswith("no number of L4 is enough (90 % utilisation).")
    shared = fit("llama-3.1-405b", "h100-sxm", 1, 64, gpus=8)
    assert "the weights alone take 94.50 GiB on each GPU, 79.65 GiB" in shared.verdict


def test_the_bill_reads_as_a_table() -> None:
    text = repr(fit("llama-3.1-70b", "h100-sxm", 8, 32_768, "int8", gpus=16))
    assert text.startswith("Llama-3.1-70B (bfloat16) on 16 H100 SXM: 8 requests of 32,768 tokens")
    for line in (
        "weights on each GPU                   8.21 GiB",
        "keys and values on each GPU           5.16 GiB", "each key/value head is held by 2 GPUs",
        "the model reads at most 131,072 tokens",
        "a decode step takes at least 4.25 ms, memory bound",
    ):
        assert line in text, line
    assert "not confirmed" not in text


def test_what_rests_on_unconfirmed_figures_says_so() -> None:
    found = fit("deepseek-v2-lite", "a100-80-sxm", 1, 64)
    assert found.unconfirmed == (
        "A100 80 SXM usable memory", "DeepSeek-V2-Lite tie_word_embeddings",
    )
    assert "not confirmed by a public text: A100 80 SXM usable memory, DeepSeek" in repr(found)
    assert fit("llama-2-7b", "h100-nvl", 1, 64).unconfirmed == ("H100 NVL bf16 rate",)
    assert fit("llama-2-7b", "h100-sxm", 1, 64).unconfirmed == ()


def test_the_bill_as_plain_data() -> None:
    found = fit("llama-3.1-8b", "h100-sxm", 8, 32_768, "int8", "fp8", 2, 16).to_dict()
    assert json.loads(json.dumps(found)) == found
    cases = found.pop("cases")
    floor = found.pop("decode_floor_seconds"), found.pop("decode_ceiling_tokens_per_second")
    assert 0 < floor[0] < 0.01 and floor[1] == pytest.approx(8 / floor[0])
    assert found == {
        "model": "llama-3.1-8b", "gpu": "h100-sxm", "gpus": 2, "batch": 8, "context_tokens": 32_768,
        "kv_dtype": "int8", "weight_dtype": "fp8", "block_size_tokens": 16, "fits": True,
        "verdict": found["verdict"], "parameters": 8_030_261_248, "weights_bytes": 8_030_261_248,
        "weights_bytes_per_gpu": 4_015_130_624, "kv_bytes_per_token": 32 * (2048 + 16 * 4),
        "kv_bytes_per_gpu": 8 * 32_768 * 32 * (1024 + 8 * 4),
        "kv_bytes_per_gpu_by_reserve": {}, "reserve": "needed", "step_tokens": 1,
        "budget_tokens": None, "usable_bytes_per_gpu": 81_559 * 2**20,
        "gpus_holding_each_kv_head": 1, "model_limit_tokens": 131_072, "decode_bound": "memory",
        "gpus_enough": 1, "unconfirmed": [],
    }
    assert list(cases) == list(ASSUMPTIONS)
    keys = {"fits", "budget_bytes_per_gpu", "headroom_bytes_per_gpu"}
    keys |= {"max_context_tokens", "max_batch_requests"}
    assert all(set(case) == keys for case in cases.values())
    boundless = fit("mistral-7b-v0.1", "h100-sxm", 1, 64).to_dict()["cases"]
    assert [case["max_context_tokens"] for case in boundless.values()] == [None] * 4


# What one device keeps, against who holds which number -------------------------------------------

NAMES = ["llama-3.1-70b", "llama-2-7b", "gemma-3-27b", "deepseek-v3", "qwen3-8b"]


def held_by_the_fullest(name, way, devices, context):
    """Numbers of one request on each device, counted token by token and layer by layer."""
    spec = MODELS[name]
    kinds = {i: g for g in spec.layers for i in g.indices}
    total = [0] * devices
    for i, g in sorted(kinds.items()):
        heads = 1 if g.latent else g.num_kv_heads
        dims = g.head_dim if g.latent else g.head_dim + g.v_dim
        tokens = range(max(0, context - g.window) if g.window else 0, context)
        for d in range(devices):
            if way == "tensor":
                total[d] += len(tokens) * dims * max(1, heads // devices)
            elif way == "pipeline":
                last = (d + 1) * len(kinds) // devices
                total[d] += len(tokens) * heads * dims * (d * len(kinds) // devices <= i < last)
            elif way == "context":  # the newest stretch is whole
                each = -(-context // devices)
                end = context - (devices - 1 - d) * each
                total[d] += heads * dims * len([t for t in tokens if end - each <= t < end])
    return max(total)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", ["tensor", "pipeline", "context"])
@pytest.mark.parametrize("devices", [1, 2, 8, 16])
def test_bytes_of_the_fullest_device(name, way, devices):
    got = kv_on_one(name, way, devices, batch=3, context=2000)
    assert got.value == 3 * 2 * held_by_the_fullest(name, way, devices, 2000)


def test_data_parallel_attention_keeps_requests_whole():
    one = kv_on_one("deepseek-v3", "data", 1, batch=1, context=500)
    assert kv_on_one("deepseek-v3", "data", 8, batch=20, context=500) == 3 * one
