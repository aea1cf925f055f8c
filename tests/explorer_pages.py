"""What the test of the sliders asks: a page's explorers, and what each shows and should show."""

import functools
import hashlib
import itertools
import json
import math
import random
import shutil
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rendered import ROOT, tags_of

from kvbook.explorers import svg
from kvbook.explorers.catalogue import ALL
from kvbook.explorers.controls import Slider
from kvbook.explorers.explorer import Explorer
from kvbook.explorers.scenes.panels import cells_panel

SPACE = "{http://www.w3.org/2000/svg}"
Wanted = tuple[dict[str, Any], str, list[str | None]]
GRID = 10_000  # settings that page and Python are compared at


def explorers_of(page_file: Path) -> list[dict[str, Any]]:
    """Return the data of every explorer on a built page, its id under "id"."""
    return [
        {"id": attributes["id"]} | json.loads(attributes["data-explorer"])
        for _, attributes in tags_of(page_file.read_text(encoding="utf-8"))
        if "kv-explorer" in attributes.get("class", "").split()
    ]


def values_of(control: dict[str, Any]) -> list[Any]:
    """What a control offers, in order."""
    if control["kind"] == "choice":
        return [value for value, _ in control["options"]]
    return list(control["values"])


@functools.cache
def explorer(name: str) -> Explorer:
    """The book's own explorer of this name."""
    return ALL[name]()


def wanted(data: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The scene that Python computes for these settings."""
    if "frames" in data:
        controls = data["controls"]
        every = itertools.product(*map(values_of, controls))
        at = list(every).index(tuple(settings[control["name"]] for control in controls))
        frame: dict[str, Any] = data["frames"][at]
        return frame
    return explorer(data["name"]).scene(**settings)


def same(a: Any, b: Any, path: str = "scene") -> None:
    """AssertionError, with the path, unless both hold the same; numbers to 1e-9 relative."""
    if isinstance(a, dict):
        assert isinstance(b, dict) and set(a) == set(b), f"{path}: {a!r} and {b!r}"
        for key in a:
            same(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, list | tuple):
        assert isinstance(b, list | tuple) and len(a) == len(b), f"{path}: {a!r} and {b!r}"
        for i, (x, y) in enumerate(zip(a, b)):
            same(x, y, f"{path}[{i}]")
    elif isinstance(a, int | float) and not isinstance(a, bool):
        assert isinstance(b, int | float) and math.isclose(a, b, rel_tol=1e-9), (path, a, b)
    else:
        assert a == b, f"{path}: {a!r} and {b!r}"


def drawn_values(scene: dict[str, Any]) -> list[tuple[str, float]]:
    """Every mark of a scene, name and value, in the order it is drawn, found without `svg`."""
    marks: list[tuple[str, float]] = []
    for panel in scene["panels"]:
        if panel["kind"] == "bars":
            parts = [part for bar in panel["bars"] for part in bar["parts"] if part["value"] > 0]
            marks += [(mark["label"], mark["value"]) for mark in parts + panel["marks"]]
        elif panel["kind"] == "curves":
            marks += [(line["label"], line["points"][-1][1]) for line in panel["lines"]]
            marks += [(point["label"], point["y"]) for point in panel["points"]]
        elif panel["kind"] == "map":
            marks += map_marks(panel)
        elif panel["kind"] == "table":
            marks += [
                (row["label"], cell.get("share", k))
                for i in range(len(panel["columns"]))
                for row in panel["rows"]
                for k, cell in enumerate(row["columns"][i])
            ]
        else:
            marks += [
                (row["label"], i)
                for row in panel["rows"]
                for i, role in enumerate(row["cells"])
                if role
            ]
    return marks


def map_marks(panel: dict[str, Any]) -> list[tuple[str, float]]:
    """The marks of an attention map: cells by what they show, columns of the answer, bars."""
    counts: Counter[tuple[str, str]] = Counter()
    for t, row in enumerate(panel["levels"]):
        counts.update(("held" if t < panel["lost"][i] else "lost", d) for i, d in enumerate(row))
    cells = [
        (f"{what}, {digit} ninths", counts[what, digit])
        for what in ("held", "lost")
        for digit in "123456789"
        if counts[what, digit]
    ]
    return [*cells, (panel["ring"], len(panel["rings"])), ("held", sum(panel["shares"]))]


@functools.lru_cache(maxsize=4096)
def wanted_of_all(name: str, settings: tuple[tuple[str, Any], ...], width: int) -> Wanted:
    """`wanted_drawing` of a book's own explorer, computed once for all moves that lead there."""
    scene = explorer(name).scene(**dict(settings))
    return scene, *drawing_of(scene, width)


def drawing_of(scene: dict[str, Any], width: int) -> tuple[str, list[str | None]]:
    """The drawing that Python makes of a scene, and the widths of its marks."""
    text = svg.draw(scene, width)
    drawn = ET.fromstring(text).iter()
    return text, [e.get("width") for e in drawn if "data-label" in e.attrib]


def wanted_drawing(data: dict[str, Any], settings: dict[str, Any], width: int) -> Wanted:
    """The scene for these settings, its drawing, and the widths of the drawing's marks."""
    if "frames" not in data:
        return wanted_of_all(data["name"], tuple(settings.items()), width)
    scene = wanted(data, settings)
    return scene, *drawing_of(scene, width)


def check(data: dict[str, Any], state: dict[str, Any], settings: dict[str, Any]) -> None:
    """AssertionError unless the page shows these settings, everywhere, as Python computes them."""
    assert state["settings"] == settings
    scene, text, widths = wanted_drawing(data, settings, state["width"])
    same(scene, state["scene"])
    assert state["svg"] == text
    marks = drawn_values(scene)
    assert [mark[0] for mark in state["marks"]] == [label for label, _ in marks]
    for (label, value), mark in zip(marks, state["marks"]):
        assert math.isclose(float(mark[1]), value, rel_tol=1e-8), (label, value, mark)
    assert [mark[2] for mark in state["marks"]] == widths, "the document has another drawing"
    assert state["title"] == scene["title"]
    assert state["summary"] == state["label"] == scene["summary"]
    assert state["formula"] == scene["formula"]
    assert state["numbers"] == scene["numbers"]
    for spoken, shown in state["valuetexts"]:
        assert spoken == shown


def grid(settings: int = GRID) -> list[tuple[str, dict[str, Any], int]]:
    """At least so many settings over all explorers: first and last values, corners, drawn ones."""
    jobs: list[tuple[str, dict[str, Any], int]] = []
    share = -(-settings // len(ALL))
    for name in ALL:
        rng = random.Random(name)
        controls = explorer(name).controls
        names = [c.name for c in controls]
        ends = [(c.values[0], c.values[-1]) for c in controls]
        corners = [dict(zip(names, at)) for at in itertools.product(*ends)]
        # the first and the last corner visit both ends of every control
        if len(corners) > max(2, share // 2):
            corners = [corners[0], corners[-1], *rng.sample(corners[1:-1], share // 2 - 2)]
        drawn = [{c.name: rng.choice(c.values) for c in controls} for _ in range(share)]
        widths = itertools.cycle((320, 400, 640, 720))
        jobs += [(name, at, width) for at, width in zip(corners + drawn, widths)]
    return jobs


def digest(scene: dict[str, Any], width: int) -> str:
    """The hash that the page makes of the same drawing."""
    return hashlib.sha1(svg.draw(scene, width).encode()).hexdigest()


def frames_explorer(play: bool = False) -> Explorer:
    """An explorer whose scenes were made beforehand, as a chapter that replays a log has it."""
    scenes = []
    for step in range(6):
        cells = ["cached"] * step + ["query"] + ["free"] * (5 - step)
        rows = [["request <A> & co", cells]]
        legend = [["cached", "kept"], ["query", "new"]]
        panel = cells_panel("Slots", rows, legend)
        cells = [{"role": "query", "text": "<−1>"}, {"role": "cached", "text": "2"}]
        bar = {"role": "query", "text": "a", "share": step / 5}
        row = {"label": "one", "columns": [cells, [bar]]}
        table = panel | {"kind": "table", "columns": ["pairs", "shares"], "rows": [row]}
        scenes.append(
            {
                "title": f"Step {step}",
                "summary": f"After step {step}, {step + 1} slots are taken.",
                "formula": [f"{step} + 1 = {step + 1}"],
                "numbers": [{"label": "Taken", "text": f"{step + 1}"}],
                "panels": [panel, table],
            }
        )
    slider = Slider("step", "Step of the log", range(6), 2, play=play)
    return Explorer.from_frames("replay", "A log, step by step", slider, scenes)


def write_fixture(folder: Path, explorers: Iterable[Explorer]) -> Path:
    """A page `all.html` with these explorers and the book's own scripts, outside the theme."""
    shutil.copytree(ROOT / "assets" / "explorers", folder / "explorers")
    body = "\n".join(made.to_html() for made in explorers)
    page = folder / "all.html"
    page.write_text(
        '<!doctype html><html lang="en" data-theme="light"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>All explorers</title>'
        '<style>* { box-sizing: border-box; } html[data-theme="dark"] { background: #14181e; }'
        '</style><link rel="icon" href="data:,">'
        '<link rel="stylesheet" href="explorers/explorer.css">'
        '<script defer src="explorers/scenes.js"></script>'
        '<script defer src="explorers/explorer.js"></script></head>'
        f"<body><main>{body}</main></body></html>",
        encoding="utf-8",
    )
    return page


def fixture_explorers() -> Iterator[Explorer]:
    """Every explorer of the book, and a replay."""
    for name in ALL:
        yield explorer(name)
    yield frames_explorer()
