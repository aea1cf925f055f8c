"""What layers with a window need and what engines reserve for them, and eviction budgets."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlib.caches import pyramid
from kvlib.costs import GPUS, MODELS, Bytes, decode, fit, formulas, gpus_needed, max_context
from kvlib.costs.catalogue import CODECS
from kvlib.costs.reserves import group_size, layers_as_held, most_blocks

BF16 = CODECS["bfloat16"].facts
GEMMA, OSS = MODELS["gemma-3-27b"], MODELS["gpt-oss-120b"]


def held(model: str, tokens: int, **rule: Any) -> int:
    return MODELS[model].kv_bytes(1, tokens, **rule).value


@pytest.mark.parametrize(("model", "tokens", "needed", "everything"), [
    ("gemma-3-27b", 8_192, 1_107_296_256, 4_160_749_568),
    ("gemma-3-27b", 32_768, 3_120_562_176, 16_642_998_272),
    ("gemma-3-27b", 131_072, 11_173_625_856, 66_571_993_088),
    ("gpt-oss-120b", 128, 9_437_184, 9_437_184),
    ("gpt-oss-120b", 8_192, 306_708_480, 603_979_776),
    ("gpt-oss-120b", 131_072, 4_836_556_800, 9_663_676_416),
    ("mistral-7b-v0.1", 4_096, 536_870_912, 536_870_912),
    ("mistral-7b-v0.1", 100_000, 536_870_912, 13_107_200_000),
    ("gemma-2-9b", 8_192, 2_113_929_216, 2_818_572_288),
])
def test_bytes_needed_and_bytes_of_every_token(model, tokens, needed, everything) -> None:
    assert held(model, tokens) == needed
    assert held(model, tokens, reserve="all") == held(model, tokens, keep_all=True) == everything


def test_one_long_request_in_a_pool_that_vllm_logged() -> None:
    """gpt-oss-120b: 5.38 GiB are 9,798 blocks; the log says 78,384 tokens (hf-mem issue 60)."""
    block = 18 * 2_048 * 16  # one of the two groups has 18 layers
    assert block == 589_824 and round(9_798 * block / 2**30, 2) == 5.38
    assert 9_798 // 2 * 16 == 78_384
    layers = layers_as_held(OSS.facts["layers"], "vllm", 1, 16, [0, 0])
    assert formulas.longest(layers, BF16, 16, 1, 9_798 * block) == 156_624
    everything = layers_as_held(OSS.facts["layers"], "all", 1, 16, [0, 0])
    assert formulas.longest(everything, BF16, 16, 1, 9_798 * block) == 78_384


@pytest.mark.parametrize(
    ("counts", "size"),
    [((52, 10), 10), ((18, 18), 18), ((12, 13), 13), ((20, 30), 20), ((32,), 32), ((1, 3, 7), 1)],
)
def test_groups_are_as_large_as_the_smallest_kind(counts: tuple[int, ...], size: int) -> None:
    assert group_size([{"count": n} for n in counts]) == size


def test_padding_of_groups_takes_memory() -> None:
    """52 layers with a window of 1,024 become 6 groups of 10, each of 65 blocks of 16 tokens."""
    blocks = 8_192 // 16 + 6 * 65
    assert held("gemma-3-27b", 8_192, reserve="vllm") == blocks * 16 * 10 * 8_192
    # in a step of 2,048 tokens, a window of 1,024 touches 193 blocks at most
    chunked = 8_192 // 16 + 6 * (3_071 // 16 + 2)
    assert held("gemma-3-27b", 8_192, reserve="vllm", step=2_048) == chunked * 16 * 10 * 8_192
    # short requests take the blocks of their tokens, in seven groups
    assert held("gemma-3-27b", 17, reserve="vllm") == 7 * 2 * 16 * 10 * 8_192


def test_transformers_keeps_a_token_less() -> None:
    a_token = 8_192
    for tokens, kept in ((1_023, 1_023), (1_024, 1_023), (9_000, 1_023)):
        found = held("gemma-3-27b", tokens, reserve="transformers")
        assert found == (52 * kept + 10 * tokens) * a_token


def blocks_touched(first: int, last: int, block: int) -> int:
    """Blocks that the tokens from `first` up to `last` are in."""
    return len({token // block for token in range(first, last + 1)})


@given(st.integers(1, 40), st.integers(1, 9))
def test_the_most_blocks_of_neighbours(tokens: int, block: int) -> None:
    counted = [blocks_touched(first, first + tokens - 1, block) for first in range(block)]
    assert most_blocks(tokens, block) == max(counted)


@given(st.integers(1, 300), st.integers(1, 9), st.integers(1, 40), st.integers(1, 12))
def test_rules_cover_every_position(seq: int, block: int, window: int, step: int) -> None:
    """Whatever the first `seq` tokens of a text were cut into, no step cached more than that."""
    g = dict(count=1, window=window, values=1, vectors=1, num_qo_heads=1, qk_dim=1, v_dim=1)
    g |= dict(full_qk_dim=1, full_v_dim=1, every=1, chosen=0, index=0, state=0)

    def tokens(rule: str, block: int) -> float:
        layers = layers_as_held([g], rule, step, block, [0])
        return formulas.reserved_bytes(layers, BF16, seq, block) / 2

    worst = worst_blocks = 0
    for end in range(
        1, seq + 1
    ):  # the token of the last query; the first query is at most a step back
        first = max(0, end - step - window + 1)
        worst = max(worst, end - first)
        worst_blocks = max(worst_blocks, blocks_touched(first, end - 1, block))
    assert tokens("needed", 0) == worst
    assert tokens("needed", block) >= worst_blocks * block
    assert tokens("all", block) >= tokens("vllm", block) >= tokens("needed", block)
    if seq >= step + window + block:
        assert tokens("needed", block) == worst_blocks * block
        assert tokens("vllm", block) - tokens("needed", block) in (0, block)


def test_a_budget_bounds_layers_that_look_at_everything() -> None:
    a_layer = 4_096
    assert held("llama-3.1-8b", 8_192, budget=1_000) == 32 * 1_001 * a_layer
    assert held("llama-3.1-8b", 500, budget=1_000) == 32 * 500 * a_layer
    assert held("llama-3.1-8b", 8_192, budget=1_000, step=64) == 32 * 1_064 * a_layer
    assert held("llama-3.1-8b", 8_192, budget=1_000, block_size=16) == 32 * 63 * 16 * a_layer
    assert held("gemma-3-27b", 8_192, budget=2_000) == (52 * 1_024 + 10 * 2_001) * 8_192


def test_budgets_by_layer() -> None:
    budgets = pyramid(128, 32)
    assert held("llama-3.1-8b", 8_192, budget=budgets) == (sum(budgets) + 32) * 4_096
    some = [None, None, *[100] * 30]
    assert held("llama-3.1-8b", 8_192, budget=some) == (2 * 8_192 + 30 * 101) * 4_096
    shared = fit("llama-3.1-8b", "h100-sxm", 1, 8_192, budget=budgets, gpus=2).kv
    assert shared == Bytes((sum(budgets) + 32) * 2_048)
    assert fit("llama-3.1-8b", "h100-sxm", 1, 8_192, budget=some).to_dict()["budget_tokens"] == some


def test_every_answer_of_fit_follows_the_rule() -> None:
    for rule in ({"reserve": "all"}, {"reserve": "vllm"}, {"budget": 512}, {"step": 2_048}):
        bill = fit("gemma-3-27b", "h100-sxm", 2, 32_768, **rule)
        assert bill.kv == GEMMA.kv_bytes(2, 32_768, **rule)
        room = max_context("gemma-3-27b", "h100-sxm", 2, **rule)
        for name, tokens in room.cases.items():
            assert bill.cases[name].longest == tokens
            if tokens.value == 2**40:
                continue
            left = bill.cases[name].budget - bill.weights
            assert GEMMA.kv_bytes(2, tokens.value, **rule) <= left
            assert GEMMA.kv_bytes(2, tokens.value + 16, **rule) > left
    assert fit("gemma-3-27b", "h100-sxm", 1, 131_072).enough == 1
    assert fit("gemma-3-27b", "h100-sxm", 1, 131_072, reserve="all").enough == 2
    assert gpus_needed("gemma-3-27b", "h100-sxm", 1, 131_072, reserve="all").gpus == 2


def test_a_decode_step_reads_what_eviction_has_left() -> None:
    everything = decode("llama-3.1-8b", 4, 8_192)
    work = decode("llama-3.1-8b", 4, 8_192, budget=1_000)
    assert work.kv_read == MODELS["llama-3.1-8b"].kv_bytes(4, 8_192, budget=1_000)
    assert work.attention_flops.value * 8_192 == everything.attention_flops.value * 1_001
    assert work.weights == everything.weights and work.kv_written == everything.kv_written
    bill = fit("llama-3.1-8b", "h100-sxm", 4, 8_192, budget=1_000)
    assert bill.floor == work.floor("h100-sxm")
    with pytest.raises(ValueError, match="shared is 64, but with a budget"):
        decode("llama-3.1-8b", 4, 8_192, shared=64, budget=1_000)


@pytest.mark.parametrize(("rule", "words"), [
    ({"reserve": "vlm"}, "reserve must be one of needed, transformers, vllm, all, got 'vlm'"),
    ({"reserve": "transformers", "block_size": 16}, "transformers stores no blocks"),
    ({"reserve": "all", "budget": 5}, "leave one of the two out"),
    (
        {"budget": [1, 2]},
        "budget has 2 numbers, needed: one number for all layers, or one for each of the 62",
    ),
    (
        {"budget": [7] * 62},
        "budget of layer 0 is 7, but the layer keeps its window of 1,024 tokens",
    ),
])
def test_rules_that_make_no_sense(rule: dict[str, Any], words: str) -> None:
    for call in (
        lambda: GEMMA.kv_bytes(1, 100, **rule),
        lambda: fit("gemma-3-27b", GPUS["h100-sxm"], 1, 100, **rule),
    ):
        with pytest.raises(ValueError) as error:
            call()
        assert words in str(error.value)


@pytest.mark.parametrize("name", ["qwen3-next-80b-a3b", "nemotron-3-nano-30b-a3b"])
def test_layers_with_a_state_have_no_budget(name: str) -> None:
    model = MODELS[name]
    storing = sum(group.count for group in model.layers if group.vectors)
    assert model.kv_bytes(1, 1000, budget=[8] * storing) == model.kv_bytes(1, 1000, budget=8)
    assert model.kv_bytes(1, 1000, budget=[None] * storing) == model.kv_bytes(1, 1000)
    with pytest.raises(ValueError, match=f"each of the {storing} layers that store keys"):
        model.kv_bytes(1, 1000, budget=[8] * model.shape.num_hidden_layers)


def test_a_model_of_windows_has_nothing_to_evict() -> None:
    with pytest.raises(ValueError, match="every layer of this model has one; leave it out"):
        MODELS["mistral-7b-v0.1"].kv_bytes(1, 100, budget=8)
