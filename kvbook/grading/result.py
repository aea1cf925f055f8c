"""What a grader says of a notebook: a verdict on each exercise, and the sum of their points."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from kvbook.grading.text import line, plain


@dataclass
class Verdict:
    """What one exercise got. status is "passed", "not yet", "not done yet", "missing" (nothing of
    that name), "stopped" (a limit, or the process ended) or "not graded" (the time was up)."""

    label: str
    title: str
    of: int
    status: str = "not graded"
    finding: str = ""
    proved: list[str] = field(default_factory=list)

    @property
    def points(self) -> int:
        return self.of if self.status == "passed" else 0


@dataclass
class Grade:
    """Points of a notebook, exercise by exercise, and the cells that went wrong on the way."""

    chapter: str
    verdicts: list[Verdict]
    cells: list[dict[str, Any]]
    seconds: float
    file: str = ""

    def __post_init__(self) -> None:
        """Escape what strangers wrote: nothing of it may reach a terminal or a file as it is."""
        self.file = line(self.file)
        for verdict in self.verdicts:
            verdict.finding = plain(verdict.finding)
            verdict.proved = [line(sentence) for sentence in verdict.proved]
        self.cells = [{k: plain(v) if k != "cell" else v for k, v in c.items()} for c in self.cells]

    @property
    def points(self) -> int:
        return sum(v.points for v in self.verdicts)

    @property
    def of(self) -> int:
        return sum(v.of for v in self.verdicts)

    @property
    def percent(self) -> float:
        return round(100 * self.points / self.of, 1)

    def asdict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return {
            "file": self.file,
            "chapter": self.chapter,
            "points": self.points,
            "of": self.of,
            "percent": self.percent,
            "exercises": [{"points": v.points, **asdict(v)} for v in self.verdicts],
            "cells": self.cells,
            "seconds": round(self.seconds, 2),
        }

    def __str__(self) -> str:
        file = f"{self.file}, " if self.file else ""
        lines = [f"{file}{self.chapter}: {self.points} of {self.of} points, {self.percent:g} %"]
        for v in self.verdicts:
            lines += ["", f"{v.title} ({v.label}): {v.status}, {v.points} of {v.of}"]
            lines += [f"  {line}" for line in v.finding.splitlines()]
        if self.cells:
            lines += ["", "Cells with a remark:"]
            lines += [f"  {c['name']}: {c['remark']}" for c in self.cells]
        return "\n".join(lines)
