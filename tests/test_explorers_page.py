"""The sliders of the rendered page, as far as no browser is needed: translation and drawing."""

import itertools
import json
import random
import re
import sys
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from repository import ROOT, run

from kvbook.explorers import svg
from kvbook.explorers.catalogue import ALL
from kvbook.explorers.scenes.panels import bars_panel, cells_panel, curves_panel
from kvbook.figures import style

pytest.importorskip("pscript")
import build_explorers
from page_language import Bare, Outside, Subset

SPACE = "{http://www.w3.org/2000/svg}"
WIDTHS = (320, 360, 520, 720)


def axis(low: float, high: float, scale: str = "linear", label: str = "x (m)") -> dict[str, Any]:
    ticks = [{"at": low, "text": str(low)}, {"at": high, "text": str(high)}]
    return {"label": label, "scale": scale, "min": low, "max": high, "ticks": ticks}


def bars(*parts: tuple[str, float, str], top: float = 10.0, marks: Any = ()) -> dict[str, Any]:
    listed = [[label, value, role] for label, value, role in parts]
    return bars_panel("bytes held", "GiB", top, [["one", listed]], list(marks))


def curves(lines: list[Any], points: list[Any], x: Any, y: Any) -> dict[str, Any]:
    listed = [[label, "key", line, False] for label, line in lines]
    return curves_panel("a curve", x, y, listed, points)


def drawn(*panels: dict[str, Any], width: int = 720) -> ET.Element:
    return ET.fromstring(svg.draw({"panels": list(panels)}, width))


def marked(root: ET.Element, tag: str) -> list[ET.Element]:
    return [e for e in root.iter(f"{SPACE}{tag}") if "data-label" in e.attrib]


def number(element: ET.Element, name: str) -> float:
    return float(element.attrib[name])


# ---------------------------------------------------------------------------- translation


def test_the_committed_script_is_what_the_modules_say() -> None:
    run(sys.executable, "tools/build_explorers.py", "--check")


def test_the_licence_of_the_helpers_lies_beside_them() -> None:
    """PScript's helpers are part of the script, so its licence goes where the script goes."""
    from importlib.metadata import files

    [licence] = [file for file in files("pscript") or [] if file.name == "LICENSE"]
    committed = ROOT / "assets" / "explorers" / "PSCRIPT-LICENSE"
    assert committed.read_text(encoding="utf-8") == licence.read_text(encoding="utf-8")


def test_a_change_makes_the_script_stale(tmp_path, monkeypatch, capsys) -> None:
    stale = tmp_path / "assets" / "scenes.js"
    stale.parent.mkdir()
    stale.write_text(
        build_explorers.OUTPUT.read_text(encoding="utf-8").replace("16", "17", 1), encoding="utf-8"
    )
    monkeypatch.setattr(build_explorers, "ROOT", tmp_path)
    monkeypatch.setattr(build_explorers, "OUTPUT", stale)
    monkeypatch.setattr(build_explorers, "script", lambda: "// another\n")
    monkeypatch.setattr(sys, "argv", ["build_explorers.py", "--check"])
    assert build_explorers.main() == 1
    assert "is stale" in capsys.readouterr().err


@pytest.mark.parametrize("code, words", [
    ("def f(a):\n    return a < 1 < 2", "f.py:2: no chained comparison"),
    ("def f(a):\n    return f'{a:.2f}'", "f.py:2: no format in an f-string"),
    ("def f(a):\n    return f'{a!r}'", "no format in an f-string"),
    ("def f(new):\n    return new", "f.py:1: the name 'new' means something else"),
    ("def f(a):\n    default = a\n    return default", "f.py:2: the name 'default'"),
    ("def f(a):\n    len = 3\n    return a", "the name 'len'"),
    ("class A:\n    pass", "f.py:1: ClassDef is outside"),
    ("def f(a):\n    return round(a)", "f.py:2: the name 'round' is not known"),
    ("def f(a):\n    return a.get('b')", "no method .get()"),
    ("def f(a):\n    return a.real", "no attribute .real"),
    ("def f(a):\n    return a[::2]", "no step in a slice"),
    ("def f(a):\n    return {1: a}", "keys of a dict are strings"),
    ("def f(a):\n    return {**a}", "keys of a dict are strings"),
    ("def f(a):\n    for k, v in a:\n        pass", "a loop has one variable"),
    ("def f(a):\n    return min(a, key=abs)", "no keyword arguments"),
    ("def f(*a):\n    return a", "only plain parameters"),
    ("def f(a):\n    return lambda: a", "Lambda is outside"),
    ("def f(a):\n    return (x for x in a)", "GeneratorExp is outside"),
    ("def f(a):\n    return a is None", "no `is`"),
    ("def f(a):\n    def g():\n        return a\n    return g", "no function inside"),
    ("def f(a):\n    try:\n        return a\n    finally:\n        pass", "Try is"),
    ("def f(a):\n    return a @ a", "MatMult is outside"),
])
def test_what_the_page_would_run_differently_is_refused(code: str, words: str) -> None:
    import ast

    with pytest.raises(Outside, match=re.escape(words)):
        Subset("f.py", {"f"}).visit(Bare().visit(ast.parse(code)))


def test_names_are_defined_once_over_all_modules(tmp_path, monkeypatch) -> None:
    folder = tmp_path / "kvbook" / "explorers"
    folder.mkdir(parents=True)
    source = "from kvbook.explorers.svg_a import twice\nA = 1\n"
    (folder / "svg.py").write_text(source, encoding="utf-8")
    (folder / "svg_a.py").write_text("def twice(x):\n    return 2 * x\n\nA = 2\n", encoding="utf-8")
    monkeypatch.setattr(build_explorers, "ROOT", tmp_path)
    with pytest.raises(Outside, match=r"svg.py:2: A is defined in kvbook/explorers/svg_a.py, too"):
        build_explorers.javascript(["kvbook.explorers.svg"])
    (folder / "svg.py").write_text("import numpy\n", encoding="utf-8")
    with pytest.raises(Outside, match="svg.py:1: the page has no 'import numpy'"):
        build_explorers.javascript(["kvbook.explorers.svg"])


# ---------------------------------------------------------------------------- colours


def test_the_page_has_the_palette_of_the_figures() -> None:
    roles = [*style.ROLES, "ink", "muted", "grid"]
    assert set(svg.LIGHT) == {*roles, "card"}
    for role in roles:
        assert svg.paint(role) == f"var(--kv-{role}, {style.color(role)})"
        assert svg.paint_text(role) == f"var(--kv-{role}-text, {style.text_color(role)})"
        assert svg.paint_on(role) == f"var(--kv-on-{role}, {style.on_color(role)})"


# ---------------------------------------------------------------------------- drawing


@pytest.mark.parametrize("value, text", [
    (0, "0"), (12, "12"), (12.345, "12.35"), (12.3, "12.3"), (-0.004, "0"), (-1.25, "-1.25"),
    (7.999, "8"), (0.05, "0.05"), (1e6 + 0.5, "1000000.5"),
])
def test_coordinates(value: float, text: str) -> None:
    assert svg.px(value) == text


@pytest.mark.parametrize("value", [0, 81559, -3, 2**40, 16.06, 1 / 3, 1e-9, 6.02e23, -0.125])
def test_values_can_be_read_back(value: float) -> None:
    assert float(svg.exact(value)) == pytest.approx(value, rel=6e-9)


def test_parts_of_a_bar_are_as_long_as_their_values() -> None:
    for width in WIDTHS:
        panel = bars(
            ("weights", 2.0, "weights"), ("nothing", 0.0, "key"), ("cache", 5.0, "cached"),
            ("free", 1.0, "free"), marks=[["usable", 8.0]],
        )
        root = drawn(panel, width=width)
        rects = {e.attrib["data-label"]: e for e in marked(root, "rect")}
        assert list(rects) == ["weights", "cache", "free"]
        scale = number(rects["weights"], "width") / 2
        assert number(rects["cache"], "width") == pytest.approx(5 * scale, abs=0.02)
        assert number(rects["free"], "width") == pytest.approx(scale - 1.5, abs=0.02), "an outline"
        start = number(rects["weights"], "x")
        assert number(rects["cache"], "x") == pytest.approx(start + 2 * scale, abs=0.02)
        [mark] = marked(root, "line")
        assert number(mark, "x1") == number(mark, "x2")
        assert number(mark, "x1") == pytest.approx(start + 8 * scale, abs=0.02)
        assert {e.attrib["data-value"] for e in marked(root, "rect")} == {"2", "5", "1"}
        texts = [e.text for e in root.iter(f"{SPACE}text")]
        assert {"bytes held", "one", "usable", "weights", "nothing", "cache", "free"} <= set(texts)
        assert "10 GiB" in texts, "the axis names its unit"


def test_a_bar_longer_than_its_scale_stretches_it() -> None:
    root = drawn(bars(("a", 30.0, "key"), top=10))
    [rect] = marked(root, "rect")
    assert number(rect, "x") + number(rect, "width") <= 720


def test_a_part_is_named_inside_where_that_fits() -> None:
    texts = [e.text for e in drawn(bars(("a long name", 9.0, "key"))).iter(f"{SPACE}text")]
    assert "a long name 9 GiB" in texts
    texts = [e.text for e in drawn(bars(("a long name", 1.0, "key"))).iter(f"{SPACE}text")]
    assert "1 GiB" in texts and "a long name 1 GiB" not in texts
    texts = [e.text for e in drawn(bars(("a long name", 0.01, "key"))).iter(f"{SPACE}text")]
    assert "0.01 GiB" not in texts and "a long name" in texts, "in the legend"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scale", ["linear", "log"])
def test_points_and_curves_lie_where_the_axes_say(scale: str, width: int) -> None:
    x, y = axis(1, 10000, scale), axis(1, 100, scale, "y (s)")
    middle = [100, 10] if scale == "log" else [5000.5, 50.5]
    points = [["p", "query", middle[0], middle[1]]]
    ends = [[1, 1], [10000, 100]]
    root = drawn(curves([("up", ends)], points, x, y), width=width)
    [path], [circle] = marked(root, "path"), marked(root, "circle")
    numbers = [float(n) for n in re.findall(r"-?[\d.]+", path.attrib["d"])]
    x0, y0, x1, y1 = numbers
    assert x0 < x1 <= width and y0 > y1 >= 0
    assert number(circle, "cx") == pytest.approx((x0 + x1) / 2, abs=0.02)
    assert number(circle, "cy") == pytest.approx((y0 + y1) / 2, abs=0.02)
    assert number(circle, "data-x") == middle[0] and number(circle, "data-value") == middle[1]
    texts = {e.text for e in root.iter(f"{SPACE}text")}
    assert {"a curve", "x (m)", "y (s)", "up", "p", "1", "10000", "100"} <= texts


def test_what_leaves_the_axes_is_cut_off() -> None:
    panel = curves([("up", [[0, 0], [10, 1000]])], [], axis(0, 10), axis(0, 100))
    root = drawn(panel)
    [inner] = [e for e in root.iter(f"{SPACE}svg") if e is not root]
    assert inner.attrib["overflow"] == "hidden" and number(inner, "height") < 300


def test_names_at_line_ends_do_not_collide() -> None:
    for width, n in itertools.product(WIDTHS, (2, 5, 9)):
        lines = [(f"c{i}", [[0, 0], [10, 50 + i / 100]]) for i in range(n)]
        root = drawn(curves(lines, [], axis(0, 10), axis(0, 100)), width=width)
        names = {f"c{i}" for i in range(n)}
        heights = sorted(number(e, "y") for e in root.iter(f"{SPACE}text") if e.text in names)
        assert len(heights) == n
        assert min(b - a for a, b in itertools.pairwise(heights)) >= 14.9


def test_names_of_points_cover_neither_points_nor_curves() -> None:
    points = [[f"point {i}", "key", 4 + i / 10, 4 + i / 10] for i in range(4)]
    lines = [("rising", [[0, 0], [10, 10]])]
    root = drawn(curves(lines, points, axis(0, 10), axis(0, 10)))
    spots = [(number(e, "cx"), number(e, "cy")) for e in marked(root, "circle")]
    boxes = []
    for e in root.iter(f"{SPACE}text"):
        if (e.text or "").startswith("point"):
            left, bottom = number(e, "x"), number(e, "y") + 4
            room = svg.BOLD * svg.text_width(e.text or "", svg.SMALL)
            boxes.append((left, bottom - 15, left + room, bottom))
    assert len(boxes) == 4
    for a, b in itertools.combinations(boxes, 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
    for (x, y), box in itertools.product(spots, boxes):
        assert not (box[0] < x < box[2] and box[1] < y < box[3])


@pytest.mark.parametrize("end", [3, 60, 100])
def test_the_name_of_an_upright_line_is_crossed_by_no_curve(end: float) -> None:
    steep, flat = [[0, 0], [9, end]], [[0, 99], [10, 99]]
    lines = [("steep", steep), ("flat", flat), ("limit", [[8, 0], [8, 100]])]
    for width in WIDTHS:
        panel = curves(lines, [], axis(0, 10), axis(0, 100))
        root, area = drawn(panel, width=width), svg.plot_area(panel, width)
        [name] = [e for e in root.iter(f"{SPACE}text") if e.text == "limit"]
        x, y = number(name, "x"), number(name, "y") + 4
        box = [x, y - 15, x + svg.text_width("limit", svg.SMALL), y]
        paths = [
            [[svg.at_x(panel, area, a), svg.at_y(panel, area, b)] for a, b in points]
            for points in (steep, flat, [[8, 0], [8, 100]])
        ]
        assert not svg.crossed(box, paths)
        assert area["left"] <= x <= area["right"]


def test_long_names_of_curves_go_below() -> None:
    long = "a name that is far too long to stand at the end of a line on a phone"
    root = drawn(curves([(long, [[0, 0], [1, 1]])], [], axis(0, 1), axis(0, 1)), width=360)
    texts = [e.text or "" for e in root.iter(f"{SPACE}text")]
    assert any(text.startswith("a name that is") and text.endswith("…") for text in texts)


def test_cells_are_drawn_one_by_one() -> None:
    panel = cells_panel("slots", [["r1", ["key", "", "free"]], ["r2", ["key"]]], [["key", "a key"]])
    for width in WIDTHS:
        root = drawn(panel, width=width)
        found = [(e.attrib["data-label"], e.attrib["data-value"]) for e in marked(root, "rect")]
        assert found == [("r1", "0"), ("r1", "2"), ("r2", "0")]
        first, last, below = marked(root, "rect")
        assert number(last, "x") - number(first, "x") > 2 * number(first, "width")
        assert number(below, "y") > number(first, "y")
        assert number(below, "x") == number(first, "x")


def test_letters_are_written_into_their_slots() -> None:
    panel = cells_panel("text", [["r1", ["key", "", "free", "key"], "ab< "]], [])
    for width in WIDTHS:
        letters = [e for e in drawn(panel, width=width).iter(f"{SPACE}text") if e.text in "ab< "]
        assert [e.text for e in letters] == ["a", "<"], "an empty slot and a blank have none"
        first, last = marked(drawn(panel, width=width), "rect")[:2]
        for letter, slot in zip(letters, (first, last), strict=True):
            middle = number(slot, "x") + number(slot, "width") / 2
            assert number(letter, "x") == pytest.approx(middle, abs=0.8)
            assert 9 <= number(letter, "font-size") <= 12


def test_a_table_has_its_cells_in_columns_and_bars_as_long_as_their_shares() -> None:
    pair = [{"role": "key", "text": "−1"}, {"role": "value", "text": "<2>"}]
    bars = [[{"role": "muted", "text": f"{x:.2f}", "share": x}] for x in (0.5, 1)]
    rows = [{"label": "a", "columns": [pair, bars[0]]}, {"label": "b", "columns": [[], bars[1]]}]
    panel = {"kind": "table", "label": "arrays", "columns": ["pairs", "shares"], "rows": rows}
    panel["legend"] = [{"role": "key", "label": "a key"}]
    for width in WIDTHS:
        root = drawn(panel, width=width)
        one, two, half, whole = marked(root, "rect")
        assert [e.attrib["data-label"] for e in (one, two, half, whole)] == ["a", "a", "a", "b"]
        assert number(one, "y") == number(two, "y") < number(whole, "y")
        assert number(one, "x") + number(one, "width") < number(two, "x")
        assert number(half, "x") == number(whole, "x") > number(two, "x") + number(two, "width")
        assert number(whole, "width") == pytest.approx(2 * number(half, "width"), abs=0.02)
        assert number(whole, "x") + number(whole, "width") < width - 30, "room for its number"
        texts = {e.text for e in root.iter(f"{SPACE}text")}
        assert {"arrays", "pairs", "shares", "a", "b", "−1", "<2>", "0.50", "a key"} <= texts


def test_words_are_escaped() -> None:
    nasty = """<b> & "quoted" 'too'"""
    root = drawn(bars((nasty, 9.0, "key")))
    assert marked(root, "rect")[0].attrib["data-label"] == nasty
    assert nasty in [e.text for e in root.iter(f"{SPACE}text")]


def test_titles_wrap() -> None:
    lines = svg.wrapped("one two three four", 12, 70)
    assert " ".join(lines) == "one two three four" and len(lines) > 1
    assert all(svg.text_width(line, 12) <= 70 for line in lines)


@pytest.mark.parametrize("name", ALL)
def test_every_explorer_is_drawn_at_any_setting(name: str) -> None:
    explorer = ALL[name]()
    rng = random.Random(name)
    for turn in range(40):
        settings = {c.name: rng.choice(c.values) for c in explorer.controls}
        scene = explorer.scene(**settings)
        json.dumps(scene, allow_nan=False)
        width = WIDTHS[turn % 4]
        root = ET.fromstring(svg.draw(scene, width))
        assert root.attrib["viewBox"].startswith(f"0 0 {width} ")
        for e in root.iter():
            for key in ("x", "y", "width", "height", "cx", "cy"):
                assert float(e.attrib.get(key, 0)) >= 0, f"{settings}: {e.tag} {e.attrib}"
        for text in root.iter(f"{SPACE}text"):
            assert number(text, "x") <= width
