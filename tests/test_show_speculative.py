"""The drawings of the chapter on guesses: what they show is what they were given."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import labels, texts, title, ys

from kvbook.figures import speculative as draw

pytestmark = pytest.mark.usefixtures("drawn")


def test_room_draws_a_line_per_quantity() -> None:
    (ax,) = draw.room([1, 2, 5], {"operations": [1, 2, 5], "bytes read": [1, 1, 1.1]}).axes
    assert ys(ax) == [[1, 2, 5], [1, 1, 1.1]]
    assert ax.get_ylim()[0] == 0


def test_steps_show_guesses_verdicts_and_the_text_that_is_gained() -> None:
    rounds = [([97, 98], 1, 99), ([], 0, 32), ([10], 1, 200)]
    left, right = draw.steps(rounds).axes
    words = texts(left)
    assert words == ["a", "b", "c", "ac", "␣", "␣"]
    faces = [box.get_facecolor()[:3] for box in left.patches]
    assert len(set(faces[:3])) == 3 and faces[3] == faces[2]  # right, refused, the model's
    assert texts(right) == ["↵", "?", "↵?"]
    assert labels(right.yaxis) == ["step 3"]


def test_coin_stacks_to_p_and_to_the_larger_of_both() -> None:
    p, q = np.array([0.7, 0.1, 0.2]), np.array([0.3, 0.5, 0.2])
    (ax,) = draw.coin(p, q, ["a", "b", "c"]).axes
    both, missing, over = (
        np.array([bar.get_height() for bar in bars]) for bars in np.split(np.array(ax.patches), 3)
    )
    assert np.allclose(both + missing, p) and np.allclose(both + over, q)


def test_draws_show_errors_on_a_band_of_chance() -> None:
    errors = {"right": [0.001, -0.001], "wrong": [0.05, -0.05]}
    axes = draw.draws(errors, ["a", "b"], [0.001, 0.001]).axes
    assert [title(ax) for ax in axes] == list(errors)
    for ax, error in zip(axes, errors.values()):
        assert list(ax.lines[0].get_ydata()) == pytest.approx([100 * x for x in error])
        assert ax.patches[0].get_height() == pytest.approx(2 * 1.96 * 0.1)


def test_gains_draw_a_curve_and_points_per_acceptance() -> None:
    curves, points = {0.5: [1.5, 1.9], 0.8: [1.8, 3.4]}, {0.5: [1.4, 2.0], 0.8: [1.9, 3.3]}
    (ax,) = draw.gains([1, 4], curves, points).axes
    found = ys(ax)
    assert found == [curves[0.5], points[0.5], curves[0.8], points[0.8]]
    assert texts(ax) == ["a = 0.5", "a = 0.8"]


def test_marked_puts_guessed_characters_on_a_ground() -> None:
    (ax,) = draw.marked("ab c\nd", [True, False, True, False, True, False], wide=3).axes
    assert [(box.get_x() + 0.5, box.get_y() + 0.5) for box in ax.patches] == [
        (0, 0),
        (2, 0),
        (1, 1),
    ]
    assert texts(ax) == ["a", "b", "c", "↵", "d"]
    with pytest.raises(ValueError):
        draw.marked("ab", [True])


def test_tree_draws_every_token_at_its_depth_and_the_mask() -> None:
    parents, mask = [-1, 0, 0, 1], np.tril(np.ones((4, 4), bool))
    left, right = draw.tree([97, 98, 99, 100], parents, mask).axes
    words = texts(left)
    assert [w for w in words if not w.isdigit()] == ["a", "b", "c", "d"]
    depth = {t.get_text(): t.get_position()[1] for t in left.texts if not t.get_text().isdigit()}
    assert depth == {"a": 0, "b": 1, "c": 1, "d": 2}
    assert (np.asarray(right.images[0].get_array()) == mask).all()
