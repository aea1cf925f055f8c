"""What a trial of the kit found, in words."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

WIDTH = 72
NEWEST = 8  # actions of a failed schedule that are shown


@dataclass(frozen=True, repr=False)
class Trial:
    """True when nothing failed. seed and actions play the first failure again (see `replay`).

    finding   what was wrong; log: what was done until then; compared: results that were compared
    skipped   what no schedule covered, and what the cache refused to do
    """

    name: str
    schedules: int
    compared: int
    finding: str = ""
    seed: int | None = None
    actions: int = 0
    log: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.finding

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        if self.passed:
            counts = f"{self.schedules} schedules, {self.compared:,} results compared"
            lines = [f"{self.name}: passed", f"  {counts}"]
            if self.skipped:
                lines += _wrapped("not covered: ", ", ".join(self.skipped))
            return "\n".join(lines)
        lines = [f"{self.name}: failed in schedule {self.schedules}"]
        lines += _wrapped("wrong: ", self.finding)
        log = list(self.log[-NEWEST:])
        if len(self.log) > NEWEST:
            log.insert(0, f"({len(self.log) - NEWEST} actions before)")
        lines += _wrapped("after: ", "; ".join(log) or "nothing")
        lines.append(f"  again: seed={self.seed}, actions={self.actions}")
        return "\n".join(lines)


def _wrapped(label: str, text: str) -> list[str]:
    indent = " " * (len(label) + 2)
    return textwrap.wrap(
        text, WIDTH, initial_indent=f"  {label}", subsequent_indent=indent, max_lines=12
    )
