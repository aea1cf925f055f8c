"""The drawings of the chapter on latent vectors: what they show is what they were given."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import labels, texts

from kvbook.figures import latent as draw

pytestmark = pytest.mark.usefixtures("drawn")


def test_kept_tells_the_layers_apart() -> None:
    shares = [np.linspace(first, 1, 64) for first in (0.1, 0.05, 0.02, 0.01)]
    fig = draw.kept(shares, [16, 32], recall=2)
    (ax,) = fig.axes
    layers = [line for line in ax.lines if len(line.get_xdata()) == 64]
    assert [round(float(line.get_ydata()[0])) for line in layers] == [10, 5, 2, 1]
    assert [line.get_xdata()[0] for line in ax.lines[4:]] == [16, 32]
    looks = [(line.get_color(), line.get_linestyle()) for line in layers]
    assert looks[1] == looks[3] and len(set(looks)) == 3  # the grey layers, 0 and the recall layer
    assert texts(ax) == ["layer 0", "layer 2, which\nfinds strings", "layers 1 and 3"]


def test_ranks_stand_where_they_are() -> None:
    added, errors = [90.0, 6.0, 0.4], [5.0, 0.4, 0.1]
    left, right = draw.by_rank([32, 64, 128], added, errors, [0, 100, 100]).axes
    assert list(left.lines[0].get_ydata()) == added and left.get_yscale() == "log"
    (bars,) = left.collections
    ends = [sorted(y for _, y in bar) for bar in bars.get_segments()]
    assert np.allclose(ends, [(a - e, a + e) for a, e in zip(added, errors)])
    assert list(right.lines[0].get_ydata()) == [0, 100, 100]
    assert list(right.lines[0].get_xdata()) == [32, 64, 128]
    assert labels(left.xaxis) == ["32", "64", "128"]


def test_the_crossing_is_marked_where_the_lines_meet() -> None:
    new = np.arange(0, 11)
    (ax,) = draw.crossing(new, {"a": 3e6 * new, "b": 10e6 + 1e6 * new}, 5.0).axes
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    assert [(list(d.get_xdata()), list(d.get_ydata())) for d in dots] == [([5.0], [15.0])]
    assert {"a", "b", "5 new tokens"} <= set(texts(ax))


def test_errors_by_age() -> None:
    names, ends = ["sum", "decay", "delta", "gated"], [2.0, 1.1, 1.4, 1.0]
    fig = draw.by_age({name: np.linspace(0, end, 9) for name, end in zip(names, ends)})
    (ax,) = fig.axes
    assert [float(line.get_ydata()[-1]) for line in ax.lines[:4]] == ends
    assert len({(line.get_color(), line.get_linestyle()) for line in ax.lines[:4]}) == 4
    assert set(texts(ax)) == {*names, "as far off as zero"} and fig.legends == []
    assert ax.get_xlim() == (0, 8)


def test_growth_marks_where_both_hold_the_same() -> None:
    tokens, mib = np.arange(0, 9), 2**20
    held = {"attention": 4 * mib * tokens, "states": (12 + tokens) * mib}
    (ax,) = draw.growth(tokens, held, 4.0).axes
    (dot,) = [line for line in ax.lines if line.get_marker() == "o"]
    assert (dot.get_xdata()[0], dot.get_ydata()[0]) == (4.0, 16 * mib)
    assert {"attention", "states", "equal at 4 tokens"} <= set(texts(ax))
    assert ax.get_ylabel() == "held by one request (MiB)"
