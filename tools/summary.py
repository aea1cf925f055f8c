"""Print the last page of `make test`: what ran and what it found, counted from the reports.

Each step leaves a report under _build/summary: pytest's unit.xml, notebooks.xml and browser.xml
(JUnit), coverage.json, and mutants.json of the test that lets kvlib's bugs loose. `collect` counts
them once more into summary.json; nothing here is known but what those files say.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "_build" / "summary"
STEPS = {
    "unit.xml": "unit",
    "coverage.json": "unit",
    "mutants.json": "unit",
    "notebooks.xml": "notebooks",
    "browser.xml": "browser",
}


def cases(report: Path) -> list[ET.Element]:
    """Every test of a JUnit report."""
    return list(ET.parse(report).getroot().iter("testcase"))


def outcomes(found: Iterable[ET.Element]) -> dict[str, int]:
    """How many tests passed, failed (errors included) and were skipped."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for case in found:
        if case.find("failure") is not None or case.find("error") is not None:
            counts["failed"] += 1
        elif case.find("skipped") is not None:
            counts["skipped"] += 1
        else:
            counts["passed"] += 1
    return counts


def recorded(found: Iterable[ET.Element], name: str) -> int:
    """The sum of what the tests recorded under a name (pytest's record_property)."""
    return sum(
        int(entry.get("value", "0"))
        for case in found
        for entry in case.iter("property")
        if entry.get("name") == name
    )


def sampled(found: Iterable[ET.Element]) -> dict[str, list[int]]:
    """What was sampled → [how many ran, of how many], from "lives of a cache: 8 of 20"."""
    totals: dict[str, list[int]] = {}
    for case in found:
        for entry in case.iter("property"):
            if entry.get("name") != "sampled":
                continue
            match = re.fullmatch(r"(.+): ([\d,]+) of ([\d,]+)( .+)?", entry.get("value", ""))
            if match is None:
                raise ValueError(f"sampled must read 'what: 8 of 20', got {entry.get('value')!r}")
            total = totals.setdefault(match[1], [0, 0])
            for i in (0, 1):
                total[i] += int(match[2 + i].replace(",", ""))
    return totals


def compared(found: Iterable[ET.Element], book: Path) -> dict[str, int]:
    """Of nbval's cells: notebooks, cells that ran, and those whose outputs were compared."""
    passed = [case for case in found if outcomes([case])["passed"]]
    uncompared: dict[str, set[str]] = {}
    for notebook in sorted(book.glob("*.ipynb")):
        cells = nbformat.read(notebook, as_version=4).cells
        code = [cell for cell in cells if cell.cell_type == "code"]
        uncompared[notebook.stem] = {
            f"Cell {i}"
            for i, cell in enumerate(code)
            if "nbval-ignore-output" in cell.metadata.get("tags", [])
        }
    # nbval names a case by its class, "book.naive.ipynb", and "Cell 3", counted in code cells
    places = [(case.get("classname", "").split(".")[-2], case.get("name")) for case in passed]
    return {
        "notebooks": len({stem for stem, _ in places}),
        "cells": len(places),
        "compared": sum(cell not in uncompared[stem] for stem, cell in places),
    }


def collect(folder: Path, book: Path) -> dict[str, Any]:
    """The numbers of all steps. FileNotFoundError names the step whose report is missing."""
    for name, step in STEPS.items():
        if not (folder / name).exists():
            raise FileNotFoundError(f"{name} is missing, the report of a step. Run: make {step}")
    unit, browser = cases(folder / "unit.xml"), cases(folder / "browser.xml")
    notebooks = cases(folder / "notebooks.xml")
    totals = json.loads((folder / "coverage.json").read_text(encoding="utf-8"))["totals"]
    mutants = json.loads((folder / "mutants.json").read_text(encoding="utf-8"))
    axe = [case for case in browser if "axe_finds_nothing" in case.get("name", "")]
    return {
        "tests": outcomes(unit),
        "schedules": recorded(unit, "schedules"),
        "coverage": {"percent": totals["percent_covered"], "lines": totals["num_statements"]},
        "mutants": {"killed": mutants["killed"], "of": mutants.get("of", mutants.get("total"))},
        "notebooks": compared(notebooks, book) | {"failed": outcomes(notebooks)["failed"]},
        "browser": outcomes(browser) | {"pages": outcomes(axe)["passed"]},
        "sampled": sampled([*unit, *browser]),
    }


def page(numbers: dict[str, Any]) -> str:
    """The numbers as a page of text, one line a subject."""
    tests, notebooks, browser = numbers["tests"], numbers["notebooks"], numbers["browser"]
    coverage, mutants = numbers["coverage"], numbers["mutants"]
    # what failed is said; what passed needs no "0 failed"
    also = {
        name: "".join(f", {part[key]:,} {key}" for key in ("failed", "skipped") if part.get(key))
        for name, part in numbers.items()
        if isinstance(part, dict)
    }
    rows = [
        ("Tests", f"{tests['passed']:,} passed{also['tests']}"),
        ("Coverage", f"{coverage['percent']:.1f} % of {coverage['lines']:,} lines of kvlib"),
        ("Schedules", f"{numbers['schedules']:,} lives of a cache, each equal to the oracle"),
        ("Mutants", f"{mutants['killed']} of {mutants['of']} killed"),
        (
            "Notebooks",
            f"{notebooks['notebooks']} run, {notebooks['cells']:,} cells, "
            f"{notebooks['compared']:,} of them compared with what is committed{also['notebooks']}",
        ),
        (
            "Browser",
            f"{browser['passed']:,} checks passed{also['browser']}; axe-core on "
            f"{browser['pages']} pages",
        ),
    ]
    parts = [(what, n, of) for what, (n, of) in numbers["sampled"].items() if n < of]
    for i, (what, n, of) in enumerate(sorted(parts)):
        rows.append(("" if i else "Sampled", f"{n:,} of {of:,} {what}"))
    if parts:
        rows.append(("", "(KVLIB_TESTS=whole runs all of them, as the weekly workflow does)"))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name:<{width}}  {text}" for name, text in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=FOLDER, help="the folder of the reports")
    folder: Path = parser.parse_args().folder
    try:
        numbers = collect(folder, ROOT / "book")
    except FileNotFoundError as missing:
        print(missing, file=sys.stderr)
        return 1
    (folder / "summary.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    print(page(numbers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
