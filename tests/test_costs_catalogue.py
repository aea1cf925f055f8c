"""The data files against tables written down apart from them, and the ways to ask for an entry."""

import csv
import re
from collections import Counter
from typing import Any

import pytest
from repository import ROOT

from kvlib.config.quantised import Format
from kvlib.costs.catalogue import CODECS, GPUS, Catalogue, Gpu, Value, codec
from kvlib.costs.spec import MODELS, ModelSpec
from kvlib.costs.units import Bytes, BytesPerSecond, FlopsPerByte, FlopsPerSecond

Entry = ModelSpec | Gpu

# Sizes of every model, written down apart from the catalogue. Two kv_heads or head_dim: of two
# kinds of layers. intermediate: of an expert, where all layers have experts. windows:
# window:layers, empty where all layers see everything. parameters and kv_bytes (of a token in
# bfloat16) are compared with transformers in tests/peers/test_parameters.py. states:
# layers:bytes; a matrix for each head in float32, and in 16 bits the last inputs of a
# convolution; in DeepSeek-V4 the tokens that a next entry will be made of. experts: number/per
# token/width.
with (ROOT / "tests/golden/models.csv").open(encoding="utf-8") as file:
    MODEL_TABLE = {row["title"]: row for row in csv.DictReader(file)}

# memory GB, usable MiB, bandwidth GB/s, bf16 and fp8 TFLOP/s, ridge, L2 MiB, shared memory KiB
GPU_TABLE: dict[str, tuple[Any, ...]] = {
    "L4": (24, 23034, 300, 121, 242, 403, 48, 100),
    "L40S": (48, 46068, 864, 362.05, 733, 419, 96, 100),
    "RTX 4090": (24, 24564, 1008, 165.2, 330.3, 164, 72, 100),
    "RTX 5090": (32, 32607, 1792, 209.5, 419, 117, 96, 100),
    "RTX PRO 6000": (96, 97887, 1792, 503.8, 1007.6, 281, 128, 100),
    "A100 40 SXM": (40, 40960, 1555, 312, None, 201, 40, 164),
    "A100 80 SXM": (80, 81920, 2039, 312, None, 153, 40, 164),
    "H100 SXM": (80, 81559, 3350, 989, 1979, 295, 50, 228),
    "H100 NVL": (94, 95830, 3900, 835, 1671, 214, 50, 228),
    "H200 SXM": (141, 143771, 4800, 989, 1979, 206, 50, 228),
    "B200 SXM": (180, 183359, 8000, 2250, 4500, 281, 126, 228),
    "B300 SXM": (288, 275040, 8000, 2250, 4500, 281, 126, 228),
    "MI300X": (192, 196592, 5300, 1307, 2615, 247, 256, 64),
}

UNCONFIRMED = {
    "mistral-large-123b": {"max_position_embeddings"},
    "ministral-3-3b": {"parameters"}, "ministral-3-8b": {"parameters"},
    "gemma-3-4b": {"parameters"}, "gemma-3-12b": {"parameters"}, "gemma-4-26b-a4b": {"parameters"},
    "nemotron-nano-9b-v2": {"max_position_embeddings"},
    "deepseek-v2-lite": {"tie_word_embeddings"}, "deepseek-v2": {"tie_word_embeddings"},
    "deepseek-v3": {"tie_word_embeddings"}, "l4": {"shared_memory_per_sm_KiB"},
    "rtx-4090": {"fp8_TFLOP_per_s", "l2_MiB", "shared_memory_per_sm_KiB"},
    "l40s": {"l2_MiB", "shared_memory_per_sm_KiB"},
    "rtx-5090": {"fp8_TFLOP_per_s", "shared_memory_per_sm_KiB"},
    "rtx-pro-6000": {"bf16_TFLOP_per_s", "fp8_TFLOP_per_s", "shared_memory_per_sm_KiB"},
    "b300-sxm": {"l2_MiB", "shared_memory_per_sm_KiB"},
    "a100-40-sxm": {"usable_MiB"}, "a100-80-sxm": {"usable_MiB"},
    "h100-nvl": {"bf16_TFLOP_per_s", "fp8_TFLOP_per_s"},
    "b200-sxm": {"shared_memory_per_sm_KiB"},
    "mi300x": {"usable_MiB", "shared_memory_per_sm_KiB"},
}


def test_every_model_of_the_table_is_there_and_no_other() -> None:
    assert [spec.title for spec in MODELS.values()] == list(MODEL_TABLE)
    assert [gpu.title for gpu in GPUS.values()] == list(GPU_TABLE)


def pairs(text: str) -> list[tuple[int, int]]:
    """Return the numbers of "a:b c:d"."""
    return [(int(a), int(b)) for a, b in (pair.split(":") for pair in text.split())]


@pytest.mark.parametrize("title", MODEL_TABLE)
def test_a_models_sizes(title: str) -> None:
    row, spec, shape = MODEL_TABLE[title], MODELS[title], MODELS[title].shape
    layers = int(row["layers"])
    attention = [group for group in spec.layers if not group.state]
    assert len(shape.windows) == layers == shape.num_hidden_layers
    kv_heads, head_dims = ([int(n) for n in row[x].split("/")] for x in ("kv_heads", "head_dim"))
    kinds = max(len(kv_heads), len(head_dims))
    heads = {(int(row["query_heads"]), kv_heads[-i], head_dims[-i]) for i in range(kinds)}
    assert {(g.num_qo_heads, g.num_kv_heads, g.head_dim) for g in attention} == heads
    windows = dict(pairs(row["windows"])) or {0: layers}
    assert sum((Counter({g.window: g.count}) for g in attention), Counter()) == windows
    assert [(g.count, g.state) for g in spec.layers if g.state] == pairs(row["states"])
    mixed = shape.experts is not None and len(shape.experts.layers) == layers
    mlp = shape.experts.width if mixed else shape.intermediate_size
    sizes = [int(row[name]) for name in ("hidden", "intermediate", "vocabulary")]
    assert [shape.hidden_size, mlp, shape.vocab_size] == sizes
    assert shape.tie_word_embeddings is (row["tied"] == "tied")
    e = shape.experts
    assert (f"{e.num_experts}/{e.per_token}/{e.width}" if e else "") == row["experts"]


def test_which_layers_have_the_window() -> None:
    gemma2, gemma3, gpt_oss = (MODELS[n] for n in ("gemma-2-9b", "gemma-3-27b", "gpt-oss-120b"))
    assert all(bool(w) == (i % 2 == 0) for i, w in enumerate(gemma2.shape.windows))
    assert all(bool(w) == (i % 2 == 0) for i, w in enumerate(gpt_oss.shape.windows))
    assert [i for i, w in enumerate(gemma3.shape.windows) if w == 0][:2] == [5, 11]
    assert gemma3.layers[1].indices[0] == 5


def test_switches_that_the_table_names() -> None:
    assert MODELS["qwen2.5-7b"].shape.qkv_bias and not MODELS["qwen2.5-7b"].shape.o_bias
    assert MODELS["qwen3-8b"].shape.qk_norm and MODELS["gemma-3-27b"].shape.qk_norm
    assert not MODELS["gemma-2-9b"].shape.qk_norm and MODELS["gpt-oss-120b"].shape.sinks


def test_mla_as_formulas_want_it() -> None:
    (group,) = MODELS["deepseek-v3"].layers
    expected = dict(values=576, vectors=1, qk_dim=576, v_dim=512, full_qk_dim=192, full_v_dim=128)
    expected |= dict(every=1, chosen=0, index=0, state=0)
    assert group.facts == {"count": 61, "window": 0, "num_qo_heads": 128, **expected}
    assert MODELS["deepseek-v3"].facts["kv_heads"] == 1


@pytest.mark.parametrize("title", GPU_TABLE)
def test_a_gpus_figures(title: str) -> None:
    memory, usable, bandwidth, bf16, fp8, ridge, l2, shared = GPU_TABLE[title]
    gpu = GPUS[title]
    assert gpu.memory == Bytes(memory * 10**9) and gpu.usable == Bytes(usable * 2**20)
    assert gpu.bandwidth == BytesPerSecond(bandwidth * 10**9)
    assert gpu.bf16.value == pytest.approx(bf16 * 1e12, rel=1e-12)
    assert (gpu.fp8 is None) if fp8 is None else gpu.fp8.value == pytest.approx(fp8 * 1e12)
    assert gpu.l2 == Bytes(l2 * 2**20) and gpu.shared_memory_per_sm == Bytes(shared * 2**10)
    assert isinstance(gpu.ridge(), FlopsPerByte) and round(gpu.ridge().value) == ridge
    assert gpu.ridge("bf16") == gpu.ridge("bfloat16") == gpu.ridge("float16")
    facts = gpu.facts
    assert facts["fp8"] == (0 if fp8 is None else gpu.fp8.value) and facts["name"] in GPUS
    assert all(type(facts[name]) in (int, float) for name in set(facts) - {"name", "title"})


def test_a_ridge_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="A100 80 SXM has no rate for 'fp8', needed: bf16"):
        GPUS["a100-80-sxm"].ridge("fp8")
    with pytest.raises(ValueError, match="no rate for 'int4', needed: bf16 or fp8"):
        GPUS["h100-sxm"].ridge("int4")
    assert GPUS["h100-sxm"].fp8 == FlopsPerSecond(1979e12)
    assert GPUS["h100-sxm"].ridge("fp8").value == pytest.approx(1979e12 / 3.35e12)


@pytest.mark.parametrize("entry", [*MODELS.values(), *GPUS.values()], ids=lambda e: e.name)
def test_every_value_has_a_source_and_says_if_it_is_confirmed(entry: Entry) -> None:
    assert entry.row is not None and entry.row.values
    doubtful = set()
    for name in entry.row.values:
        value = entry.value(name)
        assert isinstance(value, Value) and type(value.confirmed) is bool
        assert re.match(r"https://[\w.-]+/\S+$", value.source), (name, value.source)
        if not value.confirmed:
            doubtful.add(name)
    assert doubtful == UNCONFIRMED.get(entry.name, set())
    # an exception for a value that is not there would be a slip of the pen
    assert {*entry.row.entry.get("sources", ()), *entry.row.unconfirmed} <= set(entry.row.values)


def test_a_value_by_its_short_and_its_full_name() -> None:
    gpu = GPUS["rtx-4090"]
    assert gpu.value("fp8") == gpu.value("fp8_TFLOP_per_s")
    assert gpu.value("fp8").value == 330.3 and not gpu.value("fp8").confirmed
    assert gpu.value("bandwidth").confirmed
    assert MODELS["qwen3-0.6b"].value("head_dim").value == 128
    assert MODELS["deepseek-v3"].value("parameters").value == 671_000_000_000
    with pytest.raises(ValueError, match="has no value 'heads_dim'; did you mean head_dim"):
        MODELS["llama-2-7b"].value("heads_dim")


@pytest.mark.parametrize(("catalogue", "asked", "name"), [
    (MODELS, "Llama 3.1 8B", "llama-3.1-8b"), (MODELS, "LLAMA_3.1_8b", "llama-3.1-8b"),
    (MODELS, "llama3.1-8b", "llama-3.1-8b"), (MODELS, "Mistral-7B v0.1", "mistral-7b-v0.1"),
    (MODELS, "gpt oss 120B", "gpt-oss-120b"), (GPUS, "H100 SXM", "h100-sxm"),
    (GPUS, "rtx_4090", "rtx-4090"), (CODECS, "bf16", "bfloat16"), (CODECS, "BFloat16", "bfloat16"),
    (CODECS, "f32", "float32"), (CODECS, "fp8_e4m3", "fp8"),
])
def test_spellings(catalogue: Catalogue[Any], asked: str, name: str) -> None:
    assert catalogue[asked].name == name
    assert asked in catalogue and catalogue.get(asked) is catalogue[name]


@pytest.mark.parametrize(("catalogue", "asked", "words"), [
    (MODELS, "llama-3-8b", "unknown model 'llama-3-8b'; did you mean llama-3.1-8b"),
    (MODELS, "deepsek v3", "did you mean deepseek-v3"),
    (GPUS, "h100", "unknown GPU 'h100'; did you mean h100-sxm or h100-nvl"),
    (CODECS, "int16", "unknown dtype 'int16'; did you mean int"),
    (CODECS, "bfloat", "did you mean bfloat16"), (GPUS, "???", "there are l4, l40s, rtx-4090"),
])
def test_an_unknown_name_gets_the_nearest(catalogue, asked, words) -> None:
    for kind in (ValueError, KeyError):  # a lookup that failed, and a wrong argument
        with pytest.raises(kind) as error:
            catalogue[asked]
        assert words in str(error.value) and not str(error.value).startswith(('"', "'"))
    assert asked not in catalogue and catalogue.get(asked) is None


def test_a_key_that_is_no_name() -> None:
    with pytest.raises(TypeError, match="model must be a name.*got 7"):
        MODELS[7]  # type: ignore[index]


def test_models_are_keys_of_a_dict() -> None:
    assert len({model: name for name, model in MODELS.items()}) == len(MODELS)


def test_names_for_tab_completion_and_print() -> None:
    assert MODELS._ipython_key_completions_() == list(MODELS)
    assert "h200-sxm" in repr(GPUS) and repr(GPUS).startswith("13 GPUs")
    assert "ridge 295 FLOP/B" in repr(GPUS["h100-sxm"]) and "none" in repr(GPUS["a100-80-sxm"])


def test_codecs() -> None:
    stored = {c.name: (c.bits, c.scale_bits, c.group, c.residual) for c in CODECS.values()}
    assert stored == {
        "float32": (32, 0, 0, 0), "float16": (16, 0, 0, 0), "bfloat16": (16, 0, 0, 0),
        "fp8": (8, 0, 0, 0), "int8": (8, 32, 0, 0), "int8_per_channel": (8, 32, 32, 0),
        "int4": (4, 32, 32, 128), "int2": (2, 32, 32, 128),
    }
    keys = {"name", "title", "bits", "scale_bits", "group", "residual"}
    assert all(set(c.facts) == keys for c in CODECS.values())
    own = Format("int4-g64", "int4, groups of 64", 4, scale_bits=32, group=64)
    assert codec(own) is own and codec("half") is CODECS["float16"]
    for bad, error in ((0, ValueError), (2.5, TypeError), (True, TypeError)):
        with pytest.raises(error, match="bits of codec 'x'"):
            Format("x", "x", bad)  # type: ignore[arg-type]
