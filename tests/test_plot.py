"""The matplotlib drawing of a scene shows the scene's numbers, and its words stay apart."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from small_scenes import TABLES, check_scene, shelf_scene

from kvlib import show
from kvlib.show import place, plot, style

plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def own_style() -> Iterator[None]:
    plt.switch_backend("agg")
    with plt.rc_context():
        yield
    plt.close("all")


def scene(boxes: int = 4) -> dict[str, Any]:
    return shelf_scene({"card": "small", "kind": "plain", "boxes": boxes}, TABLES)


def panel(kind: str, **changes: Any) -> dict[str, Any]:
    """The small scene with one panel, changed."""
    (found,) = [dict(p) for p in scene()["panels"] if p["kind"] == kind]
    return scene() | {"panels": [found | changes]}


def boxes_of(fig: Any) -> dict[str, Any]:
    """Where every text of a figure stands, in pixels."""
    fig.canvas.draw()
    texts = [*fig.texts, *(text for ax in fig.axes for text in ax.texts)]
    ticks = [t for ax in fig.axes for t in (*ax.get_xticklabels(), *ax.get_yticklabels())]
    names = [label for ax in fig.axes for label in (ax.xaxis.label, ax.yaxis.label)]
    return {
        f"{text.get_text()} #{i}": text.get_window_extent()
        for i, text in enumerate([*texts, *ticks, *names])
        if text.get_text()
    }


def hex_of(artist: Any) -> str:
    from matplotlib.colors import to_hex

    return to_hex(artist.get_facecolor())


def test_the_test_scene_is_one() -> None:
    check_scene(scene())


def test_bars_are_as_long_as_their_values() -> None:
    (ax,) = plot.draw(panel("bars")).axes
    found = [
        (bar.get_y() + bar.get_height() / 2, bar.get_x(), bar.get_width(), hex_of(bar))
        for bar in ax.patches
    ]
    key, cached, card = show.color("key"), show.color("cached"), style.CARD
    assert found == [(0, 0, 8, cached), (0, 8, 8, key), (0, 16, 8, card), (1, 0, 8, cached)]
    assert ax.get_xlim() == (0, 200)
    assert ax.get_ylim()[0] > ax.get_ylim()[1], "the first bar is on top"
    assert [text.get_text() for text in ax.get_yticklabels()] == ["this card", "without boxes"]
    assert [text.get_text() for text in ax.get_xticklabels()] == [
        "0",
        "50",
        "100",
        "150",
        "200 GiB",
    ]
    assert list(ax.get_xticks()) == [0, 50, 100, 150, 200]
    assert [list(line.get_xdata()) for line in ax.lines] == [[24, 24], [20, 20]]
    assert [text.get_text() for text in ax.texts] == ["room", "most of it"]


def test_a_part_with_room_for_words_carries_its_value() -> None:
    parts = [
        {"label": "held", "value": 120.5, "role": "cached"},
        {"label": "lost", "value": 20.25, "role": "key"},
        {"label": "thin", "value": 1.0, "role": "free"},
    ]
    (ax,) = plot.draw(panel("bars", bars=[{"label": "one", "parts": parts}], marks=[])).axes
    found = [(text.get_text(), text.get_position()[0]) for text in ax.texts]
    assert found == [("held 121 GiB", 60.25), ("20.3 GiB", 130.625)]


def test_a_bar_past_the_end_of_the_scale_is_shown_whole() -> None:
    bars = [{"label": "one", "parts": [{"label": "held", "value": 300.0, "role": "cached"}]}]
    (ax,) = plot.draw(panel("bars", bars=bars)).axes
    assert ax.get_xlim() == (0, 300)


def test_every_colour_of_the_bars_is_named_once() -> None:
    fig = plot.draw(panel("bars"))
    words = [text.get_text() for text in fig.texts]
    assert words == ["Memory", "fixed", "boxes", "free"]
    assert [hex_of(swatch) for swatch in fig.artists] == [
        show.color("cached"),
        show.color("key"),
        style.CARD,
    ]


def test_curves_pass_through_their_points() -> None:
    (ax,) = plot.draw(panel("curves")).axes
    *lines, here = ax.lines
    assert [line.get_xydata().tolist() for line in lines] == [
        [[1, 2], [10, 20], [100, 200]],
        [[1, 1], [10, 10], [100, 100]],
        [[1, 150], [20, 150]],
    ]
    assert here.get_xydata().tolist() == [[4, 8]] and here.get_marker() == "o"
    roles = [show.color(role) for role in ("recomputed", "cached", "query", "key")]
    assert [line.get_color() for line in ax.lines] == roles
    assert [line.is_dashed() for line in lines] == [False, True, False]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "linear")
    assert (ax.get_xlim(), ax.get_ylim()) == ((1, 100), (0, 200))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("boxes", "GiB")
    assert [text.get_text() for text in ax.get_xticklabels()] == ["1", "10", "100"]
    assert list(ax.get_yticks()) == [0, 100, 200] and len(ax.get_xticks(minor=True)) == 0
    assert {text.get_text() for text in ax.texts} == {"plain", "packed", "ends early", "here"}


def test_cells_stand_in_their_rows() -> None:
    (ax,) = plot.draw(panel("cells")).axes
    held, free = ax.collections
    centres = {
        c.get_label(): [tuple(p.vertices[:4].mean(axis=0).round(6)) for p in c.get_paths()]
        for c in (held, free)
    }
    assert centres["key"] == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert centres["free"] == [(4, 0), (0, 1), (1, 1)]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["top", "bottom"]


@pytest.mark.parametrize("boxes", [1, 4, 16])
def test_no_words_cover_each_other_or_leave_the_figure(boxes: int) -> None:
    fig = plot.draw(scene(boxes))
    found = boxes_of(fig)
    assert len(found) > 20
    width, height = fig.get_size_inches() * fig.dpi
    for name, box in found.items():
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height, name
    for (a, one), (b, other) in itertools.combinations(found.items(), 2):
        apart = one.x1 <= other.x0 or other.x1 <= one.x0 or one.y1 <= other.y0 or other.y1 <= one.y0
        assert apart, f"{a} covers {b}"


def test_figures_are_as_wide_as_the_books_and_white() -> None:
    fig = plot.draw(scene())
    assert fig.get_size_inches()[0] == style.WIDTH
    assert plt.get_fignums() == [], "pyplot would show it a second time"
    before = dict(plt.rcParams)
    pixels = plt.imread(io.BytesIO(plot.png(scene(), dpi=50)))
    assert pixels.shape[1] == round(style.WIDTH * 50)
    assert (pixels[0, 0] == 1).all() and (pixels[..., 3] == 1).all()
    assert dict(plt.rcParams) == before, "the style leaked"


def test_the_process_style_does_not_change_the_figure() -> None:
    plain = plot.png(scene(), dpi=50)
    show.use_style()
    plt.rcParams["font.size"] = 23
    assert plot.png(scene(), dpi=50) == plain


def test_unknown_kinds_and_roles_are_named() -> None:
    with pytest.raises(ValueError, match="got the kind 'pie', needed bars, curves or cells"):
        plot.draw(scene() | {"panels": [{"kind": "pie", "label": "all"}]})
    line = {"label": "a", "role": "blue", "points": [[1, 1], [2, 2]], "dashed": False}
    with pytest.raises(ValueError, match="role: got 'blue'"):
        plot.draw(panel("curves", lines=[line]))


def test_many_marks_at_one_place_each_have_their_words() -> None:
    many = [{"label": f"mark {i}", "role": "key", "x": 10, "y": 20} for i in range(4)]
    found = boxes_of(plot.draw(panel("curves", points=many, lines=[])))
    marks = [box for name, box in found.items() if name.startswith("mark")]
    assert len(marks) == 4
    for one, other in itertools.combinations(marks, 2):
        assert one.x1 <= other.x0 or other.x1 <= one.x0 or one.y1 <= other.y0 or other.y1 <= one.y0


def test_heights_are_spread_and_stay_below_the_top() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        heights = rng.uniform(0, 200, 6).tolist()
        placed = place.spread(heights, 12, 210)
        assert np.argsort(placed).tolist() == np.argsort(heights).tolist()
        assert (np.diff(sorted(placed)) >= 12 - 1e-9).all() and max(placed) <= 210
    assert place.spread([10, 50], 12, 210) == [10, 50], "what is apart stays"
    assert place.spread([205, 205], 12, 210) == [198, 210]
