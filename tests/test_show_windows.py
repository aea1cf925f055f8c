"""The drawings of the chapter on forgetting: what they show is what they were given."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import heights, labels, texts, widths

from kvbook.figures import windows as draw

pytestmark = pytest.mark.usefixtures("drawn")


def test_looks_writes_each_share_and_small_ones_in_words() -> None:
    rows = [[60.0, 40.0], [99.6, 0.4], [10.0, 90.0], [0.0, 100.0]]
    (ax,) = draw.looks(rows, ["near", "far"], heads=2).axes
    words = texts(ax)
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
    assert labels(ax.yaxis) == ["0", "1", "0", "1"]


def test_by_window_draws_the_loss_with_its_error_and_writes_every_recall() -> None:
    recall = {"64": [0.0, 100.0], "256": [0.0, 0.0], "1,024": [0.0, 0.0]}
    fig = draw.by_window([32, 64], [(20.0, 3.0), (10.0, 1.0)], recall)
    left, right = fig.axes
    assert left.lines[0].get_ydata().tolist() == [20.0, 10.0]
    (bars,) = left.collections
    assert [part[:, 1].tolist() for part in bars.get_segments()] == [[17, 23], [9, 11]]
    assert right.images[0].get_array().tolist() == list(recall.values())
    assert texts(right) == ["0", "100", "0", "0", "0", "0"]
    assert labels(right.yaxis) == list(recall)
    for ax in (left, right):
        assert labels(ax.xaxis) == ["32", "64"]


def test_influence_leaves_out_what_does_not_move() -> None:
    moved = {"windows": [1.0, 0.5, 0.0, 0.0], "full": [1.0, 0.5, 0.2, 0.1]}
    axes = draw.influence(moved, reach=1).axes
    assert [len(ax.collections[0].get_segments()) for ax in axes] == [2, 4]
    assert [ax.lines[0].get_xdata()[0] for ax in axes] == [1.5, 1.5]


def test_fools_gives_each_row_a_line_so_that_no_mark_hides_another() -> None:
    rows = {
        "window": {"25": (8.0, 0.2, 0.0), "50": (0.2, 0.1, 100.0)},
        "H2O": {"25": (0.8, 0.2, 0.0), "50": (0.5, 0.3, 0.0)},
    }
    flat = [row for budgets in rows.values() for row in budgets.values()]
    fig = draw.fools(rows)
    left, right = fig.axes
    marks = [line.get_xydata() for line in left.lines if len(line.get_xdata()) == len(flat)]
    assert [x for x, _ in marks[0]] == [bits for bits, _, _ in flat]
    assert len({y for _, y in marks[0]}) == len(flat)  # one line each
    ends = [part[:, 0].tolist() for part in left.collections[0].get_segments()]
    assert ends == [pytest.approx([bits - e, bits + e]) for bits, e, _ in flat]
    assert widths(right) == [recall for _, _, recall in flat]
    assert texts(right) == ["0", "100", "0", "0"]
    assert labels(left.yaxis) == ["25 %", "50 %"] * 2
    assert texts(left) == ["8.0 ± 0.2 →", *rows]


def test_edited_has_one_bar_for_each_part_and_layer() -> None:
    off = {"near": [0.0, 80.0], "far": [0.0, 1.0]}
    (ax,) = draw.edited(off, layers=2).axes
    assert heights(ax) == [0, 80, 0, 1]


def test_the_shipped_table_is_whole() -> None:
    table = draw.eviction_table()
    settings, rows = table["settings"], dict(table["rows"])
    everything = rows.pop("all")["100"]
    assert everything["bytes"] == 2048 * 5120 and len(rows) == 6
    for budgets in rows.values():
        assert list(budgets) == [str(share) for share in settings["shares"]]
        for share, found in budgets.items():
            assert set(found["recall"]) == set(settings["chunks"])
            for marks in found["recall"].values():
                assert [len(m) for m in marks.values()] == [settings["trials"]] * 2
            budget = everything["bytes"] * int(share) / 100
            assert found["bytes"] == pytest.approx(budget, rel=0.01)  # blocks round a little
            assert len(found["bits"]) == settings["texts"]
    losses = [table["windows"], table["one full layer"], *table["sinks"].values()]
    assert all(len(b) == settings["texts"] for loss in losses for b in loss.values())


def test_no_rule_needs_fewer_bits_than_the_full_cache_beyond_chance() -> None:
    table = draw.eviction_table()
    plain = np.array(table["rows"].pop("all")["100"]["bits"])
    for name, budgets in table["rows"].items():
        for share, found in budgets.items():
            more = np.array(found["bits"]) / plain - 1
            error = more.std(ddof=1) / len(more) ** 0.5
            assert more.mean() > -2 * error, f"{name} at {share} %"
