"""The scene of latent attention at every setting: its words, panels and crossover."""

import itertools
from typing import Any

import numpy as np
import pytest
from notebook_code import BOOK, code_cells, read
from small_scenes import check_scene, line, numbers, part

import kvlib
from kvbook.explorers import latent_explorer
from kvbook.explorers.catalogue import LATENT_MODELS, latent_sizes
from kvbook.explorers.scenes.latent import latent_forms
from kvlib.config.shape import Latent
from kvlib.costs import MODELS, formulas
from kvlib.model import Decoder, ModelConfig, random_weights

EXPLORER = latent_explorer()
VALUES = {control.name: control.values for control in EXPLORER.controls}
MODELS_SHOWN = ("deepseek-v3", "deepseek-v2-lite")
PAIRS = list(itertools.product(VALUES["new"], VALUES["context"]))
UNITS = {"MFLOP": 10**6, "GFLOP": 10**9, "TFLOP": 10**12}


def both(t: int, s: int, model: str) -> tuple[int, int]:
    """Operations in whole numbers: expanded, absorbed."""
    shape = MODELS[model].shape
    assert shape.latent is not None
    _, c, n, r, v = shape.latent
    h = shape.num_attention_heads
    expanded = 2 * s * c * h * (n + v) + 2 * t * s * h * (n + r + v)
    return expanded, 2 * t * s * h * (2 * c + r) + 2 * t * h * c * (n + v)


def test_deepseek_v2_has_the_heads_of_v3() -> None:
    two, three = latent_sizes()["deepseek-v2"], latent_sizes()["deepseek-v3"]
    assert {**two, "title": ""} == {**three, "title": ""}
    scenes = [latent_explorer(model=m).scene() for m in ("deepseek-v2", "deepseek-v3")]
    assert scenes[0]["numbers"] == scenes[1]["numbers"] and scenes[0] != scenes[1]


def test_expanding_saves_from_where_the_scene_says() -> None:
    """Every number of new tokens is tried, in whole numbers, for each length of the cache."""
    for model, context in itertools.product(MODELS_SHOWN, VALUES["context"]):
        tried = (both(t, context, model) for t in range(1, context + 1))
        first = next(t for t, (expanded, absorbed) in enumerate(tried, 1) if expanded < absorbed)
        scene = latent_explorer(model=model, context=context).scene()
        assert numbers(scene)["Expanding saves from"] == f"{first} new tokens"
        assert f"saves operations from {first} new tokens on" in scene["summary"]
        (upright,) = [ln for ln in scene["panels"][1]["lines"] if ln["dashed"]]
        (at, _), (same, _) = upright["points"]
        assert at == same and first - 1 <= at < first
        exact = 1 / (1 / context + (2 * 512 - 128 - 128) / (512 * (128 + 128)))
        assert at == pytest.approx(exact, rel=1e-12)


def test_bars_curve_and_words_agree_at_every_setting() -> None:
    kinds = set()
    for model, (new, context) in zip(itertools.cycle(MODELS_SHOWN), PAIRS, strict=False):
        scene = latent_explorer(model=model, new=new, context=context).scene()
        check_scene(scene)
        fresh = min(new, context)
        expanded, absorbed = both(fresh, context, model)
        bars, curves = scene["panels"]
        unit = UNITS[bars["unit"]]
        lengths = [unit * sum(p["value"] for p in bar["parts"]) for bar in bars["bars"]]
        assert lengths == pytest.approx([expanded, absorbed])
        (point,) = curves["points"]
        assert (point["x"], point["y"]) == (fresh, pytest.approx(expanded / absorbed))
        curve = curves["lines"][0]["points"]
        assert [x for x, _ in curve] == sorted({x for x, _ in curve})
        assert (curve[0][0], curve[-1][0]) == (1, min(context, 8192))
        for x, y in curve:
            one, other = both(x, context, model)
            assert y == pytest.approx(one / other)
        kind = "same" if expanded == absorbed else "absorb" if absorbed < expanded else "expand"
        kinds.add(kind)
        said = {"same": "both forms take the same number", "absorb": "absorbing takes fewer"}
        assert said.get(kind, "expanding takes fewer") in scene["title"]
        assert (point["label"] == "exactly equal") == (kind == "same")
        assert " 1 times as much" not in scene["summary"]
        assert ("a prompt of" in scene["title"]) == (new >= context)
        assert ("cannot be new" in scene["summary"]) == (new > context)
    assert kinds == {"same", "absorb", "expand"}


def test_more_new_tokens_than_the_cache_holds_are_a_prompt_from_scratch() -> None:
    scene = latent_explorer(new=4096, context=256).scene()
    prompt = latent_explorer(new=256, context=256).scene()
    first, rest = scene["summary"].split(". ", 1)
    assert first == (
        "The cache holds only 256 tokens after the step, so 4,096 cannot be new, "
        "and all 256 count as new"
    )
    assert rest == prompt["summary"]
    assert {**scene, "summary": ""} == {**prompt, "summary": ""}


def test_heads_cancel_in_the_ratio() -> None:
    lite, v3 = (
        latent_explorer(model=m, new=64).scene() for m in ("deepseek-v2-lite", "deepseek-v3")
    )
    assert line(lite["panels"][1], "4K cached") == line(v3["panels"][1], "4K cached")
    whole = [part(s["panels"][0], "expanding the latents") for s in (lite, v3)]
    assert whole[1] == 8 * whole[0]


@pytest.mark.parametrize(("settings", "words"), [
    ({}, "With 1 new token and 4,096 tokens in the cache after the step, one layer of"
         " DeepSeek-V3 takes 1.17 GFLOP if it absorbs the matrices and 138 GFLOP, 117 times as"
         " much, if it expands the latents."),
    ({}, "Expanding takes 137 GFLOP, however many tokens are new. After that, each new token"
         " takes 336 MFLOP instead of 1.17 GFLOP, so expanding saves operations from 164 new"
         " tokens on."),
    ({}, "Both forms read 4.5 MiB of latents from the cache (bfloat16). All expanded keys and"
         " values together would fill 320 MiB, 71.1 times as much."),
    ({"new": 512}, "takes 309 GFLOP if it expands the latents and 601 GFLOP, 1.94 times as"
         " much, if it absorbs the matrices."),
    ({"new": 512, "context": 512}, "For a prompt of 512 tokens from scratch, one layer of"
         " DeepSeek-V3 takes 38.7 GFLOP if it expands the latents and 90.2 GFLOP, 2.33 times as"
         " much, if it absorbs the matrices."),
    ({"new": 512, "context": 512}, "both forms multiply every token by the matrices, which"
         " takes 17.2 GFLOP. Attention then takes 21.5 GFLOP over expanded keys and values, but"
         " 73 GFLOP over latents"),
    ({"new": 128, "context": 512}, "both forms take 22.5 GFLOP in one layer of DeepSeek-V3."),
    ({"model": "deepseek-v2-lite"}, "one layer of DeepSeek-V2-Lite takes 147 MFLOP"),
    ({"context": 131072}, "saves operations from 171 new tokens on"),
])  # fmt: skip
def test_the_sentence_says_what_it_means(settings: dict[str, Any], words: str) -> None:
    assert words in latent_explorer(**settings).scene()["summary"]


def test_the_formula_can_be_followed() -> None:
    assert latent_explorer(new=512).scene()["formula"] == [
        "expanding the latents: 2 × 4,096 × 128 heads × 512 × (128 + 128) = 137 GFLOP",
        "attention, expanded: 2 × 512 × 4,096 × 128 heads × (192 + 128) = 172 GFLOP",
        "absorbing the matrices: 2 × 512 × 128 heads × 512 × (128 + 128) = 17.2 GFLOP",
        "attention, absorbed: 2 × 512 × 4,096 × 128 heads × (576 + 512) = 584 GFLOP",
        "equal at 1 / (1 / 4,096 + (2 × 512 − 128 − 128) / (512 × (128 + 128))) = 163.8 new tokens",
        "(every new token is counted with every token in the cache, even where a causal mask"
        " hides it)",
    ]


@pytest.mark.parametrize("page, call, answers", [
    ("latent", "latent_explorer", ["117 times", "64 tokens from scratch"]),
    ("speculative", "speculation_explorer", ["6 guesses per step for", "this number is best"]),
])
def test_the_page_opens_at_another_setting_than_its_question(page, call, answers) -> None:
    (cell,) = [c for c in code_cells(read(BOOK / f"{page}.ipynb")) if call in c["source"]]
    (output,) = cell["outputs"]
    markup = "".join(output["data"]["text/html"])
    assert [words for words in answers if words in markup] == []


CONTEXTS = {control.name: control.values for control in latent_explorer().controls}["context"]
def sizes_of(heads: int, latent: int, nope: int, rope: int, value: int) -> dict[str, Any]:
    sizes = {"heads": heads, "latent": latent, "nope": nope, "rope": rope, "value": value}
    return {"title": "Small", **sizes}


def test_a_decode_step_of_kvlib_takes_the_operations_of_the_absorbed_form() -> None:
    """By the meter, without the other products of the layer's attention."""
    sizes = Latent(12, 20, 10, 6, 14)
    config = ModelConfig(
        model_type="deepseek_v2", vocab_size=31, hidden_size=24, intermediate_size=20,
        num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=4, latent=sizes,
        head_dim=sizes.qk_head_dim, max_position_embeddings=64,
    )  # fmt: skip
    model = Decoder(config, random_weights(config, 3))
    cache = model.new_cache(1, 64)
    cache.add(0)
    model.forward(list(range(30)), cache, cache.plan([0], [30]))
    mixer: Any = model._blocks[0].mixer
    step = cache.plan([0], [1])
    with kvlib.Meter() as meter:
        mixer.forward(np.ones((1, 24), np.float32), cache, step, model._rotations[0].at(step))
    others = sum(mixer.w[f"{name}.weight"].size for name in ("q_down", "q_up", "kv_down", "o"))
    forms = latent_forms(sizes_of(4, 20, 10, 6, 14), 1, 31)
    assert meter.flops - 2 * others == forms["absorbed"]
    assert meter.by_label["attention"].flops == forms["absorbed_attention"]


@pytest.mark.parametrize("model", [key for key in LATENT_MODELS if key in MODELS])
def test_the_scene_agrees_with_the_costs(model: str) -> None:
    """Sizes, the attention of a decode step, and bytes, each of one layer."""
    spec, sizes = MODELS[model], latent_sizes()[model]
    latent = spec.shape.latent
    assert latent is not None
    assert list(sizes.values())[1:] == [spec.shape.num_attention_heads, *latent[1:]]
    (group,) = spec.facts["layers"]
    layer = [{**group, "count": 1}]
    for context in CONTEXTS:
        forms = latent_forms(sizes, 1, context)
        assert forms["absorbed_attention"] == formulas.attention_flops(layer, 1, context)
        shown = numbers(latent_explorer(model=model, context=context).scene())
        each = int(spec.kv_bytes(1, context)) // spec.shape.num_hidden_layers
        assert amount(shown["Latents read"]) == pytest.approx(each, rel=0.005)
        heads = 2 * context * group["num_qo_heads"] * (group["full_qk_dim"] + group["full_v_dim"])
        assert amount(shown["The same, expanded"]) == pytest.approx(heads, rel=0.005)


def amount(text: str) -> float:
    """Bytes of a text such as '4.5 MiB'."""
    number, unit = text.replace(",", "").split()
    return float(number) * 1024 ** ["bytes", "KiB", "MiB", "GiB"].index(unit)
