"""The drawings of the chapter on recomputation show the numbers they are given."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from kvlib import show
from kvlib.show import naive

plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def own_style() -> Iterator[None]:
    plt.switch_backend("agg")
    with plt.rc_context():
        show.use_style()
        yield
    plt.close("all")


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
    assert [x.get_text() for x in fig.axes[0].get_xticklabels()] == ["a", "·", "=", "·"]


def test_exact_zeros_stay_white() -> None:
    change = np.array([[0, 0, 2.0], [0, 1e-6, 0.5]], dtype=np.float32)
    fig = naive.moved(change, ["keys", "logits"], at=2)
    image = fig.axes[0].images[0]
    assert np.array_equal(np.ma.getmaskarray(image.get_array()), change == 0)
    palest = image.cmap(image.norm(1e-6))
    assert show.contrast(_hex(palest), "#ffffff") > 1.2, "the smallest change can be seen"
    assert image.get_clim() == pytest.approx((1e-6, 2.0))


def _hex(rgba: tuple[float, ...]) -> str:
    return "#" + "".join(f"{round(255 * c):02x}" for c in rgba[:3])


def test_scores_are_written_into_their_cells() -> None:
    a, b = np.array([[0.9, 0.1]]), np.array([[0.25, 0.5]])
    fig = naive.head_scores({"one": a, "two": b})
    for ax, name, words in zip(fig.axes, ("one", "two"), (["0.90", "0.10"], ["0.25", "0.50"])):
        assert ax.get_title(loc="left") == name
        assert [text.get_text() for text in ax.texts] == words
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
    assert ax.get_title(loc="left") == "a head"
    assert not naive.attention_map(weights, text).axes[0].patches


def test_work_draws_the_formula_and_dots_the_counter() -> None:
    formula = {"linear": np.array([1e6, 2e6]), "attention": np.array([1e6, 4e6])}
    counted = {"linear": [1e6, 2e6], "attention": [1e6, 3e6]}
    (ax,) = naive.work([1, 2], counted, formula).axes
    drawn = [list(line.get_ydata()) for line in ax.lines]
    assert drawn == [[1, 2], [1, 4], [1, 2], [1, 3]]
    assert [line.get_linestyle() for line in ax.lines[2:]] == ["None", "None"]


def test_the_clock_starts_at_one() -> None:
    (ax,) = naive.clock([1, 4], [10, 50], [0.2, 0.3]).axes
    operations, seconds = (line.get_ydata() for line in ax.lines)
    assert list(operations) == [1, 5]
    assert list(seconds) == pytest.approx([1, 1.5])
    assert {text.get_text() for text in ax.texts} == {"operations", "time, this machine"}
