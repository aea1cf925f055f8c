"""What the drawings of the chapter on chunks show, read back from their axes, and its explorer."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import labels, legend, texts, ys
from models import decoder, text
from small_scenes import check_scene
from test_decoder import new_cache

from kvbook.figures import chunked as draw
from kvbook.figures.chunked import fed_before
from kvlib.serve import Event, Scheduler, waits

EVENTS = [
    Event(0, "a", "prefill", 3, 7),
    Event(1, "a", "decode", 1, 8),
    Event(1, "book", "prefill", 4),
    Event(1, "c", "wait", 0),
    Event(2, "a", "decode", 1, 9),
    Event(2, "book", "prefill", 2, 5),
    Event(2, "a", "done", 0),
    Event(3, "book", "decode", 1, 6),
]


pytestmark = pytest.mark.usefixtures("drawn")


def test_the_scores_are_drawn_in_one_unit_from_zero() -> None:
    (ax,) = draw.score_matrix([1, 2, 4], [3 << 20, 6 << 20, 12 << 20], [1 << 20] * 3).axes
    assert ax.get_ylim()[0] == 0 and ax.get_ylabel() == "memory (MiB)"
    assert list(ax.lines[0].get_ydata()) == [3 << 20, 6 << 20, 12 << 20]
    assert texts(ax) == ["peak, measured", "the scores, once"]


def test_filled_points_are_tiles_that_raised_top() -> None:
    away, lse = {"x": [1.0, 0.5, 0.0]}, {"x": [2.0, 2.5, 3.0]}
    top, low = draw.converge([8, 16, 24], away, lse, {"x": [True, False, True]}).axes
    for ax, values in ((top, away["x"]), (low, lse["x"])):
        line, raised, others = ax.lines
        assert list(line.get_ydata()) == values
        assert list(raised.get_xdata()) == [8, 24] and list(others.get_xdata()) == [16]
        assert raised.get_markerfacecolor() != others.get_markerfacecolor() == "#ffffff"
    assert texts(low) == ["x"] and low.get_xlabel() == "keys read"


def test_memory_by_tile_and_by_chunk_have_their_level_beside_them() -> None:
    (ax,) = draw.peak_by_tile([1, 8], [2 << 20, 4 << 20], 5 << 20).axes
    assert ys(ax) == [[5 << 20] * 2, [2 << 20, 4 << 20]]
    assert labels(ax.xaxis) == ["1", "8"]
    (ax,) = draw.peak_by_chunk([1, 8], [1 << 20, 3 << 20], 2 << 20).axes
    assert list(ax.lines[1].get_ydata()) == [2 << 20] * 2
    assert ax.get_ylim()[0] == 0


def test_the_staircase_covers_what_chunks_compute() -> None:
    pairs = {"whole": 144, "chunks": 96}
    left, right = draw.grid(12, 4, pairs).axes
    boxes = [p for p in left.patches if hasattr(p, "get_width")]
    assert sum(p.get_width() * p.get_height() for p in boxes) == 96 == 12 * (12 + 4) // 2
    assert len(left.patches) == 2 * 3
    total = [
        sum(p.get_width() for p in right.patches if round(p.get_y() + p.get_height() / 2) == i)
        for i in (0, 1)
    ]
    assert np.allclose(np.array(total) * 1e6, [144, 96])
    assert texts(right) == ["× 1.85", "× 1.23"]  # of 12 · 13 / 2 pairs


def test_reads_are_dots_on_dashed_lines() -> None:
    counted = {"weights": [4 << 20, 2 << 20], "keys and values": [2 << 20, 1 << 20]}
    (ax,) = draw.reads([8, 16], counted, counted).axes
    assert [line.get_linestyle() for line in ax.lines] == ["--", "None"] * 2
    assert ys(ax) == [[4, 2], [4, 2], [2, 1], [2, 1]]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


def test_floors_are_seconds_on_logarithmic_axes() -> None:
    (ax,) = draw.floors([16, 32, 64], [3.0, 2.0, 2.0], [0.1, 0.2, 0.4]).axes
    assert list(ax.lines[0].get_ydata()) == [0.1, 0.2, 0.4]
    assert labels(ax.xaxis) == ["16", "64"]


# Schedules ---------------------------------------------------------------------------------------


def test_a_schedule_is_as_wide_as_its_tokens() -> None:
    assert fed_before(EVENTS) == [0, 3, 8, 11, 12]
    fig = draw.gantt({"one": EVENTS, "other": EVENTS[:1]})
    top, low = fig.axes
    marks = legend(fig)
    assert marks == ["a chunk of a prompt, with its tokens", "a new token"]
    assert [(p.get_x(), p.get_width()) for p in top.patches[:3]] == [(0, 3), (3, 5), (8, 3)]
    strokes = sorted((line.get_xdata()[0], line.get_ydata().mean()) for line in top.lines)
    assert strokes == [(3, 0), (8, 0), (11, 0), (11, 1), (12, 1)]
    assert texts(top)[:3] == ["3", "4", "2"] and texts(top)[-1] == "5"  # the longest gap of a
    assert labels(top.yaxis) == ["a", "book", "c"]
    assert top.get_xlim() == low.get_xlim() and texts(low) == ["3"]


def test_waits_for_a_first_token() -> None:
    assert draw.first_token(EVENTS, "a") == 3
    assert draw.first_token(EVENTS, "book") == 5 + 3
    (ax,) = draw.gap_trade([4, 8], [4, 8], [12, 10]).axes
    assert ys(ax) == [[4, 8], [12, 10]]
    assert ax.get_ylim()[0] == 0


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
    explorer = draw.budget_explorer(runs, "book")
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
        tokens = np.diff(fed_before(events)).tolist()
        assert [y for _, y in drawn_steps["points"]] == [n for n in tokens for _ in "||"]
        longest = max(waits(events)["a"])
        assert [b["parts"][0]["value"] for b in bars["bars"]] == [
            longest,
            max(waits(events)["b"]),
            draw.first_token(events, "book"),
        ]
        assert f"at most {longest:,} tokens are fed" in scene["summary"]
    assert "is read whole" in explorer.scene(budget=22)["title"]
    for panel, side in ((1, "x"), (1, "y"), (2, "max")):
        assert len({str(explorer.scene(budget=b)["panels"][panel][side]) for b in runs}) == 1
    assert explorer.scene(budget=7)["formula"] == [
        "a step that reads: 7 tokens \u2212 2 that decode = 5 of the prompt"
    ]
    with pytest.raises(ValueError, match="1 values, needed two or more"):
        draw.budget_explorer({4: runs[4]}, "book")


# Tiles -------------------------------------------------------------------------------------------


def test_the_explorer_of_tiles_adds_up() -> None:
    scores = np.array([1.0, 0.5, 4.0, 2.0, 3.0, -1.0])
    tops = [float(scores[:n].max()) for n in (2, 4, 6)]
    totals = [float(np.exp(scores[:n] - t).sum()) for n, t in zip((2, 4, 6), tops, strict=True)]
    explorer = draw.tiles_explorer([2, 4, 6], tops, totals, [1.2, 0.4, 0.0])
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
    assert "raises top from 1 to 4: 5 % of the old sum is left" in explorer.scene(tile=2)["summary"]
    assert "does not raise top" in explorer.scene(tile=3)["summary"]
    lse = explorer.scene(tile=3)["numbers"][2]["text"]
    assert lse == f"{np.log(np.exp(scores).sum()):.2f}"
    with pytest.raises(ValueError, match="equally long, got 3, 2, 3, 3"):
        draw.tiles_explorer([1, 2, 3], tops[:2], totals, [1, 1, 0])
