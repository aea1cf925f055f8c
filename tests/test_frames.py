"""Explorers whose scenes come from a run: what they show is what was run."""

import copy
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models import decoder, text
from small_scenes import axis, check_scene, numbers, settings_of, shelf_explorer
from test_decoder import new_cache

from kvbook.explorers import Explorer, Slider, svg
from kvbook.explorers.catalogue import sampling_explorer
from kvbook.explorers.rounding import SEEN, rounded_scene
from kvbook.explorers.scenes.blocks import PoolFilm, replay
from kvbook.explorers.scenes.panels import bars_panel, curves_panel
from kvbook.explorers.scenes.sampling import kept_tokens, softmax_of
from kvbook.explorers.scenes.words import number_words
from kvbook.figures import chunked, gpu, layernorm, museum, prefixes, quantized
from kvlib import BlockPool, LayerSpec, PagedCache, codecs
from kvlib.caches.allocation.pool import BlockEvent
from kvlib.serve import Event, Scheduler, probabilities, waits

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))


# paged -----------------------------------------------------------------------------------------


LAYERS = [LayerSpec(1, 2)]


def log(cache: PagedCache) -> list[BlockEvent]:
    assert cache.pool.events is not None
    return cache.pool.events


def store(cache: PagedCache, name: int, tokens: list[int]) -> None:
    zeros = np.zeros((len(tokens), 1, 2), dtype=np.float32)
    cache.append(0, zeros, zeros, cache.plan([name], [len(tokens)], tokens))


def played() -> tuple[PagedCache, PoolFilm]:
    """Arrive, fork, write into a shared block, finish."""
    cache = PagedCache(LAYERS, BlockPool(6, 2, log=True))
    film = PoolFilm(cache, names="AB")
    cache.add("A")
    cache.plan(["A"], [3])
    film.note("A arrives")
    cache.fork("A", "B")
    film.note("B is forked")
    cache.plan(["A", "B"], [1, 1])
    film.note("both grow")
    cache.plan(["A"], [1])
    cache.truncate("A", 4)
    film.note("A changes its mind")
    for name in "AB":
        cache.free(name)
    film.note("both finish")
    return cache, film


def test_replaying_the_log_gives_the_counts_of_the_pool() -> None:
    rng = np.random.default_rng(0)
    cache = PagedCache(LAYERS, BlockPool(8, 2, log=True))
    for name in range(200):
        tokens = rng.integers(1, 3, 5).tolist()
        held = cache.add(name, tokens)
        store(cache, name, tokens[held:])
        if name % 7 == 0:
            cache.fork(name, "copy")
            store(cache, name, [1])
            cache.free("copy")
        if name > 0 and name % 2:
            cache.free(name - 1)
            cache.free(name)
    last = replay(log(cache), 8)[-1]
    assert list(last.references) == [cache.pool.ref_count(b) for b in range(8)]
    assert len(last.published) == cache.pool.num_published > 0
    assert all(b in cache.pool.index for b in last.published)
    kinds = {event.kind for event in log(cache)}
    assert kinds == {"allocate", "touch", "free", "publish", "evict"}


def test_a_frame_for_each_event_and_each_quiet_note() -> None:
    cache, film = played()
    quiet = 1  # the note before the first request
    assert len(film.scenes()) == len(log(cache)) + quiet
    kinds = [scene["title"].split("(")[-1].split()[0] for scene in film.scenes()[1:]]
    assert kinds == [event.kind for event in log(cache)]


def pool_row(scene: dict[str, Any]) -> list[str]:
    return scene["panels"][0]["rows"][0]["cells"]


def test_roles_follow_the_counts() -> None:
    scenes = played()[1].scenes()
    assert pool_row(scenes[0]) == ["free"] * 6
    assert pool_row(scenes[1]) == ["key", "key", "free", "free", "free", "free"]
    assert pool_row(scenes[2])[:2] == ["key", "key"]  # touched by the fork
    assert scenes[2]["panels"][0]["rows"][2]["cells"][:2] == ["shared", "shared"]
    copied, let_go = scenes[3], scenes[4]
    assert pool_row(copied)[:3] == ["shared", "shared", "key"]
    assert pool_row(let_go)[:3] == ["shared", "cached", "cached"]
    assert pool_row(scenes[-1]) == ["free"] * 6


def test_tables_change_with_the_last_event_of_a_step() -> None:
    scenes = played()[1].scenes()

    def tables(scene: dict[str, Any]) -> list[str]:
        return [n["text"] for n in scene["numbers"][1:]]

    assert tables(scenes[1]) == ["0, 1", "–"]
    assert tables(scenes[2]) == ["0, 1", "0, 1"]
    assert tables(scenes[3]) == ["0, 1", "0, 1"]  # the copy is made, nobody points to it yet
    assert tables(scenes[4]) == ["0, 2", "0, 1"]


def test_places_and_slots_of_a_frame() -> None:
    scene = played()[1].scenes()[1]
    places = scene["panels"][1]["rows"][0]["cells"]
    assert places[:5] == ["cached", "cached", "", "cached", "free"]  # a gap between two blocks
    line = "A, position 2: entry 2 // 2 = 1 is block 1, offset 2 % 2 = 0, slot 1 × 2"
    assert scene["formula"] == [line + " + 0 = 2"]
    assert scene["numbers"][0]["text"] == "4 of 6"


def test_the_explorer_has_a_stop_for_each_frame_and_draws_each() -> None:

    explorer = played()[1].explorer("pool", "A pool at work")
    (slider,) = explorer.controls
    frames = [explorer.scene(moment=m) for m in slider.values]
    assert len(frames) == len(set(slider.texts))
    for scene in frames:
        assert "<svg" in svg.draw(scene, 360)
    assert explorer.svg(moment=3) == svg.draw(frames[3])


def test_free_but_findable_blocks_are_named_in_the_legend() -> None:
    cache = PagedCache(LAYERS, BlockPool(4, 2, log=True))
    film = PoolFilm(cache, names=["A"])
    cache.add("A", tokens=[1, 2, 3])
    zeros = np.zeros((3, 1, 2), dtype=np.float32)
    cache.append(0, zeros, zeros, cache.plan(["A"], [3], [1, 2, 3]))
    cache.free("A")
    film.note("A came and went")
    scene = film.scenes()[-1]
    assert pool_row(scene) == ["muted", "free", "free", "free"]
    assert "free and known" in [e["label"] for e in scene["panels"][0]["legend"]]


def test_what_a_film_refuses() -> None:
    with pytest.raises(ValueError, match="the pool keeps no log"):
        PoolFilm(PagedCache(LAYERS, BlockPool(2, 2)), names="A")
    cache = PagedCache(LAYERS, BlockPool(2, 2, log=True))
    film = PoolFilm(cache, names="A")
    cache.add("B")
    with pytest.raises(ValueError, match="request 'B' is not among"):
        film.note("B arrives")


# prefixes --------------------------------------------------------------------------------------


def lived() -> tuple[PagedCache, list[prefixes.Moment]]:
    """A prompt of six tokens in blocks of four, a fork that writes, and both leave."""
    cache = PagedCache([LayerSpec(1, 2)], BlockPool(4, 4, log=True), xp=np)
    moments = []

    def note(words: str) -> None:
        tables = {name: cache.blocks(name) for name in cache.seq_ids}
        moments.append(prefixes.Moment(words, len(cache.pool.events), tables))

    def run(name: str, tokens: list[int]) -> None:
        step = cache.plan([name], [len(tokens)], tokens)
        k = np.ones((len(tokens), 1, 2), dtype=np.float32)
        cache.append(0, k, k, step)

    cache.add("a", range(6))
    run("a", list(range(6)))
    note("a reads")
    cache.fork("a", "b")
    note("a is forked")
    run("b", [7])
    note("b writes")
    cache.free("a")
    cache.free("b")
    note("both leave")
    return cache, moments


def test_the_pool_explorer_replays_each_moment() -> None:
    cache, moments = lived()
    explorer = prefixes.pool_explorer(cache.pool.events, 4, moments)
    cells = [
        [row["cells"] for row in explorer.scene(moment=i)["panels"][0]["rows"]] for i in range(1, 5)
    ]
    one, many, free, new = "cached", "shared", "free", "key"
    assert cells[0] == [[new, new, free, free], [one, one, "", ""], [""] * 4]
    assert cells[1] == [[many, many, free, free], [many, many, "", ""], [many, many, "", ""]]
    assert cells[2] == [[many, one, new, free], [many, one, "", ""], [many, "", one, ""]]
    assert cells[3] == [["muted", free, free, free], [""] * 4, [""] * 4]
    scene = explorer.scene(moment=3)
    assert scene["title"] == "b writes"
    assert [n["text"] for n in scene["numbers"]] == ["3", "1", "0", "1"]
    assert "Of 4 blocks: 3 used (1 of them shared)" in scene["summary"]
    assert scene["formula"] == [
        "a: blocks 0, 1", "b: blocks 0, 2",
        "entries in all block tables: 4; blocks that they name: 3",
    ]
    assert "1 free and known, 3 free and blank." in explorer.scene(moment=4)["summary"]
    assert [row["label"] for row in scene["panels"][0]["rows"]] == ["pool", "a", "b"]
    assert "<svg" in explorer.svg(moment=2)


# chunked ---------------------------------------------------------------------------------------


def serve(budget: int | None) -> list[Event]:
    model = decoder("llama", seed=3)
    server = Scheduler(model, new_cache(model, 3, 48), budget=budget, stop_tokens=())
    for name in "ab":
        server.add(name, text(1, 3), 16)
        server.step()
    server.add("book", text(2, 20), 2)
    server.run()
    return server.events


def test_the_explorer_shows_the_schedule_of_each_budget() -> None:
    runs = {b: serve(b) for b in (4, 7, 12, 22)}
    assert runs[22] == serve(None)
    explorer = chunked.budget_explorer(runs, "book")
    assert explorer.controls[0].texts == (
        *("4 tokens per step", "7 tokens per step", "12 tokens per step"),
        "no budget",
    )
    for budget, events in runs.items():
        scene = explorer.scene(budget=budget)
        check_scene(scene)
        cells, line, bars = scene["panels"]
        steps = 1 + max(e.step for e in events)
        assert {len(row["cells"]) for row in cells["rows"]} == {steps}
        passes = {"query": "prefill", "cached": "decode"}
        for role, kind in passes.items():
            drawn = sum(row["cells"].count(role) for row in cells["rows"])
            assert drawn == sum(e.kind == kind for e in events)
        (drawn_steps,) = line["lines"]
        tokens = np.diff(chunked.fed_before(events)).tolist()
        assert [y for _, y in drawn_steps["points"]] == [n for n in tokens for _ in "||"]
        longest = max(waits(events)["a"])
        assert [b["parts"][0]["value"] for b in bars["bars"]] == [
            longest, max(waits(events)["b"]), chunked.first_token(events, "book"),
        ]
        assert f"at most {longest:,} tokens are fed" in scene["summary"]
    assert "is read whole" in explorer.scene(budget=22)["title"]
    for panel, side in ((1, "x"), (1, "y"), (2, "max")):
        assert len({str(explorer.scene(budget=b)["panels"][panel][side]) for b in runs}) == 1
    assert explorer.scene(budget=7)["formula"] == [
        "a step that reads: 7 tokens \u2212 2 that decode = 5 of the prompt"
    ]
    with pytest.raises(ValueError, match="1 values, needed two or more"):
        chunked.budget_explorer({4: runs[4]}, "book")


def test_the_explorer_of_tiles_adds_up() -> None:
    scores = np.array([1.0, 0.5, 4.0, 2.0, 3.0, -1.0])
    tops = [float(scores[:n].max()) for n in (2, 4, 6)]
    totals = [float(np.exp(scores[:n] - t).sum()) for n, t in zip((2, 4, 6), tops, strict=True)]
    explorer = chunked.tiles_explorer([2, 4, 6], tops, totals, [1.2, 0.4, 0.0])
    for i in range(3):
        scene = explorer.scene(tile=i + 1)
        check_scene(scene)
        cells, bars = scene["panels"]
        assert cells["rows"][0]["cells"] == ["ink", "ink", "muted"][: i + 1] + ["free"] * (2 - i)
        before, after = (sum(p["value"] for p in bar["parts"]) for bar in bars["bars"])
        assert before == pytest.approx(totals[i - 1] if i else 0, rel=0.005)
        assert after == pytest.approx(totals[i], rel=0.005) and bars["max"] >= max(totals)
    new = explorer.scene(tile=2)["panels"][1]["bars"][1]["parts"][1]["value"]
    assert new == pytest.approx(np.exp(scores[2:4] - 4.0).sum(), rel=0.005)
    assert "raises top from 1 to 4: 5 % of the old sum remains" in explorer.scene(tile=2)["summary"]
    assert "does not raise top" in explorer.scene(tile=3)["summary"]
    lse = explorer.scene(tile=3)["numbers"][2]["text"]
    assert lse == f"{np.log(np.exp(scores).sum()):.2f}"
    with pytest.raises(ValueError, match="equally long, got 3, 2, 3, 3"):
        chunked.tiles_explorer([1, 2, 3], tops[:2], totals, [1, 1, 0])


# quantized -------------------------------------------------------------------------------------


def keys_and_queries() -> tuple[np.ndarray, np.ndarray]:
    """64 keys of 64 channels: offsets, and channel 3 that swings and is looked at."""
    rng = np.random.default_rng(0)
    keys = rng.standard_normal((64, 64)).astype(np.float32) * np.float32(0.3)
    keys += np.linspace(-3, 3, 64, dtype=np.float32)
    keys[:, 3] = 9 * np.cos(np.arange(64))
    queries = rng.standard_normal((64, 2, 64)).astype(np.float32)
    queries[:, :, 3] *= 12
    return keys, queries


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_decoded_is_what_the_codecs_decode(bits: int) -> None:
    keys, _ = keys_and_queries()
    for along, made in (("per channel", codecs.PerChannel), ("per token", codecs.PerToken)):
        codec = made(bits, 32)
        wanted = codec.decode(codec.encode(keys[None]), np.float32)[0]
        np.testing.assert_allclose(quantized.decoded(keys, bits, along), wanted, atol=1e-5)


def test_bits_explorer_shows_that_the_two_errors_disagree() -> None:
    keys, queries = keys_and_queries()
    explorer = quantized.bits_explorer(keys, queries)
    (slider,) = explorer.controls
    assert list(slider.values) == list(range(1, 9)) and explorer.settings == {"bits": 2}
    widths = []
    for bits in slider.values:
        scene = explorer.scene(bits=bits)
        curves, bars = scene["panels"]
        assert curves["label"].startswith("Channel 3,")
        assert [bar["label"] for bar in bars["bars"]] == ["keys"] * 2 + ["scores"] * 2
        parts = [bar["parts"][0] for bar in bars["bars"]]
        assert bars["max"] == pytest.approx(1.04 * max(p["value"] for p in parts), rel=0.01)
        near = [min(pair, key=lambda p: p["value"])["label"] for pair in (parts[:2], parts[2:])]
        disagree = f"{near[0]}, but that of the scores is smaller {near[1]}"
        agree = f"{near[0]}, and so is that of the scores"
        assert (agree if near[0] == near[1] else disagree) in scene["summary"]
        widths.append([part["value"] for part in parts[2:]])
    assert near == ["per channel", "per token"]
    assert (np.diff(np.array(widths), axis=0) < 0).all()  # more bits, less error
    assert explorer.scene(bits=4)["formula"] == ["4 + 32 / 32 = 5 bits per number"]
    lines = {n["label"]: [y for _, y in n["points"]] for n in curves["lines"]}
    assert np.allclose(lines["as it was"], keys[:, 3], atol=0.0051)
    assert explorer.svg(bits=3) != explorer.svg(bits=4)


def test_bits_explorer_refuses_other_shapes() -> None:
    keys, queries = keys_and_queries()
    with pytest.raises(ValueError, match="both multiples of 32, got \\(60, 64\\)"):
        quantized.bits_explorer(keys[:60], queries[:60])
    with pytest.raises(ValueError, match=r"queries must be \(64, G, 64\)"):
        quantized.bits_explorer(keys, queries[:32])


# sampling --------------------------------------------------------------------------------------


def test_the_scenes_rows_are_the_models_own() -> None:
    from make_logit_rows import rows

    stored, fresh = sampling_explorer().tables["logit_rows"], rows()
    assert list(stored) == list(fresh)
    for key, row in fresh.items():
        assert row["title"] == stored[key]["title"] and len(row["logits"]) == 256
        np.testing.assert_allclose(stored[key]["logits"], row["logits"], atol=0.011)


def test_the_scene_keeps_what_the_library_keeps() -> None:
    rows = sampling_explorer().tables["logit_rows"]
    for settings in settings_of("sampling", 600, seed=1):
        logits = np.asarray([rows[settings["row"]]["logits"]])
        kept = (settings["temperature"], settings["top_k"], settings["top_p"] / 100)
        p = probabilities(logits, *kept)[0]
        before = softmax_of(logits[0].tolist(), settings["temperature"])
        found = kept_tokens(before, settings["top_k"], settings["top_p"] / 100)
        assert found == (p > 0).sum(), settings
        scene = sampling_explorer(**settings).scene()
        assert numbers(scene)["Tokens remaining"] == str(found)
        bars = scene["panels"][0]["bars"]
        percent = 100 * sum(before[:found])  # of the probability before the cuts
        for bar, share in zip(bars[:found], p, strict=False):
            assert bar["parts"][0]["value"] == pytest.approx(percent * share, rel=1e-6)
            assert bar["parts"][0]["role"] == "muted"
        assert {bar["parts"][0]["role"] for bar in bars[found:]} <= {"free"}


# layernorm -------------------------------------------------------------------------------------


def test_partial_sums_trade_traffic_for_blocks() -> None:
    explorer = layernorm.partials_explorer(rows=1000, width=64, size=2)
    (slider,) = explorer.controls
    assert slider.values == (1, 4, 16, 64, 132, 256, 512) and slider.value == 132
    scene = explorer.scene(groups=16)
    assert [n["text"] for n in scene["numbers"]][0] == "16 of 132"
    assert scene["numbers"][2]["text"] == "79"  # 63 rows of a group, then 16 groups
    parts = scene["panels"][0]["bars"][0]["parts"]
    moved = layernorm.traffic(16, 1000, 64, 2)
    assert [p["value"] for p in parts] == pytest.approx(
        [n / 1e6 for n in moved.values()], rel=0.005
    )
    assert moved["partial sums, written and read"] == 16 * 64 * 2 * 4 * 2
    arrays = moved["dy and x_hat read, dx written, and small arrays"]
    assert arrays == 3 * 1000 * 64 * 2 + 4 * 1000 + 3 * 64 * 2
    assert explorer.svg(groups=512) != explorer.svg(groups=1)
    with pytest.raises(ValueError, match="width: got 0"):
        layernorm.partials_explorer(10, 0, 2)


# gpu -------------------------------------------------------------------------------------------


def scene_number(scene, words):
    return next(n["text"] for n in scene["numbers"] if words in n["label"])


def test_splits_fill_the_device():
    explorer = gpu.splits_explorer(65536, 8, 4, 128, 132, 3)
    for splits, busy in ((1, 8), (16, 128), (32, 132), (49, 132), (64, 132)):
        scene = explorer.scene(splits=splits)
        check_scene(scene)
        found = [c for row in scene["panels"][0]["rows"] for c in row["cells"]]
        assert len(found) == 132 and found.count("muted") == busy
        letters = "".join(row["letters"] for row in scene["panels"][0]["rows"])
        assert sum(map(int, letters.replace(" ", "0"))) == min(8 * splits, 396)
    last = [scene_number(explorer.scene(splits=n), "last block") for n in (1, 49, 64, 128)]
    assert last == ["65,536", "1,338", "2,048", "1,536"]  # more is not free
    one, many = (explorer.scene(splits=n)["panels"][1]["bars"] for n in (1, 128))
    assert one[0] == many[0] and one[1]["parts"][0]["value"] == 0
    partial = 2 * 128 * 32 * 129 * 4 / 2**20
    assert many[1]["parts"][0]["value"] == pytest.approx(partial, rel=0.005)


# museum ----------------------------------------------------------------------------------------


def test_explorer_has_a_scene_for_each_bug() -> None:
    healthy = [1.0, 0.5, 0.25]
    explorer = museum.hall_explorer(healthy, {"mask_of_ones": [1.0, 2.0, 0.25], "quiet": healthy})
    for bug in (1, 2):
        check_scene(explorer.scene(bug=bug))
    loud, quiet = explorer.scene(bug=1), explorer.scene(bug=2)
    assert loud["title"] == "Mask of ones" and "byte 2." in loud["summary"]
    assert "1.08" in loud["summary"] and "0.58" in loud["summary"] and "none" in quiet["summary"]
    assert loud["panels"][0]["y"] == quiet["panels"][0]["y"], "one scale for all"
    with pytest.raises(ValueError, match="quiet: got 2 bytes, needed 3"):
        museum.hall_explorer(healthy, {"quiet": [1.0, 2.0]})


def bars(*values: float, top: float = 10.0) -> dict[str, Any]:
    parts = [["part", value, "cached"] for value in values]
    return bars_panel("Bars", "%", top, [["all", parts]], [["mark", values[0]]])


def curves(points: list[list[float]], y: dict[str, Any]) -> dict[str, Any]:
    here = ["here", "key", *points[0]]
    x = axis("token", "linear", [0, 4])
    return curves_panel("Curves", x, y, [["line", "key", points, False]], [here])


def scene(*panels: dict[str, Any]) -> dict[str, Any]:
    words = {"title": "T", "summary": "S" * 50, "formula": ["1"], "numbers": []}
    return words | {"panels": list(panels)}


def test_a_bar_is_as_long_as_its_number_says() -> None:
    given = [12.345678, 0.0123456, 1234.5678, 99.951, 3, 0.0, -4.5678, 1e-9]
    (panel,) = rounded_scene(scene(bars(*given, top=1300.4)))["panels"]
    found = [part["value"] for part in panel["bars"][0]["parts"]]
    assert found == [12.3, 0.0123, 1235.0, 100.0, 3, 0.0, -4.57, 0.0]
    assert [number_words(x) for x in found[:-1]] == [number_words(x) for x in given[:-1]]
    assert panel["marks"][0]["value"] == 12.3 and panel["max"] == 1300.0
    assert isinstance(found[4], int), "whole numbers stay as they are"


def test_a_point_keeps_what_a_plot_shows() -> None:
    y = axis("bits", "linear", [-10.0, 10.0]) | {"min": -10.292481136322023}
    points = [[0, 3.14159265], [1, -0.004], [2, 9.999]]
    (panel,) = rounded_scene(scene(curves(points, y)))["panels"]
    assert panel["lines"][0]["points"] == [[0, 3.14], [1, 0.0], [2, 10.0]]
    assert (panel["y"]["min"], panel["y"]["max"]) == (-10.29, 10.0)
    assert panel["points"][0]["y"] == 3.14
    assert "-0.0" not in json.dumps(panel), "zero has no sign that rounding could change"
    log = axis("bytes", "log", [1.0, 1e6])
    (panel,) = rounded_scene(scene(curves([[0, 123456.789], [1, 1.00049]], log)))["panels"]
    assert panel["lines"][0]["points"] == [[0, 123500.0], [1, 1.0]]


@pytest.mark.parametrize("span", [0.013, 0.99, 1.0, 7.7, 35.9, 4096.0, 2e7])
def test_a_rounded_curve_moves_by_less_than_a_quarter_of_a_pixel(span: float) -> None:
    y = axis("y", "linear", [0, span / 2, span])
    points = [[t, float(v)] for t, v in enumerate(np.random.default_rng(0).random(200) * span)]
    (panel,) = rounded_scene(scene(curves(points, y)))["panels"]
    for (_, before), (_, after) in zip(points, panel["lines"][0]["points"], strict=True):
        assert abs(after - before) <= span / SEEN / 2 and 240 * abs(after - before) / span < 0.25
    assert len({after for _, after in panel["lines"][0]["points"]}) > 150


def test_last_bits_do_not_reach_the_page_or_the_picture() -> None:
    slider = Slider("step", "Step", [1, 2])
    values = np.float32([1.234567, 7.654321, 0.5])

    def page(noise: float) -> str:
        y = axis("y", "linear", [-1.0, 9.0]) | {"max": float(values[1] * 1.1 * (1 + noise))}
        found = [[i, float(v) * (1 + noise)] for i, v in enumerate(values)]
        made = scene(curves(found, y), bars(*(v for _, v in found)))
        return Explorer.from_frames("noise", "Noise", slider, [made, made]).to_html()

    assert page(0) == page(1e-6) == page(-1e-6)
    assert page(0) != page(1e-2), "what can be seen is shown"
    assert "7.654" in page(0) and "7.6543" not in page(0)


def test_the_rest_of_a_scene_and_the_argument_stay() -> None:
    before = shelf_explorer().scene()
    kept = copy.deepcopy(before)
    after = rounded_scene(before)
    assert before == kept
    assert {k: v for k, v in after.items() if k != "panels"} == {
        k: v for k, v in before.items() if k != "panels"
    }
    cells = [(a, b) for a, b in zip(before["panels"], after["panels"]) if a["kind"] == "cells"]
    assert cells and all(a == b for a, b in cells)
    check_scene(after)
    assert rounded_scene(after) == after and "<svg" in svg.draw(after)
