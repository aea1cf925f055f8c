"""The drawings of the chapter on norms: what they show is what they were given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from drawn import legend, texts, widths

from kvbook import figures
from kvbook.figures import layernorm as draw
from kvbook.figures.layernorm import partials_explorer, traffic

pytestmark = pytest.mark.usefixtures("drawn")


def test_a_dot_a_row_at_each_norm() -> None:
    (ax,) = draw.lengths([np.asarray([1.0, 2.0]), np.asarray([3.0, 5.0])], [np.ones(2)] * 2).axes
    heights = [[float(y) for y in line.get_ydata()] for line in ax.lines]
    assert heights == [[1, 2], [3, 5], [1, 1], [1, 1]]
    assert {line.get_color() for line in ax.lines} == {figures.color("muted"), figures.color("ink")}
    assert ax.get_yscale() == "log" and texts(ax)[0] == "before the norm"


def test_matrices_share_one_scale() -> None:
    fig = draw.jacobians({"a": np.eye(3), "b": -2 * np.eye(3)})
    images = [ax.images[0] for ax in fig.axes if ax.images]
    assert [i.get_clim() for i in images] == [(-2, 2), (-2, 2)]
    assert [ax.get_title(loc) for ax in fig.axes for loc in ("left", "center")].count("a") == 1


def test_what_is_kept_adds_up() -> None:
    fig = draw.kept({"much": {"x": 4.0, "y": 2.0}, "little": {"y": 2.0}}, "MiB")
    (ax,) = fig.axes
    assert widths(ax) == [4, 2, 2] and texts(ax) == ["6", "2"]
    assert [p.get_x() for p in ax.patches] == [0, 4, 0]
    assert ax.patches[1].get_facecolor() == ax.patches[2].get_facecolor()
    assert legend(fig) == ["x", "y"]


def test_counts_stand_beside_the_ridge_and_have_no_rate() -> None:
    (ax,) = draw.intensities({"forward": 1.2, "backward": 1.8}, {"card": 295.0}).axes
    dots, ridge = ax.lines[:2], ax.lines[2]
    assert [float(line.get_xdata()[0]) for line in dots] == [1.2, 1.8]
    assert float(ridge.get_xdata()[0]) == 295 and "ridge of card: 295" in texts(ax)
    assert ax.get_xscale() == "log" and ax.get_yscale() == "linear"


@pytest.mark.parametrize("figure", [draw.by_step, draw.by_offset])
def test_errors_are_logarithmic_and_named(figure: Any) -> None:
    (ax,) = figure([1e-3, 1e-2, 1e-1], {"two": [1e-9, 0.0, 1e-3], "five": [1e-12] * 3}).axes
    assert [float(y) for y in ax.lines[0].get_ydata()] == [1e-9, 1e-17, 1e-3]  # zero has no log
    assert ax.get_xscale() == ax.get_yscale() == "log" and texts(ax) == ["two", "five"]


def test_partial_sums_trade_traffic_for_blocks() -> None:
    explorer = partials_explorer(rows=1000, width=64, size=2)
    (slider,) = explorer.controls
    assert slider.values == (1, 4, 16, 64, 132, 256, 512) and slider.value == 132
    scene = explorer.scene(groups=16)
    assert [n["text"] for n in scene["numbers"]][0] == "16 of 132"
    assert scene["numbers"][2]["text"] == "79"  # 63 rows of a group, then 16 groups
    parts = scene["panels"][0]["bars"][0]["parts"]
    moved = traffic(16, 1000, 64, 2)
    assert [p["value"] for p in parts] == pytest.approx(
        [n / 1e6 for n in moved.values()], rel=0.005
    )
    assert moved["partial sums, written and read"] == 16 * 64 * 2 * 4 * 2
    arrays = moved["dy and x_hat read, dx written, and small arrays"]
    assert arrays == 3 * 1000 * 64 * 2 + 4 * 1000 + 3 * 64 * 2
    assert explorer.svg(groups=512) != explorer.svg(groups=1)
    with pytest.raises(ValueError, match="width: got 0"):
        partials_explorer(10, 0, 2)
