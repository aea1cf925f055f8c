"""The scenes that count work (roofline, growth, padding), by hand and against `kvlib.costs`."""

import math

import pytest
from small_scenes import line, numbers, part, settings_of

from kvbook.explorers.catalogue import growth_explorer, padding_explorer, roofline_explorer, tables
from kvbook.explorers.scenes.padding import unequal_lengths
from kvbook.explorers.scenes.roofline import roofline_work
from kvlib.costs import GPUS, MODELS, decode, prefill, uncached


def test_roofline_by_hand() -> None:
    scene = roofline_explorer(model="llama-2-7b", batch=1, context=4096).scene()
    weights = 32 * (4 * 4096**2 + 3 * 4096 * 11008) + 32000 * 4096
    keys = 4096 * 524288
    seconds = (2 * weights + keys + 524288) / 3.35e12  # read, read, written
    assert numbers(scene)["Least time"] == f"{seconds * 1e3:.2f} ms"
    assert numbers(scene)["Bound by"] == "memory"
    plane, times = scene["panels"]
    (at,) = [p for p in plane["points"] if p["label"] == "attention"]
    assert at["x"] == pytest.approx(1, rel=1e-3) and at["y"] == pytest.approx(3.35e12, rel=1e-3)
    assert part(times, "weights") == pytest.approx(2 * weights / 3.35e9)
    assert part(times, "weights", bar=1) == pytest.approx(2 * weights / 989e9)


@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_roofline_agrees_with_the_typed_costs(phase: str) -> None:
    compared = 0
    for settings in settings_of("roofline", 400, seed=3, phase=phase):
        model, context, kv = settings["model"], settings["context"], settings["kv"]
        if context > MODELS[model].max_context or (phase == "prefill" and settings["shared"]):
            continue
        shared = context * settings["shared"] // 100
        if phase == "decode":
            work = decode(model, settings["batch"], context, kv, shared=shared)
        else:
            work = prefill(model, settings["batch"], context, kv)
        floor = work.floor(settings["gpu"])
        scene = roofline_explorer(**settings).scene()
        at = {p["label"]: p["x"] for p in scene["panels"][0]["points"]}
        assert at["attention"] == pytest.approx(float(work.attention.intensity))
        assert at["linear layers"] == pytest.approx(float(work.linear.intensity))
        assert at["whole"] == pytest.approx(float(work.total.intensity))
        bound = {"memory": "memory", "compute": "arithmetic"}[floor.bound]
        assert numbers(scene)["Bound by"] == bound
        unit = {"\u00b5s": 1e-6, "ms": 1e-3, "s": 1}[scene["panels"][1]["unit"]]
        bars = [sum(p["value"] for p in b["parts"]) * unit for b in scene["panels"][1]["bars"]]
        assert bars == pytest.approx([float(floor.memory), float(floor.compute)])
        compared += 1
    assert compared > 20


def test_roofline_points_lie_on_the_roof() -> None:
    for settings in settings_of("roofline", 200, seed=4):
        gpu = GPUS[settings["gpu"]]
        scene = roofline_explorer(**settings).scene()
        plane, times = scene["panels"]
        for point in plane["points"]:
            roof = min(float(gpu.bf16), point["x"] * float(gpu.bandwidth))
            assert point["y"] == pytest.approx(roof)
        assert times["marks"][0]["value"] == pytest.approx(
            max(sum(p["value"] for p in bar["parts"]) for bar in times["bars"])
        )


def test_a_shared_prefix_is_computed_once_and_held_once() -> None:
    facts = tables()
    rows = facts["models"]["llama-3.1-8b"], facts["gpus"]["h100-sxm"], facts["codecs"]["bfloat16"]
    settings = roofline_explorer(phase="prefill", batch=4, context=8192, shared=75).settings
    work = roofline_work(*rows, settings)
    assert (work["fresh"], work["prefix"], work["made"]) == (2048, 6144, 8192)
    assert work["kv_once"] == 6144 * 131072
    assert work["kv_bytes"] == (6144 + 4 * 2048) * 131072
    assert work["needed"] == 2 * 8030261248 + (6144 + 4 * 2048) * 131072


def test_roofline_says_what_does_not_fit() -> None:
    fits = roofline_explorer().scene()["summary"]
    assert "does not fit" not in fits
    too_much = roofline_explorer(batch=512).scene()["summary"]
    needed = (2 * 8030261248 + 512 * 8192 * 131072) / 1e9
    assert (
        f"it needs {needed:,.0f} GB of memory and the GPU has 85.5 GB: it does not fit" in too_much
    )
    assert "reads at most 4,096 tokens" in roofline_explorer(model="llama-2-7b").scene()["summary"]


def test_growth_by_hand() -> None:
    scene = growth_explorer().scene()
    assert numbers(scene)["Ratio"] == "95.5 times"  # 107,350 passes against 1,123, and attention
    assert "= 107,350 rows" in scene["formula"][0]
    assert "= 1,123 rows" in scene["formula"][1]
    assert numbers(scene)["Kept for it"] == f"{1123 * 524288 / 2**20:.0f} MiB"


def test_growth_agrees_with_the_typed_costs() -> None:
    compared = 0
    for settings in settings_of("growth", 60, seed=5):
        scene = growth_explorer(**settings).scene()
        curves, bars = scene["panels"]
        again, once = line(curves, "recomputed"), line(curves, "with a cache")
        assert again[1] == once[1] and list(again) == list(once)
        if len(again) == settings["new"]:  # every step is drawn: they add up to the totals
            unit = {"M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}[bars["unit"][0]]
            for bar, steps in zip(bars["bars"], (again, once), strict=True):
                total = sum(p["value"] for p in bar["parts"]) * unit
                assert total == pytest.approx(sum(steps.values()))
        model, prompt, new = settings["model"], settings["prompt"], settings["new"]
        if model == "reference" or prompt + new > MODELS[model].max_context:
            continue
        typed = uncached(model, prompt, new)
        without = sum(p["value"] for p in bars["bars"][0]["parts"])
        assert without / part(bars, "computed once", bar=1) == pytest.approx(typed.ratio)
        compared += 1
    assert compared > 20


def test_lengths_are_what_the_settings_say() -> None:
    assert unequal_lengths(4, 100, 10) == [100, 70, 40, 10]
    assert unequal_lengths(3, 64, 100) == [64, 64, 64]
    for settings in settings_of("padding", 100, seed=6):
        n, longest = settings["requests"], settings["longest"]
        lengths = unequal_lengths(n, longest, settings["shortest"])
        assert len(lengths) == n and max(lengths) == lengths[0] == longest
        assert lengths[-1] == longest * settings["shortest"] // 100
        assert lengths == sorted(lengths, reverse=True)


def test_padding_counts_the_squares_that_it_draws() -> None:
    for settings in settings_of("padding", 100, seed=7):
        scene = padding_explorer(**settings).scene()
        cells, bars = scene["panels"]
        n, longest, reserve = (settings[k] for k in ("requests", "longest", "reserve"))
        lengths = unequal_lengths(n, longest, settings["shortest"])
        a_cell = reserve // 32
        for row, length in zip(cells["rows"], lengths, strict=True):
            assert len(row["cells"]) == 32 and row["label"] == f"{length:,}"
            assert row["cells"].count("cached") == math.ceil(length / a_cell)
            assert row["cells"].count("free") == 32 - math.ceil(longest / a_cell)
        totals = [sum(p["value"] for p in bar["parts"]) for bar in bars["bars"]]
        assert totals == [sum(lengths), n * longest, n * reserve]
        wasted = 1 - sum(lengths) / (n * reserve)
        assert part(bars, "tokens", bar=2) == pytest.approx((1 - wasted) * n * reserve)
        if 0.1 < wasted < 0.99:
            assert numbers(scene)["Empty in the reserved cache"] == f"{wasted * 100 + 1e-9:.0f} %"
