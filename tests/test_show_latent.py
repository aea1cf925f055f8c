"""The drawings of the chapter on latent vectors: what they show is what they were given."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("matplotlib").use("Agg")

from kvlib import show  # noqa: E402
from kvlib.show import latent as draw  # noqa: E402


@pytest.fixture(autouse=True)
def style() -> None:
    show.use_style()


def texts(ax) -> list[str]:
    return [text.get_text() for text in ax.texts]


def test_kept_draws_each_layer_in_percent() -> None:
    shares = [np.linspace(0.1, 1, 64), np.linspace(0.05, 1, 64), np.linspace(0.02, 1, 64)]
    (ax,) = draw.kept(shares, [16, 32]).axes
    layers = [line for line in ax.lines if len(line.get_xdata()) == 64]
    assert [round(float(line.get_ydata()[0])) for line in layers] == [10, 5, 2]
    assert [line.get_xdata()[0] for line in ax.lines[3:]] == [16, 32]
    assert texts(ax) == ["layer 0", "layers 1 to 2"]


def test_ranks_stand_where_they_are() -> None:
    left, right = draw.by_rank([32, 64, 128], [90.0, 6.0, 0.4], [0, 100, 100]).axes
    assert list(left.lines[0].get_ydata()) == [90.0, 6.0, 0.4] and left.get_yscale() == "log"
    assert list(right.lines[0].get_ydata()) == [0, 100, 100]
    assert list(right.lines[0].get_xdata()) == [32, 64, 128]
    assert [label.get_text() for label in left.get_xticklabels()] == ["32", "64", "128"]


def test_the_crossing_is_marked_where_the_lines_meet() -> None:
    new = np.arange(0, 11)
    (ax,) = draw.crossing(new, {"a": 3e6 * new, "b": 10e6 + 1e6 * new}, 5.0).axes
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    assert [(list(d.get_xdata()), list(d.get_ydata())) for d in dots] == [([5.0], [15.0])]
    assert {"a", "b", " 5 new tokens"} <= set(texts(ax))


def test_errors_by_age() -> None:
    errors = {"sum": np.full(9, 2.0), "decay": np.arange(9) / 4, "delta": np.arange(9) / 8}
    fig = draw.by_age(errors)
    (ax,) = fig.axes
    assert [float(line.get_ydata()[-1]) for line in ax.lines[:3]] == [2.0, 2.0, 1.0]
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["sum", "decay", "delta"]
    assert ax.get_xlim() == (0, 8) and "as far off as zero" in texts(ax)


def test_growth_marks_where_both_hold_the_same() -> None:
    tokens, mib = np.arange(0, 9), 2**20
    held = {"attention": 4 * mib * tokens, "states": (12 + tokens) * mib}
    (ax,) = draw.growth(tokens, held, 4.0).axes
    (dot,) = [line for line in ax.lines if line.get_marker() == "o"]
    assert (dot.get_xdata()[0], dot.get_ydata()[0]) == (4.0, 16 * mib)
    assert {"attention", "states", "equal at 4 tokens"} <= set(texts(ax))
    assert ax.get_ylabel() == "held by one request (MiB)"
