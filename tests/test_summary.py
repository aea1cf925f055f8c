"""The page at the end of `make test` counts what pytest and nbval really reported."""

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat.v4 as nb
import pytest
import summary

TESTS = """
import pytest

@pytest.mark.parametrize("n", [3, 4])
def test_passes(n, record_property):
    record_property("schedules", n)
    record_property("sampled", f"odd lives: {n} of 1,000")
    record_property("sampled", f"even lives: {n} of {n}")

def test_fails():
    assert 1 == 2

def test_error(no_such_fixture):
    pass

def test_skipped():
    pytest.skip("not here")

def test_axe_finds_nothing():
    pass
"""


def run_pytest(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    # every plugin that is installed would be imported, which takes longer than the tests do
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=alone)
    assert done.returncode in (0, 1), done.stdout + done.stderr


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the reports of a small run, and book/ with the notebook that it ran."""
    folder = tmp_path_factory.mktemp("summary")
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_small.py").write_text(TESTS)
    run_pytest(folder, "test_small.py", "--junitxml=unit.xml")
    run_pytest(folder, "test_small.py", "-k", "axe or passes", "--junitxml=browser.xml")
    cells = [nb.new_code_cell(source) for source in ("1 + 1", "print(2)", "1 / 0")]
    for cell, output in zip(cells, ("2", None, None)):
        if output:
            data = {"text/plain": output}
            cell.execution_count = 1
            cell.outputs = [nb.new_output("execute_result", data, execution_count=1)]
    cells[1].metadata.tags = ["nbval-ignore-output"]
    (folder / "book").mkdir()
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = nb.new_notebook(cells=[nb.new_markdown_cell("# Title"), *cells], metadata=kernel)
    (folder / "book" / "small.ipynb").write_text(nb.writes(notebook))
    nbval = (
        "-p", "nbval.plugin", "--nbval", "--nbval-current-env", "book/small.ipynb",
        "--junitxml=notebooks.xml",
    )
    run_pytest(folder, *nbval)
    totals = {"totals": {"percent_covered": 97.25, "num_statements": 4000}}
    (folder / "coverage.json").write_text(json.dumps(totals))
    (folder / "mutants.json").write_text(json.dumps({"killed": 11, "of": 12}))
    return folder


def test_counts_what_was_reported_and_names_a_missing_step(reports: Path) -> None:
    numbers = summary.collect(reports, reports / "book")
    assert numbers["tests"] == {"passed": 3, "failed": 2, "skipped": 1}
    assert numbers["schedules"] == 7
    assert numbers["notebooks"] == {"notebooks": 1, "cells": 2, "compared": 1, "failed": 1}
    assert numbers["browser"] == {"passed": 3, "failed": 0, "skipped": 0, "pages": 1}
    assert numbers["sampled"] == {"odd lives": [14, 4000], "even lives": [14, 14]}
    text = summary.page(numbers)
    assert "Sampled    14 of 4,000 odd lives" in text and "even" not in text
    assert "KVLIB_TESTS=whole" in text
    assert "3 passed, 2 failed, 1 skipped" in text and "97.2 % of 4,000 lines" in text
    assert "11 of 12 killed" in text and "2 cells, 1 of them compared" in text
    assert "3 checks passed; axe-core on 1 pages" in text
    for name in summary.STEPS:
        (reports / name).rename(reports / "aside")
        words = rf"{name} is missing.* make {summary.STEPS[name]}"
        with pytest.raises(FileNotFoundError, match=words):
            summary.collect(reports, reports / "book")
        (reports / "aside").rename(reports / name)
