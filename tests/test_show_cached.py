"""The drawings of the chapter on caching: what they show is what they were given."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import faces, labels, legend, texts, ys

from kvbook import figures
from kvbook.figures import cached as draw

pytestmark = pytest.mark.usefixtures("drawn")


def test_work_counts_what_is_computed_again() -> None:
    again = [range(n) for n in range(2, 6)]  # a prompt of 2, then one token more each time
    kept = [range(2), *(range(n - 1, n) for n in range(3, 6))]
    fig = draw.work(again, kept)
    left, right = (faces(ax) for ax in fig.axes)
    key, recomputed, held = (figures.color(r) for r in ("key", "recomputed", "cached"))
    assert len(left) == len(right) == 2 + 3 + 4 + 5
    assert left.count(key) == right.count(key) == 5
    assert left.count(recomputed) == 2 + 3 + 4 and recomputed not in right
    assert right.count(held) == 2 + 3 + 4 and held not in left
    words = legend(fig)
    assert words == ["computed for the first time", "computed again", "read from the cache"]


def test_exact_zeros_stay_white() -> None:
    change = np.array([[0, 0, 2.0], [0, 1e-6, 0.5]], dtype=np.float32)
    fig = draw.moved(change, ["keys", "logits"], at=2)
    image = fig.axes[0].images[0]
    assert np.array_equal(np.ma.getmaskarray(image.get_array()), change == 0)
    palest = image.cmap(image.norm(1e-6))
    assert figures.contrast(_hex(palest), "#ffffff") > 1.2, "the smallest change can be seen"
    assert image.get_clim() == pytest.approx((1e-6, 2.0))


def _hex(rgba: tuple[float, ...]) -> str:
    return "#" + "".join(f"{round(255 * c):02x}" for c in rgba[:3])


def _hex(rgba: tuple[float, ...]) -> str:
    return "#" + "".join(f"{round(255 * c):02x}" for c in rgba[:3])


def test_errors_puts_rms_and_largest_on_one_line() -> None:
    fig = draw.errors({"one": (1e-6, 5e-6), "other": (1e-3, 2e-3)}, ["recomputed", "cached"])
    (ax,) = fig.axes
    assert ax.get_xscale() == "log"
    assert labels(ax.yaxis) == ["one", "other"]
    assert list(ax.lines[0].get_xdata()) == [1e-6, 5e-6]
    assert ax.lines[0].get_color() == figures.color("recomputed")
    assert ax.lines[3].get_color() == figures.color("cached")


def test_speedup_draws_prediction_and_both_measurements() -> None:
    fig = draw.speedup({1: 1.0, 2: 2.0, 3: 3.0}, {2: 2.0}, {2: 1.5, 3: 1.6})
    (ax,) = fig.axes
    assert ys(ax) == [[1.0, 2.0, 3.0], [2.0], [1.5, 1.6]]
    named = texts(ax)
    assert any("predicted" in t for t in named) and any("clock" in t for t in named)


def test_layouts_fill_the_cells_at_the_addresses_of_the_view() -> None:
    nhd, hnd = np.zeros((4, 3, 2), np.float32), np.zeros((3, 4, 2), np.float32)
    fig = draw.layouts({"NHD": (nhd, nhd[:, 1]), "HND": (hnd, hnd[1])})
    key = figures.color("key")
    filled = [[i for i, c in enumerate(faces(ax)) if c == key] for ax in fig.axes]
    assert filled == [[1, 4, 7, 10], [4, 5, 6, 7]]
    assert [ax.get_title() or ax.get_title("left") for ax in fig.axes] == ["NHD", "HND"]


def test_gap_is_logarithmic() -> None:
    fig = draw.gap({"a": [1e-6, 1.0], "b": [1e-6, 1e-6]}, ["recomputed", "cached"])
    (ax,) = fig.axes
    assert ax.get_yscale() == "log" and len(ax.lines) == 2
    assert {text.get_text() for text in ax.texts} == {"a", "b"}


def test_growth_counts_in_one_unit() -> None:
    mib = 2**20
    fig = draw.growth([128, 256, 384], [mib, 2 * mib, 3 * mib], [4 * mib] * 3)
    (ax,) = fig.axes
    assert ax.get_ylabel() == "KV cache (MiB)" and ax.get_ylim()[0] == 0
    assert list(ax.lines[1].get_ydata()) == [mib, 2 * mib, 3 * mib]
