"""What the drawings of the chapter on batches show, read back from their axes."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import faces, labels, texts, title, widths

from kvbook import figures
from kvbook.figures import batched as draw

pytestmark = pytest.mark.usefixtures("drawn")


def test_the_rectangle_and_the_pack_hold_the_same_tokens() -> None:
    rectangle, pack = draw.rectangle_and_pack([3, 1, 6]).axes
    assert widths(rectangle) == [6, 6, 6, 3, 1, 6]  # outlines, then tokens on top
    assert sum(widths(rectangle)[3:]) == sum(widths(pack)) == 10
    assert [patch.get_x() for patch in pack.patches] == [0, 3, 4]
    assert pack.get_xlim() == (0, 10)


def test_padding_is_an_outline_and_positions_are_written() -> None:
    mask = np.array([[True, True, False], [True, True, True]])
    positions = np.array([[0, 1, 1], [0, 1, 2]])
    sides = {"right": (positions, mask), "left": (positions[:, ::-1], mask[:, ::-1])}
    right, left = draw.padded_positions(sides).axes
    assert texts(right) == ["0", "1", "–", "0", "1", "2"]
    assert texts(left) == ["–", "1", "0", "2", "1", "0"]
    assert faces(right).index("#ffffff") == 2 and faces(left).index("#ffffff") == 0
    assert title(right) == "padded on the right"


def test_work_adds_up_to_what_was_computed() -> None:
    (ax,) = draw.work({"a": 2.0, "b": 1.0}, {"a": 5.0, "b": 4.0}, unit="thousands").axes
    assert widths(ax) == [2, 3, 1, 3]
    assert [word.strip() for word in texts(ax)] == ["2.5 times", "4.0 times"]
    assert ax.get_xlabel() == "operations (thousands)"


def test_equal_bits_are_hollow() -> None:
    (ax,) = draw.differences([1, 2, 9], [0.0, 0.0, 5e-6]).axes
    points = [line for line in ax.lines if len(line.get_xdata())]
    assert [line.get_ydata()[0] for line in points] == [0, 0, pytest.approx(5)]
    assert [line.get_markerfacecolor() for line in points][:2] == ["#ffffff"] * 2
    assert points[2].get_markerfacecolor() == figures.color("ink")


def test_a_schedule_has_a_line_for_each_row_and_a_column_for_each_step() -> None:
    log = [[("a", "query"), None], [("", "cached"), ("b", "query")], [None, ("", "cached")]]
    fig = draw.schedules({"one": log, "other": log[:2]}, height=3)
    top, low = fig.axes
    assert len(top.patches) == 6 and len(low.patches) == 4
    assert texts(top) == ["a", "b"]
    assert faces(top).count("#ffffff") == 2
    assert top.get_xlim() == low.get_xlim(), "both on one scale of steps"
    assert low.get_xlabel() == "step"


def test_bytes_per_token_are_mebibytes_on_logarithmic_axes() -> None:
    (ax,) = draw.bytes_a_token([1, 2, 4], [2**23, 2**22, 2**21], [2**20] * 3).axes
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert [line.get_ydata()[0] for line in ax.lines] == [8, 1]
    assert {"weights", "keys and values"} <= set(texts(ax))
    assert labels(ax.xaxis) == ["1", "2", "4"]


def test_product_times_start_at_zero_and_are_named() -> None:
    (ax,) = draw.product_times([1, 2], {"x": [1, 3], "y": [1, 2], "z": [1, 2]}).axes
    assert ax.get_ylim()[0] == 0
    assert texts(ax) == ["x", "y", "z"]
    assert len({line.get_linestyle() for line in ax.lines}) == 3


def test_throughput_is_tokens_over_seconds() -> None:
    (ax,) = draw.throughput([1, 4], {"measured": [0.01, 0.02], "by bytes": [0.01, 0.012]}).axes
    measured, predicted = ax.lines
    assert list(measured.get_xdata()) == [10, 20]  # milliseconds
    assert list(measured.get_ydata()) == [pytest.approx(100), pytest.approx(200)]
    assert predicted.get_linestyle() == "--"
    assert texts(ax).count("4") == 2


def test_slots_show_what_was_written_over() -> None:
    before = np.array([[0, 1, -1], [-1, 0, -1]])
    after = np.array([[0, 1, 2], [-1, 3, -1]])
    (ax,) = draw.slots({"an append": (before, after)}).axes
    assert texts(ax) == ["0", "1", "2", "0→3"]
    assert faces(ax).count(figures.color("key")) == 2
    assert faces(ax).count("#ffffff") == 2
