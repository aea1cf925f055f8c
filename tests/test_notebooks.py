"""What every chapter owes its reader; each exercise's stub fails, and its solution passes."""

import re
from pathlib import Path

import normalise_notebooks
import pytest
from notebook_code import NOTEBOOKS, code_cells, exercises, headings, namespace, read, tags
from reading import required_words

CHAPTERS = {
    *("naive", "cached", "batched"),
    *("memory", "roofline"),
    *("paged", "prefixes", "quantized", "chunked", "windows", "latent"),
    "gpu",
    "sampling",
    "speculative",
    "museum",
    "layernorm",
}
EXPLORERS = dict.fromkeys(CHAPTERS, 1) | {"intro": 1, "chunked": 2}
# exercises included, optional sections not
WORDS = dict.fromkeys(CHAPTERS, (1500, 3600)) | {"intro": (700, 1100), "extend": (900, 1600)}
WORDS |= {"batched": (1500, 3100), "sampling": (1500, 2900), "latent": (1500, 3650)}
WORDS |= {"windows": (1500, 3800), "speculative": (1500, 3900), "gpu": (1500, 4150)}
FIGURES = dict.fromkeys(CHAPTERS, (4, 10)) | {"intro": (0, 3), "extend": (0, 3)}
EXERCISES = dict.fromkeys(CHAPTERS, 3) | {"intro": 1, "extend": 0}
TAGS = {
    "setup",
    "stub",
    "check",
    "solution",
    "hide-input",
    "nbval-ignore-output",
    "raises-exception",
}

pytestmark = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_first_lines_promise_something(path: Path) -> None:
    lines = [line for line in read(path)["cells"][0]["source"].splitlines() if line.strip()]
    assert read(path)["cells"][0]["cell_type"] == "markdown"
    assert lines[0].startswith("# "), "a chapter opens with its title"
    assert len(lines) > 1 and len(lines[1].split()) >= 5, "the title is followed by a promise"
    if path.stem in CHAPTERS:  # in the first cell, or after one figure
        assert any("**You will be able to**" in c["source"] for c in read(path)["cells"][:3])


def test_headings_descend_one_level_at_a_time(path: Path) -> None:
    levels = headings(read(path))
    assert [level for level, _ in levels].count(1) == 1
    assert levels[0][0] == 1
    for (above, _), (level, title) in zip(levels, levels[1:]):
        assert level <= above + 1, f"{title!r} skips a level"


def test_length_and_boxes(path: Path) -> None:
    low, high = WORDS.get(path.stem, (1500, 3000))
    count = required_words(read(path))
    assert low <= count <= high, f"{count} words of prose, {low} to {high} wanted"
    if path.stem in CHAPTERS:
        text = "\n".join(cell["source"] for cell in read(path)["cells"])
        assert re.search(r"\{admonition\} Predict", text), "no predict box"
        assert re.search("costs and limits|where it loses", text, re.IGNORECASE)


def test_code_cells_are_short_and_known(path: Path) -> None:
    for cell in code_cells(read(path)):
        first = cell["source"].splitlines()[0]
        assert len(cell["source"].splitlines()) <= 25, f"more than 25 lines: {first}"
        widest = max(cell["source"].splitlines(), key=len)
        assert len(widest) <= 80, f"wider than a page shows (80 columns): {widest}"
        assert not re.search(r"^\s*[%!]", cell["source"], re.MULTILINE), f"a magic: {first}"
        assert set(tags(cell)) <= TAGS, f"unknown tag in {tags(cell)}: {first}"
        if "nbval-ignore-output" in tags(cell):
            assert "assert" in cell["source"], f"not compared, and asserts nothing: {first}"


def test_executed_in_order_and_clean(path: Path) -> None:
    assert normalise_notebooks.treat(path, check=True, run=False, timeout=0) == []
    outputs = [cell["outputs"] for cell in code_cells(read(path)) if cell["outputs"]]
    assert len(outputs) >= 3, "the outputs are not committed"


def test_every_figure_has_alt_text(path: Path) -> None:
    figures = 0
    for cell in code_cells(read(path)):
        images = [
            mime
            for output in cell["outputs"]
            for mime in output.get("data", {})
            if mime.startswith("image/")
        ]
        if not images:
            continue
        figures += 1
        alt = cell["metadata"].get("mystnb", {}).get("image", {}).get("alt", "")
        first = cell["source"].splitlines()[0]
        assert len(images) == 1, f"one figure a cell, so that its alt text fits it: {first}"
        assert 20 <= len(alt) <= 300, f"alt text of {len(alt)} characters: {first}"
    low, high = FIGURES.get(path.stem, (4, 10))
    assert low <= figures <= high, f"{figures} figures, {low} to {high} wanted"


def test_explorers_say_in_words_what_they_show(path: Path) -> None:
    explorers = 0
    for cell in code_cells(read(path)):
        for output in cell["outputs"]:
            markup = "".join(output.get("data", {}).get("text/html", ""))
            if "kv-explorer" not in markup:
                continue
            explorers += 1
            label = re.search(r'role="img" aria-label="([^"]*)"', markup)
            assert label and len(label[1]) >= 40, "a figure without a text in its place"
            assert "<svg" in markup, "nothing to see before the scripts have run"
    assert explorers == EXPLORERS.get(path.stem, 0)


def test_exercises_are_whole(path: Path) -> None:
    notebook = read(path)
    text = "\n\n".join(cell["source"] for cell in notebook["cells"])
    starts = re.findall(r":::\{exercise-start\}.*\n:label: ([\w-]+)", text)
    solved = re.findall(r":::\{solution-start\} ([\w-]+)\n(?::label: .*\n)?:class: dropdown", text)
    assert len(starts) >= EXERCISES.get(path.stem, 3)
    assert starts == solved, "each exercise is followed by its folded solution"
    assert all(label.startswith(f"{path.stem}-") for label in starts), starts
    assert len(exercises(notebook)) == len(starts)
    for body in re.findall(r"\{exercise-start\}(.*?)\{exercise-end\}", text, re.DOTALL):
        assert ":class: dropdown" in body, f"no hint: {body.strip().splitlines()[0]}"


def test_stub_fails_and_shown_solution_passes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    notebook = read(path)
    space = namespace(notebook)
    for exercise in exercises(notebook):
        check = space[exercise.checker]
        stub = check(space[exercise.name])
        assert stub.status == "not done yet", stub
        assert stub.finding, "a stub is told what to do"
        solution = check(space[exercise.solution])
        assert solution.passed and len(solution.proved) >= 2, solution


