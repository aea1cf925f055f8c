"""The drawings of the chapter on forgetting: what they show is what they were given."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("matplotlib").use("Agg")

from kvlib import show  # noqa: E402
from kvlib.show import windows as draw  # noqa: E402


@pytest.fixture(autouse=True)
def style() -> None:
    show.use_style()


def test_looks_writes_each_share_and_small_ones_in_words() -> None:
    rows = [[60.0, 40.0], [99.6, 0.4], [10.0, 90.0], [0.0, 100.0]]
    (ax,) = draw.looks(rows, ["near", "far"], heads=2).axes
    words = [text.get_text() for text in ax.texts]
    assert [w for w in words if "layer" not in w] == [
        "60",
        "40",
        "100",
        "< 1",
        "10",
        "90",
        "0",
        "100",
    ]
    assert [w for w in words if "layer" in w] == ["layer 0", "layer 1"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0", "1", "0", "1"]


def test_by_window_draws_the_loss_and_a_line_for_each_distance() -> None:
    recall = {"64 bytes back": [0.0, 100.0], "256 bytes back": [0.0, 0.0]}
    left, right = draw.by_window([32, 64], [20.0, 10.0], recall).axes
    assert left.lines[0].get_ydata().tolist() == [20.0, 10.0]
    assert [list(line.get_ydata()) for line in right.lines] == list(recall.values())
    assert [label.get_text() for label in left.get_xticklabels()] == ["32", "64"]


def test_lent_shows_the_loss_with_the_sink_and_without() -> None:
    (ax,) = draw.lent([0.0, 0.5], [1.4, 3.2]).axes
    curve, random, kept = ax.lines
    assert curve.get_xdata().tolist() == [0, 50] and curve.get_ydata().tolist() == [1.4, 3.2]
    assert set(random.get_ydata()) == {8} and set(kept.get_ydata()) == {1.4}


def test_influence_leaves_out_what_does_not_move() -> None:
    moved = {"windows": [1.0, 0.5, 0.0, 0.0], "full": [1.0, 0.5, 0.2, 0.1]}
    axes = draw.influence(moved, reach=1).axes
    assert [len(ax.collections[0].get_segments()) for ax in axes] == [2, 4]
    assert [ax.lines[0].get_xdata()[0] for ax in axes] == [1.5, 1.5]


def test_fools_draws_every_budget_and_points_at_the_marked_one() -> None:
    points = {"window": [(0.8, 0.0), (0.4, 100.0)], "H2O": [(2.8, 0.0), (-0.2, 0.0)]}
    (ax,) = draw.fools(points, ("H2O", 1)).axes
    found = [np.asarray(marks.get_offsets()).tolist() for marks in ax.collections]
    assert found == [[list(pair) for pair in pairs] for pairs in points.values()]
    assert all(np.ptp(marks.get_sizes()) > 0 for marks in ax.collections)  # the budget
    assert "1 marks lie beyond" in ax.get_xlabel()
    (words,) = ax.texts
    assert "H2O" in words.get_text() and words.xy == (-0.2, 0.0)


def test_edited_has_one_bar_for_each_part_and_layer() -> None:
    off = {"near": [0.0, 80.0], "far": [0.0, 1.0]}
    (ax,) = draw.edited(off, layers=2).axes
    assert [bar.get_height() for bar in ax.patches] == [0, 80, 0, 1]


def test_the_shipped_table_is_whole() -> None:
    table = draw.eviction_table()
    settings, rows = table["settings"], dict(table["rows"])
    everything = rows.pop("all")["100"]
    assert everything["bytes"] == 2048 * 5120 and len(rows) == 8
    for name, budgets in rows.items():
        assert list(budgets) == [str(share) for share in settings["shares"]]
        for share, found in budgets.items():
            assert set(found["recall"]) == set(settings["chunks"])
            for marks in found["recall"].values():
                assert [len(m) for m in marks.values()] == [settings["trials"]] * 2
            # blocks and sinks round a little; a pyramid may offer a layer more than there is
            most = everything["bytes"] * int(share) / 100
            least = 0 if name == "pyramid" else 0.99 * most
            assert least <= found["bytes"] <= 1.01 * most
