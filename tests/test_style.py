"""The palette is readable and stays apart; figures have one size, one card, and units that hold."""

import io
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pytest
from repository import ROOT

from kvbook import figures
from kvbook.figures import style

plt = pytest.importorskip("matplotlib.pyplot")

# Viénot-style simulation matrices, Machado, Oliveira and Fernandes 2009, severity 1, linear RGB.
SIGHT = {
    "normal": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
BOOK_CSS, CSS = ROOT / "book/_static/book.css", ROOT / "assets/explorers/explorer.css"
[BLOCK] = re.findall(
    r'html\[data-theme="dark"\] \.kv-explorer \{(.*?)\}', CSS.read_text(encoding="utf-8"), re.S
)
DARK = dict(re.findall(r"--kv-([\w-]+): (#\w{6});", BLOCK))
LIGHT = {"card": style.CARD, **style.COLORS}
LIGHT |= {f"{role}-text": style.text_color(role) for role in style.COLORS}
LIGHT |= {f"on-{role}": style.on_color(role) for role in style.COLORS}
both_themes = pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])


@pytest.fixture(autouse=True)
def own_style() -> Iterator[None]:
    plt.switch_backend("agg")
    with plt.rc_context():
        figures.use_style()
        yield
    plt.close("all")


def srgb(color: str) -> np.ndarray:
    return np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])


def oklab(color: str, sight: str) -> np.ndarray:
    rgb = srgb(color)
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.asarray(SIGHT[sight]) @ linear, 0, 1)
    to_lms = [
        [0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
    to_lab = [
        [0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
    return np.asarray(to_lab) @ np.cbrt(np.asarray(to_lms) @ linear)


def test_contrast_of_known_pairs() -> None:
    assert style.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)
    assert style.contrast("#ffffff", "#777777") == style.contrast("#777777", "#ffffff")


@both_themes
def test_marks_and_words_stand_out_from_the_card(colors: dict[str, str]) -> None:
    card = colors["card"]
    for role in style.COLORS:
        assert role == "grid" or style.contrast(colors[role], card) >= 3, role
        assert style.contrast(colors[f"{role}-text"], card) >= 4.5, role
        assert style.contrast(colors[f"on-{role}"], colors[role]) >= 4.5, role
    assert style.contrast(colors["ink"], card) >= 7


def test_both_cards_know_the_same_meanings() -> None:
    assert set(DARK) == set(LIGHT)
    assert set(style.ROLES) | {"ink", "muted", "grid"} == set(style.COLORS)
    for role, color in re.findall(r"var\(--kv-(\w+), (#\w{6})\)", CSS.read_text(encoding="utf-8")):
        assert LIGHT[role] == color, "what the rules fall back to is the light palette"


def test_dark_theme_leaves_figures_as_they_are() -> None:
    """The theme would dim images and raise their contrast; the palette was not chosen for that."""
    rules = re.findall(r"([^{}]*)\{([^{}]*)\}", BOOK_CSS.read_text(encoding="utf-8"))
    mine = [body for names, body in rules if "dark" in names and ".cell_output img" in names]
    assert any("filter: none !important" in body and "background: #fff" in body for body in mine)


@both_themes
@pytest.mark.parametrize("sight", SIGHT)
def test_meanings_stay_apart(sight: str, colors: dict[str, str]) -> None:
    seen = {role: oklab(colors[role], sight) for role in style.ROLES}
    for a, b in combinations(style.ROLES, 2):
        gap = np.linalg.norm(seen[a] - seen[b])
        assert gap >= 0.12, f"{a} and {b} look alike with {sight}"


def test_no_single_ink_serves_both_pages() -> None:
    """The reason for the opaque card: no grey has 4.5:1 on the light and on the dark page."""
    greys = [f"#{g:02x}{g:02x}{g:02x}" for g in range(256)]
    both = [
        g
        for g in greys
        if style.contrast(g, "#ffffff") >= 4.5 and style.contrast(g, "#14181e") >= 4.5
    ]
    assert both == []


def test_figures_have_one_width_and_an_opaque_card() -> None:
    for height, ncols in ((2.0, 1), (4.0, 3)):
        fig, _ = figures.figure(height, ncols)
        file = io.BytesIO()
        fig.savefig(file)
        pixels = plt.imread(io.BytesIO(file.getvalue()))
        wanted = round(height * style.DPI), int(style.WIDTH * style.DPI)
        assert pixels.shape == (*wanted, 4)
        assert (pixels[..., 3] == 1).all() and (pixels[0, 0] == 1).all()
    assert plt.get_fignums() == [], "a notebook would show it twice"


def test_unknown_role_is_named() -> None:
    with pytest.raises(ValueError, match="role: got 'keys', needed one of query, key"):
        figures.color("keys")
    with pytest.raises(ValueError, match="#rrggbb"):
        style.contrast("#fff", "#ffffff")
    with pytest.raises(AttributeError, match="no attribute 'pie'"):
        _ = figures.pie


def test_nothing_draws_before_it_is_asked_to() -> None:
    code = (
        "import sys, kvlib, kvbook.figures, kvbook.exercises.report;"
        "kvbook.figures.color('key'); kvbook.figures.format_bytes(3);"
        "heavy = {'matplotlib', 'ipywidgets', 'IPython'} & set(sys.modules);"
        "assert not heavy, heavy;"
        "sys.modules['matplotlib'] = None; kvbook.figures.use_style()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ImportError: The figures need matplotlib" in done.stderr, done.stderr
    assert "pip install 'kvlib[book]'" in done.stderr


def test_bytes_in_words() -> None:
    said = {0: "0 B", 1023: "1,023 B", 10.4 * 2**30: "10.4 GiB", 1023.9 * 1024: "1 MiB"}
    said |= {2**60: "1,048,576 TiB", 1.05 * 1024: "1.05 KiB"}
    assert {nbytes: figures.format_bytes(nbytes) for nbytes in said} == said


def test_bytes_axis_counts_in_the_unit_it_names() -> None:
    fig, ax = figures.figure()
    ax.plot([0, 1], [0, 7.5e6])
    figures.bytes_axis(ax, "KV cache")
    fig.canvas.draw()
    for tick in ax.yaxis.get_major_ticks():
        text = tick.label1.get_text().replace("−", "-")
        assert float(text) * 2**20 == pytest.approx(tick.get_loc())
    with pytest.raises(ValueError, match="axis: got 'z'"):
        figures.bytes_axis(ax, "KV cache", axis="z")


def test_line_names_do_not_overlap() -> None:
    fig, ax = figures.figure()
    series = {name: np.array([0.0, 1 + i / 1000]) for i, name in enumerate("abcd")}
    roles = ["key", "value", "cached", "shared"]
    figures.lines(ax, np.array([0, 1]), series, roles, xlabel="tokens", ylabel="time (ms)")
    fig.canvas.draw()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert [text.get_text() for text in ax.texts] == list("abcd")
    middles = sorted(box.y0 + box.height / 2 for box in boxes)
    assert min(np.diff(middles)) >= 10 * fig.dpi / 72
    assert [line.get_color() for line in ax.lines] == [figures.color(role) for role in roles]
    with pytest.raises(ValueError, match="roles: got 1, needed one for each of 4"):
        figures.lines(ax, [0, 1], series, ["key"], xlabel="", ylabel="")


def test_bars_need_a_role_each() -> None:
    _, ax = figures.figure()
    with pytest.raises(ValueError, match="roles: got 1"):
        figures.bars(ax, {"a": 1.0, "b": 2.0}, ["key"], xlabel="bytes")


def test_heatmap_scales_from_zero_or_around_it() -> None:
    _, (left, right) = figures.figure(ncols=2)
    matrix = np.array([[np.nan, 0.25], [-0.5, 0.1]])
    image = figures.heatmap(left, abs(matrix), xlabel="key", ylabel="query", unit="weight")
    assert image.get_clim() == (0, 0.5)
    signed = figures.heatmap(right, matrix, xlabel="key", ylabel="query", signed=True)
    assert signed.get_clim() == (-0.5, 0.5)
    with pytest.raises(ValueError, match=r"got shape \(3,\), needed \(rows, columns\)"):
        figures.heatmap(left, np.zeros(3), xlabel="", ylabel="")


def test_cells_draw_what_each_slot_holds() -> None:
    _, ax = figures.figure()
    grid = [["cached", "free"], ["recomputed", None]]
    text = [["0", "1"], ["0", ""]]
    figures.cells(ax, grid, text=text)
    faces = [patch.get_facecolor() for patch in ax.patches]
    assert len(faces) == 3
    assert np.allclose(faces[0][:3], srgb(figures.color("cached")))
    assert np.allclose(faces[1][:3], srgb(style.CARD)), "a free slot is an outline"
    assert [item.get_text() for item in ax.texts] == ["0", "1", "0"]
