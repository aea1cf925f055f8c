"""The formulas of the bill: against published figures, and against counting one by one."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbook.explorers.scenes import memory
from kvbook.explorers.scenes.roofline import attainable
from kvlib.costs import formulas as F

BF16 = dict(bits=16, scale_bits=0, group=0, residual=0)
INT8 = dict(bits=8, scale_bits=32, group=0, residual=0)  # a scale for each vector
KIVI4 = dict(bits=4, scale_bits=32, group=32, residual=128)
KIVI2 = dict(bits=2, scale_bits=32, group=32, residual=128)
PLAIN8 = dict(bits=8, scale_bits=0, group=0, residual=0)
CODECS = (BF16, INT8, KIVI4, KIVI2, PLAIN8)


PLAIN = dict(every=1, chosen=0, index=0, state=0)


def layer(count: int, heads: int, kv_heads: int, dim: int, window: int = 0) -> dict[str, Any]:
    return dict(
        count=count, window=window, values=2 * kv_heads * dim, vectors=2 * kv_heads,
        num_qo_heads=heads, qk_dim=dim, v_dim=dim, full_qk_dim=dim, full_v_dim=dim, **PLAIN,
    )


def latent(count: int, heads: int) -> dict[str, Any]:
    """MLA as DeepSeek has it: 512 + 64 numbers per token, 192 and 128 where they are expanded."""
    return dict(
        count=count, window=0, values=576, vectors=1, num_qo_heads=heads, qk_dim=576, v_dim=512,
        full_qk_dim=192, full_v_dim=128, **PLAIN,
    )


LLAMA2_7B = [layer(32, 32, 32, 128)]
LLAMA3_8B = [layer(32, 32, 8, 128)]
GEMMA3_27B = [layer(52, 32, 16, 128, 1024), layer(10, 32, 16, 128)]
DEEPSEEK_V3 = [latent(61, 128)]
MIXED = [layer(2, 4, 2, 8, 3), layer(1, 4, 4, 8), latent(1, 2)]

HEAD_7B = 32_000 * 4096  # as large as the table of embeddings, which is not tied to it
FACTS_7B = dict(
    layers=LLAMA2_7B,
    product_weights=32 * (4 * 4096**2 + 3 * 4096 * 11008),
    head_weights=HEAD_7B, experts=0, experts_per_token=0, expert_weights=0,
)
H100 = dict(bandwidth=3.35e12, bf16=989e12)


def intensity(layers: list[dict[str, Any]], codec: dict[str, Any], **k: Any) -> float:
    facts = dict(FACTS_7B, layers=layers)
    w = F.pass_work(facts, codec, 16, k.get("batch", 1), 1, k.get("seq", 10**7), k.get("shared", 0))
    return w["attention_flops"] / (w["kv_bytes"] + w["kv_written"])


@pytest.mark.parametrize("heads, kv_heads", [(32, 32), (32, 8), (64, 8), (64, 1)])
def test_decode_attention_does_g_operations_a_byte(heads: int, kv_heads: int) -> None:
    layers, group = [layer(7, heads, kv_heads, 128)], heads // kv_heads
    assert intensity(layers, BF16) == pytest.approx(group, rel=1e-4)
    assert intensity(layers, PLAIN8) == pytest.approx(2 * group, rel=1e-4)
    one = intensity(layers, BF16, seq=1000)
    assert intensity(layers, BF16, seq=1000, batch=64) == one  # batch changes nothing, exactly
    together = intensity(layers, BF16, batch=16, shared=10**7 - 1)
    assert together == pytest.approx(16 * group, rel=1e-3)


@pytest.mark.parametrize("group", [1, 4, 8])
def test_prefill_attention_reads_and_writes_each_token_once(group: int) -> None:
    seq = 65_536
    layers = [layer(3, 8 * group, 8, 64)]
    w = F.pass_work(dict(FACTS_7B, layers=layers), BF16, 16, 1, seq, seq, 0)
    found = w["attention_flops"] / (w["kv_bytes"] + w["activation_bytes"])
    assert found == pytest.approx(seq * group / (2 * (1 + group)), rel=1e-4)


def test_a_prefill_of_mla_multiplies_expanded_heads() -> None:
    facts, tokens = dict(FACTS_7B, layers=DEEPSEEK_V3), 10
    w = F.pass_work(facts, BF16, 16, 3, tokens, tokens, 0)
    assert w["activation_bytes"] == 3 * tokens * 61 * 128 * (192 + 128) * 2
    assert w["attention_flops"] == 3 * 61 * 2 * 128 * (192 + 128) * 55
    assert w["kv_bytes"] == w["kv_written"] == 3 * tokens * 70_272
    step = F.pass_work(facts, BF16, 16, 3, 1, tokens, 0)
    assert step["activation_bytes"] == 3 * 61 * 128 * (576 + 512) * 2
    assert step["attention_flops"] == 3 * 61 * 2 * 128 * (576 + 512) * tokens


def test_what_one_gpu_holds() -> None:
    both = GEMMA3_27B + DEEPSEEK_V3  # 16 key/value heads, and one latent vector
    for gpus, heads in ((1, 16), (4, 4), (16, 1), (32, 1)):
        *local, latents = F.layers_on_one(both, gpus)
        assert [g["values"] for g in local] == [2 * heads * 128] * 2
        assert [g["vectors"] for g in local] == [2 * heads] * 2
        assert [g["num_qo_heads"] for g in (*local, latents)] == [32 / gpus] * 2 + [128 / gpus]
        assert (latents["values"], latents["vectors"]) == (576, 1)
    assert F.layers_on_one(both, 1) == both
    kept = memory.layers_keeping_all(GEMMA3_27B)
    assert F.stored_bytes(kept, BF16, 131_072) / 2**30 == 62.0
    assert GEMMA3_27B[0]["window"] == 1024  # the argument stays as it was
    coded = F.token_bytes(LLAMA3_8B, memory.payload_only(KIVI4))
    assert coded == F.token_bytes(LLAMA3_8B, BF16) / 4
    assert memory.weight_bytes_on_one(dict(parameters=1000), 4, 2) == 250
    assert memory.requests_that_fit(LLAMA2_7B, BF16, 4096, 0, 3 * 2**31 - 1) == 2
    assert memory.requests_that_fit(LLAMA2_7B, BF16, 4096, 0, 3 * 2**31) == 3
    assert memory.requests_that_fit(LLAMA2_7B, BF16, 4096, 0, -1) == 0


def test_products_turn_compute_bound_at_295_tokens_on_an_h100() -> None:
    def sides(tokens: int) -> tuple[float, float]:
        flops = F.linear_flops(FACTS_7B, tokens, tokens)
        return flops / H100["bf16"], F.weights_read(FACTS_7B, tokens) * 2 / H100["bandwidth"]

    assert sides(295)[0] < sides(295)[1]
    assert sides(296)[0] > sides(296)[1]


sizes = st.integers(1, 40)
windows = st.integers(0, 12)
codecs = st.sampled_from(CODECS)
blocks = st.integers(0, 9)


@given(sizes, st.integers(0, 40), windows)
def test_pairs_are_those_one_can_count(fresh: int, before: int, window: int) -> None:
    seq = before + fresh
    counted = 0
    for query in range(before, seq):
        for key in range(seq):
            counted += key <= query and (window == 0 or query - key < window)
    assert F.pairs(fresh, seq, window) == counted
    assert F.pairs(0, seq, window) == 0


def bytes_by_hand(layers: list[dict[str, Any]], codec: dict[str, Any], seq: int, block: int) -> int:
    """Each slot of each layer on its own: seen by the next token or in a block with one that is."""
    total = 0
    for g in layers:
        kept = [t for t in range(seq) if not g["window"] or seq - t <= g["window"]]
        slots = 0
        while slots < len(kept):
            slots += max(block, 1)
        for slot in range(slots):
            if slots - slot <= codec["residual"]:
                one = 2 * g["values"]
            else:
                one = math.ceil(g["values"] * codec["bits"] / 8)
                if codec["scale_bits"]:
                    scales = g["values"] / codec["group"] if codec["group"] else g["vectors"]
                    one += math.ceil(scales * codec["scale_bits"] / 8)
            total += g["count"] * one
    return total


@given(codecs, st.integers(1, 300), blocks)
def test_bytes_are_those_one_can_count(codec: dict[str, Any], seq: int, block: int) -> None:
    assert F.reserved_bytes(MIXED, codec, seq, block) == bytes_by_hand(MIXED, codec, seq, block)
    assert F.stored_bytes(MIXED, codec, seq) == bytes_by_hand(MIXED, codec, seq, 0)


@given(codecs, sizes, st.integers(0, 300))
def test_attended_bytes_are_those_of_every_key_that_any_query_sees(codec, fresh, before) -> None:
    seq, total = before + fresh, 0
    for g in MIXED:
        seen = {
            key
            for query in range(before, seq)
            for key in range(query + 1)
            if not g["window"] or query - key < g["window"]
        }
        total += bytes_by_hand([dict(g, window=0)], codec, len(seen), 0)
    assert F.attended_bytes(MIXED, codec, fresh, seq) == total


@given(st.sampled_from((BF16, INT8)), st.integers(2, 60), st.data())
def test_a_shared_prefix_is_read_once(codec: dict[str, Any], seq: int, data: Any) -> None:
    shared = data.draw(st.integers(0, seq - 1))
    batch = data.draw(st.integers(1, 5))
    w = F.pass_work(dict(FACTS_7B, layers=MIXED), codec, 16, batch, 1, seq, shared)
    total = 0
    for g in MIXED:
        seen = [key for key in range(seq) if not g["window"] or seq - 1 - key < g["window"]]
        reads = {(0 if key < shared else request, key) for request in range(batch) for key in seen}
        total += g["count"] * len(reads) * F.vector_bytes(g["values"], g["vectors"], codec)
    assert w["kv_bytes"] == total


@given(st.integers(1, 30), st.integers(1, 12))
def test_generation_is_the_sum_of_its_passes(prompt: int, fresh: int) -> None:
    facts = dict(FACTS_7B, layers=MIXED)
    slow, fast = F.uncached_flops(facts, prompt, fresh), F.cached_flops(facts, prompt, fresh)
    lengths = [prompt + i for i in range(fresh)]
    assert slow["tokens"] == sum(lengths)
    assert slow["attention"] == sum(F.attention_flops(MIXED, n, n) for n in lengths)
    steps = [F.attention_flops(MIXED, 1, n) for n in lengths[1:]]
    assert fast["tokens"] == prompt + fresh - 1
    assert fast["attention"] == F.attention_flops(MIXED, prompt, prompt) + sum(steps)
    if fresh == 1:
        assert slow == fast


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 6))
def test_experts_in_use_are_the_mean_over_all_choices(experts: int, chosen: int, n: int) -> None:
    chosen = min(chosen, experts)
    missed = (math.comb(experts - 1, chosen) / math.comb(experts, chosen)) ** n
    assert F.experts_read(experts, chosen, n) == pytest.approx(experts * (1 - missed), abs=1e-9)


def test_weights_of_a_mixture() -> None:
    facts = dict(FACTS_7B, product_weights=100, head_weights=10)
    facts.update(experts=8, experts_per_token=2, expert_weights=7)
    assert F.weights_read(facts, 1) == pytest.approx(110 + 2 * 7)
    assert F.weights_read(facts, 10**4) == pytest.approx(110 + 8 * 7)
    assert F.linear_flops(facts, 3, 1) == 2 * (3 * (100 + 2 * 7) + 10)


def test_where_windows_bound_the_cache_memory_bounds_nothing() -> None:
    bounded = [layer(2, 4, 2, 8, 16)]
    assert F.longest(bounded, BF16, 0, 1, 2 * 16 * 32 * 2) == 2**40
    assert F.longest(bounded, BF16, 0, 1, 2 * 16 * 32 * 2 - 1) == 15
    assert F.longest(bounded, BF16, 0, 1, 0) == 0
    assert F.longest(bounded, BF16, 0, 1, -5) == 0


@given(st.integers(1, 10**6), st.integers(1, 4096))
def test_blocks(tokens: int, block: int) -> None:
    held = F.in_blocks(tokens, block)
    assert held == math.ceil(tokens / block) * block
    assert 0 <= held - tokens <= block - 1


def test_roof() -> None:
    assert attainable(10, 100, 5) == 50 and attainable(30, 100, 5) == 100
    assert F.seconds(100, 5, 100, 5) == 1 and F.seconds(300, 5, 100, 5) == 3
    assert F.seconds(100, 20, 100, 5) == 4
    assert F.tokens_to_amortise(2, 5, 12) == 4  # 4 · 5 = 4 · 2 + 12
