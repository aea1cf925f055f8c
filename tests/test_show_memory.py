"""The drawings of the chapter on memory: what they show is what they were given."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import faces, labels, legend, texts, widths

from kvbook import figures
from kvbook.figures import memory as draw

pytestmark = pytest.mark.usefixtures("drawn")


def test_doubled_draws_two_bills_for_each_size() -> None:
    fig = draw.doubled({"layers": 2.0, "MLP": 1.0}, {"layers": 1.98, "MLP": 1.7})
    (ax,) = fig.axes
    assert widths(ax) == [2.0, 1.0, 1.98, 1.7]
    assert faces(ax) == [figures.color("cached")] * 2 + [figures.color("weights")] * 2
    assert texts(ax) == ["× 2", "× 1", "× 1.98", "× 1.70"]
    assert labels(ax.yaxis) == ["layers", "MLP"]


def test_forms_dashes_what_bends() -> None:
    tokens = [256, 512, 1024]
    fig = draw.forms(tokens, {"straight": [1024, 2048, 4096], "window": [1024, 2048, 2048]})
    (ax,) = fig.axes
    assert [line.get_linestyle() for line in ax.lines] == ["-", "--"]
    assert list(ax.lines[1].get_ydata()) == [1024, 2048, 2048]
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert texts(ax) == ["straight", "window"]
    assert labels(ax.xaxis) == ["256", "1,024"]


def test_log_axis_names_powers_in_one_unit_each() -> None:
    fig = draw.forms([256, 1024], {"a": [2**18, 2**32]})
    assert labels(fig.axes[0].yaxis) == ["256 KiB", "1 MiB", "4 MiB", "16 MiB", "64 MiB"] + [
        "256 MiB",
        "1 GiB",
        "4 GiB",
    ]


def test_models_draws_what_is_stored_and_what_heads_would_take() -> None:
    fig = draw.models({"small": 2**14, "large": 2**19}, {"small": 2**17, "large": 2**19})
    (ax,) = fig.axes
    rings, dots = ax.lines
    assert list(rings.get_xdata()) == [2**17, 2**19]
    assert list(dots.get_xdata()) == [2**14, 2**19]
    assert dots.get_color() == figures.color("cached")
    assert texts(ax) == ["16 KiB", "512 KiB"] and labels(ax.yaxis) == ["small", "large"]
    assert legend(fig) == ["stored", "if every query head had a key and a value"]


def test_crossing_marks_where_the_bytes_are_equal() -> None:
    tokens = [256, 512, 1024]
    fig = draw.crossing(tokens, 768.0, {"one": [256, 512, 1024], "few": [16, 32, 64]})
    (ax,) = fig.axes
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    assert [(list(d.get_xdata()), list(d.get_ydata())) for d in dots] == [([768.0], [768.0])]
    assert "768" in texts(ax) and {"one", "few", "weights"} <= set(texts(ax))


def test_fits_writes_tokens_and_colours_by_the_models_own_limit() -> None:
    table = {"a": [None, 54_321, 2_345_678], "b": [512, 131_072, np.inf]}
    fig = draw.fits(table, [131_072, 131_072], ["x", "y ?", "z"])
    (ax,) = fig.axes
    assert texts(ax) == ["–", "54k", "2.3M", "512", "131k", "∞"]
    few, many = figures.color("grid"), figures.color("cached")
    assert faces(ax) == [few, many, few, many, many]
    assert labels(ax.xaxis) == ["x", "y ?", "z"] and labels(ax.yaxis) == ["a", "b"]


def test_steps_lie_over_the_band() -> None:
    fig = draw.steps({"as published": 120.0, "mended": 137.0}, 121, 138)
    (ax,) = fig.axes
    band, *bars = ax.patches
    assert (band.get_x(), band.get_x() + band.get_width()) == (121, 138)
    assert [bar.get_width() for bar in bars] == [120.0, 137.0]
    assert faces(ax)[1:] == [figures.color("muted"), figures.color("ink")]
    assert texts(ax) == ["120", "137"]


def test_reservation_stacks_what_is_held_and_to_come() -> None:
    fig = draw.reservation([10, 30], [20, 40], 100)
    (ax,) = fig.axes
    assert widths(ax) == [100, 100, 20, 40, 10, 30]
    assert faces(ax)[2:] == [figures.color("grid")] * 2 + [figures.color("cached")] * 2
    assert legend(fig) == ["held now", "answer still to come", "never used"]


def test_mistakes_point_both_ways_from_one() -> None:
    fig = draw.mistakes({"too much": 4.0, "too little": 0.5, "far too much": 71.1})
    (ax,) = fig.axes
    assert widths(ax)[:2] == [2.0, -1.0]
    assert texts(ax) == ["× 4.00", "× 0.50", "× 71"]
    ticks = labels(ax.xaxis)
    assert ticks[0] == "× 0.25" and "× 1" in ticks
