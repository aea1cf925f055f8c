"""The scene of the memory explorer, by hand and against the typed `kvlib.costs`."""

import math

import pytest
from small_scenes import GIB, line, numbers, part, settings_of

from kvbook.explorers.catalogue import HELD, memory_explorer, tables
from kvbook.explorers.scenes.memory import interval_words, memory_bytes
from kvlib.costs import MODELS, Bytes, max_context
from kvlib.costs.bill import ASSUMPTIONS, Share


def test_memory_by_hand() -> None:
    scene = memory_explorer().scene()
    assert scene["title"] == "Llama-3.1-8B on one H100 SXM: 8 requests of 32,768 tokens"
    assert scene["formula"] == [
        "2 \u00d7 32 layers \u00d7 8 kv heads \u00d7 128 \u00d7 2 bytes = 131,072 bytes per token",
        "32,768 tokens \u00d7 131,072 bytes = 4,294,967,296 bytes per request",
        "8 \u00d7 4,294,967,296 bytes = 32 GiB in all",
        "8,030,261,248 parameters \u00d7 16 bits / 8 = 15 GiB of weights in all",
    ]
    bar = scene["panels"][0]
    assert part(bar, "keys and values") == 32
    assert part(bar, "weights") == pytest.approx(8030261248 * 2 / GIB)
    assert part(bar, "reserve") == pytest.approx(81559 / 1024 / 10)
    free = 81559 / 1024 * 0.9 - 32 - 8030261248 * 2 / GIB
    assert part(bar, "free") == pytest.approx(free)
    assert f"{free:.1f} GiB stay free" in scene["summary"]


def test_memory_of_windows_latents_and_scales_by_hand() -> None:
    scene = memory_explorer(model="gemma-3-27b", batch=1, context=131072).scene()
    assert numbers(scene)["A request"] == "10.4 GiB"
    assert "Without the windows of its layers the cache would take 62 GiB." in scene["summary"]
    assert "2 \u00d7 52 layers (window 1,024) \u00d7 16 kv heads \u00d7 128" in scene["formula"][0]

    latent = "61 layers \u00d7 (512 latent + 64 rope) \u00d7 2 bytes = 70,272 bytes per token"
    assert memory_explorer(model="deepseek-v3", gpus=8).scene()["formula"][0] == latent

    scene = memory_explorer(kv="int8").scene()
    assert numbers(scene)["A token"] == "67,584 bytes"  # 65,536 and 512 scales of 4 bytes
    assert "+ 512 vectors \u00d7 4 bytes of scale = 2,048 bytes per token" in scene["formula"]
    assert part(scene["panels"][0], "their scales") == 8 * 32768 * 2048 / GIB

    scene = memory_explorer(kv="int4", context=512, batch=1, block=1).scene()
    kept = 384 * (32768 + 8192) + 128 * 131072  # the last 128 tokens in 16 bits
    assert f"= {kept:,} bytes per request" in scene["formula"][3]


def test_memory_that_does_not_fit_says_by_how_much() -> None:
    scene = memory_explorer(context=131072).scene()
    over = 8030261248 * 2 / GIB + 128 - 81559 / 1024
    assert f"That is {over:.1f} GiB more than" in scene["summary"]
    bar = scene["panels"][0]
    assert part(bar, "free") == part(bar, "reserve") == 0
    assert bar["marks"][0]["value"] < part(bar, "weights") + part(bar, "keys and values")
    scene = memory_explorer(model="llama-3.1-405b").scene()
    assert "The weights alone take 756 GiB" in scene["summary"]
    assert numbers(scene)["Longest context of 8 requests"] == "none"
    assert "fits on paper only" in memory_explorer(batch=16).scene()["summary"]


def test_memory_agrees_with_the_typed_costs() -> None:
    low, high = ASSUMPTIONS["90 % utilisation"], ASSUMPTIONS["weights only"]
    compared = 0
    names = ("model", "gpu", "gpus", "kv", "weights", "block")
    evicting = 0
    for settings in settings_of("memory", 300, weights="bfloat16"):
        budget = settings["budget"] or None  # what only layers without a window may have
        if all(group.window for group in MODELS[settings["model"]].layers):
            budget = None
        groups = MODELS[settings["model"]].layers
        plain = not any(g.state or g.index or g.every > 1 for g in groups)
        rule = settings["held"] if budget is None else "needed"  # costs refuses another one
        rule = "needed" if rule == "vllm" and not plain else rule
        try:
            share = Share.of(*(settings[n] for n in names), reserve=rule, budget=budget)
        except ValueError:  # heads that cannot be shared out: the scene says so
            assert "do not divide evenly" in memory_explorer(**settings).scene()["summary"]
            continue
        facts = tables()
        got = memory_bytes(
            facts["models"][settings["model"]], facts["gpus"][settings["gpu"]],
            facts["codecs"][settings["kv"]], settings,
        )
        batch, context = settings["batch"], settings["context"]
        assert Bytes(math.ceil(got["weights"])) == share.weights
        assert Bytes(int(got["held"])) == share.kv(batch, context)
        assert got["requests_high"] == share.requests(context, high)
        assert got["requests_low"] == share.requests(context, low)
        assert got["longest_high"] == share.longest(batch, high).value
        assert got["longest_low"] == share.longest(batch, low).value
        compared += 1
        evicting += budget is not None
    assert compared > 150 and evicting > 100


PARTS = ("weights", "keys and values", "states", "their scales", "held, not needed")


def test_memory_bars_add_up() -> None:
    for settings in settings_of("memory", 300, seed=1):
        scene = memory_explorer(**settings).scene()
        bar = scene["panels"][0]
        usable, shown = bar["marks"][0]["value"], sum(p["value"] for p in bar["bars"][0]["parts"])
        used = shown - part(bar, "free") - part(bar, "reserve")
        assert shown == pytest.approx(max(usable, used))
        assert used == pytest.approx(sum(part(bar, label) for label in PARTS))
        if used < 0.9 * usable:
            assert part(bar, "reserve") == pytest.approx(0.1 * usable)
        if settings["held"] != "needed":
            continue
        # a layer's last block lacks a token at least, and so does the first that a window sees
        facts = tables()["models"][settings["model"]]
        codec = tables()["codecs"][settings["kv"]]
        most = (settings["block"] - 1) * settings["batch"] * 2 / GIB
        most *= sum(g["count"] * g["values"] * (1 + (g["window"] > 0)) for g in facts["layers"])
        assert part(bar, "held, not needed") <= most
        assert (part(bar, "their scales") > 0) == (codec["scale_bits"] > 0)


def test_memory_curve_rises_through_the_point_and_bends_at_the_window() -> None:
    for settings in settings_of("memory", 60, seed=2):
        panel = memory_explorer(**settings).scene()["panels"][1]
        curve = list(line(panel, "KV cache").items())
        assert all(a[0] < b[0] and a[1] <= b[1] for a, b in zip(curve, curve[1:]))
        (point,) = panel["points"]
        assert dict(curve)[point["x"]] == pytest.approx(point["y"])
    one = memory_explorer(model="mistral-7b-v0.1", block=1).scene()["panels"][1]
    bent = line(one, "KV cache")
    assert bent[2048] == 2 * bent[1024] and bent[4096] == bent[2**20] == 2 * bent[2048]
    assert line(one, "no windows")[8192] == 2 * bent[4096]
    paged = memory_explorer(model="mistral-7b-v0.1").scene()["panels"][1]
    assert line(paged, "KV cache")[8192] == bent[4096] * 257 / 256  # a block more than it fills
    whole = memory_explorer(model="mistral-7b-v0.1", held="all").scene()["panels"][1]
    assert line(whole, "KV cache")[8192] == 2 * bent[4096]
    assert line(whole, "what is needed")[8192] == line(paged, "KV cache")[8192]


def test_what_engines_hold_for_windows() -> None:
    gemma = dict(model="gemma-3-27b", batch=1, context=131072)
    needed, vllm, everything = (
        memory_explorer(**gemma, held=held).scene() for held in ("needed", "vllm", "all")
    )
    label = "All requests"
    assert numbers(needed)[label] == "10.4 GiB" and numbers(everything)[label] == "62 GiB"
    blocks = 8192 + 6 * 65  # one group of 10 layers without a window, and six with one
    assert f": {blocks * 16 * 10 * 8192:,} bytes per request" in vllm["formula"][4]
    assert "in vLLM's groups of 10 layers, in whole blocks of 16 tokens" in vllm["formula"][4]
    assert "in blocks of 16 tokens, within which a window may begin" in needed["formula"][4]
    assert "if every layer holds 131,072 tokens: 66,571,993,088 bytes" in everything["formula"][4]
    assert "The tokens that the next queries see take 10.4 GiB." in everything["summary"]
    assert "Without the windows" not in everything["summary"]
    assert "that the next queries see" not in needed["summary"]
    plain, same = memory_explorer().scene(), memory_explorer(held="vllm").scene()
    assert all(same[key] == plain[key] for key in ("formula", "numbers", "panels"))
    assert same["summary"] == (
        f"{plain['summary']} The layers of this model have no windows, so they hold every token."
    )


def test_a_budget_by_hand() -> None:
    plain, scene = memory_explorer().scene(), memory_explorer(budget=1024).scene()
    each = 1040 * 131072  # 1,024 tokens and the new one, in whole blocks of 16
    assert scene["formula"][0] == plain["formula"][0]
    assert scene["formula"][1:5] == [
        "eviction leaves 1,024 tokens in each of 32 layers, and the step adds 1: 1,025 tokens",
        f"1,025 tokens \u00d7 131,072 bytes = {1025 * 131072:,} bytes per request",
        f"in whole blocks, 65 \u00d7 16 = 1,040 tokens: {each:,} bytes per request",
        f"8 \u00d7 {each:,} bytes = 1.02 GiB in all",
    ]
    kept = "Eviction leaves 1,024 tokens in each layer; without it the cache would take 32 GiB."
    assert scene["summary"].endswith(kept)
    said = numbers(scene)
    assert said["A token"] == "131,072 bytes" and said["Empty in a last block"].startswith("15 ")
    assert said["Longest context of 8 requests"] == "no limit: the budget bounds it"
    low, high = said["Requests of 32,768 tokens that fit"].removesuffix(" requests").split(" to ")
    room = 81559 * 2**20 - 8030261248 * 2
    assert int(high) == room // each and int(low) < int(high)
    panel = scene["panels"][1]
    assert line(panel, "KV cache")[512] == line(panel, "no eviction")[512]
    assert line(panel, "KV cache")[2**20] == 8 * each
    assert line(panel, "no eviction") == line(plain["panels"][1], "KV cache")
    short = memory_explorer(budget=8192, context=8192).scene()
    assert "A request is no longer than the budget, so nothing is evicted." in short["summary"]
    assert short["panels"][0] == memory_explorer(context=8192).scene()["panels"][0]


def test_a_budget_beside_windows() -> None:
    gemma = dict(model="gemma-3-27b", batch=1, context=131072)
    scenes = [memory_explorer(**gemma, held=h, budget=4096).scene() for h in HELD]
    assert scenes[0]["panels"] == scenes[1]["panels"] == scenes[2]["panels"]
    each = (10 * 4112 + 52 * 1040) * 8192  # in blocks of 16; a window may begin within one
    assert numbers(scenes[0])["All requests"] == f"{each / 2**20:.0f} MiB"
    kept = "Eviction leaves 4,096 tokens in each layer without a window; without it the cache"
    assert f"{kept} would take 10.4 GiB." in scenes[0]["summary"]
    frees = "A cache that evicts frees what its windows have passed: "
    frees += "they hold what the next query sees."
    assert [frees in scene["summary"] for scene in scenes] == [False, True, True]
    assert any("in each of 10 layers" in words for words in scenes[0]["formula"])
    windows = [memory_explorer(model="mistral-7b-v0.1", budget=b).scene() for b in (0, 1024)]
    assert windows[0]["panels"] == windows[1]["panels"]
    nothing = "Every layer of this model has a window, so a budget changes nothing."
    assert nothing in windows[1]["summary"]


def test_intervals_in_words() -> None:
    endless = "no limit: windows bound it"
    assert interval_words(0, 0, "token", "tokens", endless) == "none"
    assert interval_words(0, 5, "token", "tokens", endless) == "0 to 5 tokens"
    assert interval_words(7, 7, "token", "tokens", endless) == "7 tokens"
    assert interval_words(2**40, 2**40, "token", "tokens", endless) == endless
    ranges = max_context("mistral-7b-v0.1", "h100-sxm")
    scene = memory_explorer(model="mistral-7b-v0.1", batch=1).scene()
    assert ranges.high.value == 2**40
    assert numbers(scene)["Longest context of 1 request"] == "no limit: windows bound it"
