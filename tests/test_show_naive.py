"""The drawings of the chapter on recomputation show the numbers they are given."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import labels, texts, title, ys

from kvbook import figures
from kvbook.figures import naive

pytestmark = pytest.mark.usefixtures("drawn")


def causal_weights(t: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    p = np.tril(rng.random((t, t))).astype(np.float32)
    return p / p.sum(axis=1, keepdims=True)


def test_white_space_has_marks() -> None:
    assert naive.letters("a b\n\tc") == ["a", "·", "b", "↵", "→", "c"]
    assert naive.letters("é") == ["�", "�"], "one mark a byte"


def test_bars_split_into_the_first_time_and_the_others() -> None:
    times = [3, 3, 2, 1, 0]
    (ax,) = naive.times_computed(times, prompt=2).axes
    first, again = ax.containers
    assert [bar.get_height() for bar in first] == [1, 1, 1, 1, 0]
    assert [bar.get_height() for bar in again] == [2, 2, 1, 0, 0]
    assert [bar.get_y() for bar in again] == [1, 1, 1, 1, 0]
    assert ax.lines[0].get_xdata()[0] == 1.5, "the prompt ends between tokens 1 and 2"


def test_three_steps_hide_the_future() -> None:
    t = 4
    scores = np.arange(t * t, dtype=np.float32).reshape(t, t) - 8
    hidden = ~np.tri(t, dtype=bool)
    fig = naive.three_steps(scores, hidden, causal_weights(t), "a = ")
    panels = [ax.images[0] for ax in fig.axes[:3]]
    shown = [np.ma.filled(image.get_array(), np.nan) for image in panels]
    assert np.array_equal(shown[0], scores)
    for values, right in ((shown[1], scores), (shown[2], causal_weights(t))):
        assert np.isnan(values[hidden]).all()
        assert np.array_equal(values[~hidden], right[~hidden])
    assert panels[0].get_clim() == panels[1].get_clim() == (-8, 8)
    assert labels(fig.axes[0].xaxis) == ["a", "·", "=", "·"]
    assert all(title(ax) for ax in fig.axes[:3])
    for ax in fig.axes[1:3]:  # stripes over what is hidden, which then is not the white of score 0
        striped = {(round(p.get_y() + 0.5), round(p.get_x() + 0.5)) for p in ax.patches}
        assert striped == {(i, j) for i in range(t) for j in range(t) if hidden[i, j]}
        assert all(p.get_hatch() for p in ax.patches)
    assert not fig.axes[0].patches


def test_turned_pairs_are_drawn_where_they_point() -> None:
    up, right = np.array([0.0, 1.0]), np.array([1.0, 0.0])
    fig = naive.pairs_turned([(2, up, 0, right), (3, right, 3, right)])
    first, second = fig.axes
    assert {text.get_text() for text in first.texts if text.get_text()} == {
        "query at 2",
        "key at 0",
    }
    assert [title(ax) for ax in fig.axes] == ["product 0.00", "product 1.00"]
    tips = [tuple(text.xy) for text in first.texts if hasattr(text, "xy")]
    assert tips == [(0.0, 1.0), (1.0, 0.0)]
    arc = first.lines[1].get_xydata()
    assert arc[0] == pytest.approx((0.35, 0)) and arc[-1] == pytest.approx((0, 0.35), abs=1e-9)
    assert np.ptp(second.lines[1].get_xydata(), axis=0) == pytest.approx((0, 0))


def test_the_pipeline_names_its_parts_and_shapes() -> None:
    (ax,) = naive.pipeline(layers=5, hidden=256).axes
    words = " ".join(text.get_text() for text in ax.texts)
    for part in ("token", "embedding", "attention", "MLP", "logits", "L = 5", "(T, hidden = 256)"):
        assert part in words
    assert "(V, hidden)" in words and "(T, V)" in words and words.count("norm") == 3


def test_scores_are_written_into_their_cells() -> None:
    a, b = np.array([[0.9, 0.1]]), np.array([[0.25, 0.5]])
    fig = naive.head_scores({"one": a, "two": b})
    for ax, name, words in zip(fig.axes, ("one", "two"), (["0.90", "0.10"], ["0.25", "0.50"])):
        assert title(ax) == name
        assert texts(ax) == words
        assert ax.images[0].get_clim() == (0, 1)


def test_attention_map_frames_the_rows_that_choose() -> None:
    text = "x = 'ab'; x = 'ab"
    weights = causal_weights(len(text))
    fig = naive.attention_map(weights, text, "a head", answer=2)
    ax = fig.axes[0]
    shown = ax.images[0].get_array()
    future = np.triu(np.ones(weights.shape, dtype=bool), 1)
    assert np.array_equal(np.ma.getmaskarray(shown), future)
    assert np.array_equal(shown[~future], weights[~future])
    (frame,) = ax.patches
    rows = (frame.get_y() + 0.5, frame.get_y() + frame.get_height() - 0.5)
    assert rows == (len(text) - 3, len(text) - 2), "the rows before each of the last two bytes"
    assert title(ax) == "a head"
    assert not naive.attention_map(weights, text).axes[0].patches


def test_work_draws_the_formula_and_dots_the_counter() -> None:
    formula = {"weights": [1e6, 2e6], "attention": [1e6, 4e6], "both": [2e6, 6e6]}
    (ax,) = naive.work([1, 2], [2e6, 5e6], formula).axes
    drawn = ys(ax)
    assert drawn == [[1, 2], [1, 4], [2, 6], [2, 5]]
    assert ax.lines[3].get_linestyle() == "None"
    assert ax.lines[3].get_color() == ax.lines[2].get_color() == figures.color("recomputed")


def test_the_clock_starts_at_one() -> None:
    (ax,) = naive.clock([1, 4], [10, 50], [0.2, 0.3]).axes
    operations, seconds = (line.get_ydata() for line in ax.lines)
    assert list(operations) == [1, 5]
    assert list(seconds) == pytest.approx([1, 1.5])
    assert {text.get_text() for text in ax.texts} == {"operations", "time, this machine"}
