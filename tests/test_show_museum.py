"""What the museum's drawings show, read back from their axes, and its explorer."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import labels, texts, title, widths, ys
from small_scenes import check_scene

from kvbook.figures import museum as draw

pytestmark = pytest.mark.usefixtures("drawn")


def test_keys_that_get_no_weight_stay_blank() -> None:
    fig = draw.weights({"healthy": np.tri(3), "mask_of_ones": np.ones((3, 3)) / 3})
    left, right = (np.ma.getmaskarray(ax.images[0].get_array()) for ax in fig.axes)
    assert (left == ~np.tri(3, dtype=bool)).all() and not right.any()
    assert [title(ax) for ax in fig.axes] == ["healthy", "mask of ones"]


def test_bits_add_up() -> None:
    (ax,) = draw.drift({"healthy": [1.0, 2.0], "a_bug": [2.0, 4.0]}).axes
    assert ys(ax) == [[1, 3], [2, 6]]
    assert ax.get_ylim()[0] == 0


def test_lines_that_end_close_together_are_told_apart_by_their_dashes() -> None:
    (ax,) = draw.drift({"healthy": [1.0], "a_bug": [1.1], "another": [1.2]}).axes
    handles, names = ax.get_legend_handles_labels()
    assert names == ["healthy", "a bug", "another"] and not texts(ax)
    assert len({line.get_linestyle() for line in handles}) == 3


def test_a_bill_is_a_multiple_of_what_is_held() -> None:
    (ax,) = draw.bills({"kvlib": 1.0, "no_window": 6.0}).axes
    assert widths(ax) == [1.0, 6.0]
    assert ax.patches[0].get_facecolor() != ax.patches[1].get_facecolor()


def test_decoded_numbers_lie_beside_the_line_they_should_lie_on() -> None:
    x = np.linspace(-1, 1, 5)
    left, right = draw.wrapped(x, x, -x).axes
    assert (left.lines[1].get_ydata() == x).all() and (right.lines[1].get_ydata() == -x).all()


def test_a_cell_is_a_test_that_kills_a_bug() -> None:
    (ax,) = draw.net({"one_test": [True, False], "other": [False, True]}, ["a_bug", "b"]).axes
    filled = ~np.ma.getmaskarray(ax.images[0].get_array())
    assert (filled == np.eye(2, dtype=bool)).all()
    assert labels(ax.xaxis) == ["a bug", "b"]
    with pytest.raises(ValueError, match="needed"):
        draw.net({"one_test": [True]}, ["a", "b"])


def test_tests_add_kills() -> None:
    (ax,) = draw.growth([1, 2], [3, 5], 5).axes
    assert list(ax.lines[0].get_ydata()) == [3, 5]
    assert texts(ax) == ["3 with the first test", "all 5"]


def test_explorer_has_a_scene_for_each_bug() -> None:
    healthy = [1.0, 0.5, 0.25]
    explorer = draw.hall_explorer(healthy, {"mask_of_ones": [1.0, 2.0, 0.25], "quiet": healthy})
    for bug in (1, 2):
        check_scene(explorer.scene(bug=bug))
    loud, quiet = explorer.scene(bug=1), explorer.scene(bug=2)
    assert loud["title"] == "Mask of ones" and "byte 2." in loud["summary"]
    assert "1.08" in loud["summary"] and "0.58" in loud["summary"] and "none" in quiet["summary"]
    assert loud["panels"][0]["y"] == quiet["panels"][0]["y"], "one scale for all"
    with pytest.raises(ValueError, match="quiet: got 2 bytes, needed 3"):
        draw.hall_explorer(healthy, {"quiet": [1.0, 2.0]})
