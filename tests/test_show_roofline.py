"""The drawings of the chapter on the roofline: what they show is what they were given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from drawn import faces, labels, legend, texts

from kvbook import figures
from kvbook.figures import roofline as draw
from kvlib.costs import BytesPerSecond, FlopsPerSecond

ROOF = {"card": (BytesPerSecond(1e12), FlopsPerSecond(100e12))}  # ridge 100


pytestmark = pytest.mark.usefixtures("drawn")


def marks(ax: Any) -> list[tuple[list[float], list[float], str]]:
    """(x, y, colour) of what is drawn with points."""
    return [
        (
            [float(x) for x in line.get_xdata()],
            [float(y) for y in line.get_ydata()],
            line.get_color(),
        )
        for line in ax.lines
        if line.get_marker() == "o"
    ]


def test_two_clocks_stack_milliseconds() -> None:
    fig = draw.two_clocks({"weights": 4e-3, "cache": 1e-3}, {"weights": 2e-5, "cache": 1e-5})
    (ax,) = fig.axes
    widths = [round(p.get_width(), 6) for p in ax.patches]
    assert widths == [4.0, 1.0, 0.02, 0.01]
    assert [p.get_x() for p in ax.patches[:2]] == [0.0, 4.0]
    assert faces(ax) == [figures.color("weights"), figures.color("cached")] * 2
    assert [t.strip() for t in texts(ax)] == ["5 ms", "0.03 ms"]
    assert legend(ax) == ["weights", "cache"]


def test_a_point_without_a_rate_stands_on_the_roof() -> None:
    points = {"slow": (2.0, None, "cached"), "fast": (500.0, None, "weights")}
    fig = draw.roofline(ROOF, points)
    (ax,) = fig.axes
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert marks(ax) == [
        ([2.0], [2e12], figures.color("cached")),
        ([500.0], [100e12], figures.color("weights")),
    ]
    roof = ax.lines[0]
    assert list(roof.get_xdata())[1] == 100.0 and list(roof.get_ydata())[1:] == [100e12] * 2
    assert "card, ridge 100" in texts(ax) and {"slow", "fast"} <= set(texts(ax))
    assert ax.get_ylabel() == "operations per second (TFLOP/s)"


def test_a_measured_track_is_joined_and_one_on_the_roof_is_not() -> None:
    ideal = [(1.0, None, "B = 1"), (200.0, None, "B = 200")]
    real = [(1.0, 0.5e12, "one"), (200.0, 20e12, "many")]
    fig = draw.roofline(ROOF, {}, tracks={"ideal": (ideal, "cached"), "real": (real, "weights")})
    (ax,) = fig.axes
    drawn = {line.get_color(): line for line in ax.lines if line.get_marker() == "o"}
    assert drawn[figures.color("cached")].get_linestyle() == "None"
    assert drawn[figures.color("weights")].get_linestyle() == "-"
    assert [y for _, y, _ in marks(ax)] == [[1e12, 100e12], [0.5e12, 20e12]]
    assert {"B = 1", "B = 200", "one", "many", "ideal", "real"} <= set(texts(ax))


def test_a_second_roof_is_dashed_and_small_rates_get_their_unit() -> None:
    fig = draw.roofline({"a": (1e9, 1e10), "b": (2e9, 4e10)}, {"p": (1.0, 3e8, "cached")})
    (ax,) = fig.axes
    assert ax.get_ylabel() == "operations per second (GFLOP/s)"
    roofs = [line.get_linestyle() for line in ax.lines if len(line.get_xdata()) == 3]
    assert roofs == ["-", "--"]
    assert {"a, ridge 10", "b, ridge 20"} <= set(texts(ax))


def test_the_ladder_has_a_row_each_and_the_ridges() -> None:
    fig = draw.ladder({"one": (1.0, "cached"), "other": (240.0, "key")}, {"X": 295.0, "Y": 206.0})
    (ax,) = fig.axes
    assert [(x, y) for x, y, _ in marks(ax)] == [([1.0], [0.0]), ([240.0], [1.0])]
    assert labels(ax.yaxis) == ["one", "other"]
    assert {t.strip() for t in texts(ax)} == {"1", "240", "Y: 206", "X: 295"}


def test_floors_stack_reading_and_mark_where_something_happens() -> None:
    marks = {"memory is full": 3.0, "ridge": 3.6}
    fig = draw.floors([1, 2, 3, 4], [1e-3] * 4, [1e-3, 2e-3, 3e-3, 4e-3], [1e-4] * 4, marks)
    (ax,) = fig.axes
    tops = [float(np.max(c.get_paths()[0].vertices[:, 1])) for c in ax.collections[:2]]
    assert tops == [1.0, 5.0]
    assert {"memory is full\n3", "ridge\n4"} <= set(texts(ax))
    assert {"keys and\nvalues", "weights", "arithmetic of the\nlinear layers"} <= set(texts(ax))


def test_the_hill_counts_in_gigabytes_a_second() -> None:
    speeds = {2**20: BytesPerSecond(80e9), 2**28: BytesPerSecond(20e9)}
    fig = draw.hill(speeds, {"model": 2**24})
    (ax,) = fig.axes
    assert marks(ax)[0][:2] == ([float(2**20), float(2**28)], [80.0, 20.0])
    assert ax.get_ylabel() == "bandwidth (GB/s)" and texts(ax) == ["model"]
    fig.canvas.draw()
    assert "1 MiB" in labels(ax.xaxis)


def test_prediction_and_measurement_share_a_scale() -> None:
    parts = {"small": {"floor": 1e-3, "calls": 2e-3}, "large": {"floor": 8e-3, "calls": 1e-3}}
    roles = {"floor": "weights", "calls": "muted"}
    fig = draw.predicted_measured(parts, roles, {"small": 4e-3, "large": 10e-3})
    (ax,) = fig.axes
    widths = [round(p.get_width(), 6) for p in ax.patches]
    assert widths == [0.25, 0.5, 1.0, 0.8, 0.1, 1.0]
    assert faces(ax)[:3] == [figures.color(role) for role in ("weights", "muted", "ink")]
    assert [t.strip() for t in texts(ax)] == ["4 ms", "3 ms", "10 ms", "9 ms"]
    assert legend(fig) == ["floor", "calls", "measured"]
