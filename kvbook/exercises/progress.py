"""What a reader has done, kept between sessions in one small file.

Checkers write it when they run in a notebook. `progress()` shows it, `export(path)` copies it.

The file is `progress.json` in kvlib's folder among the user's data (Linux: ~/.local/share/kvlib).
The environment variable KVLIB_PROGRESS names another file, or is "off": then nothing is kept.
The rendered pages keep a separate record, in the browser; what they export has the same form.
"""

import json
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from kvbook.exercises.catalogue import Exercise, exercises
from kvbook.exercises.wording import name_of

__all__ = ["Progress", "export", "note", "path", "progress"]
Entries = dict[str, dict[str, Any]]
WIDTH = 40  # of a title in the table


def path() -> Path | None:
    """Where progress is kept; None where it is not, or where the user has no home."""
    try:
        return _named()
    except RuntimeError:  # a user without a home, as in some containers
        return None


def _named() -> Path | None:
    said = os.environ.get("KVLIB_PROGRESS", "")
    if said:
        return None if said.lower() == "off" else Path(said).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return base / "kvlib" / "progress.json"


@dataclass(frozen=True, repr=False)
class Progress:
    """Which exercises were passed and tried; its repr is a table.

    entries: by label, {"tries": number of checks, "passed": the day it first passed}
    """

    entries: Entries

    @property
    def done(self) -> tuple[Exercise, ...]:
        """The exercises that passed, in the order of the book."""
        return tuple(e for e in exercises() if self.entries.get(e.label, {}).get("passed"))

    def asdict(self) -> dict[str, Any]:
        return {"version": 1, "exercises": self.entries}

    def __repr__(self) -> str:
        lines, chapter = [f"{'':<{WIDTH + 3}} difficulty  minutes  tries  passed"], ""
        for e in exercises():
            entry = self.entries.get(e.label, {})
            if e.chapter != chapter:
                chapter = e.chapter
                lines.append(chapter)
            title = e.title if len(e.title) <= WIDTH else e.title[: WIDTH - 3] + "..."
            passed = entry.get("passed") or ""
            line = f"  {title:<{WIDTH}} {e.difficulty:>11} {e.minutes:>8} "
            lines.append(f"{line}{entry.get('tries', 0) or '':>6}  {passed}".rstrip())
        points = sum(e.points for e in self.done)
        every = sum(e.points for e in exercises())
        count = f"{len(self.done)} of {len(exercises())} exercises"
        return "\n".join([*lines, f"done: {count}, {points} of {every} points"])


def progress() -> Progress:
    """What was done so far."""
    return Progress(_read(path()))


def export(to: Path | str) -> Path:
    """Write the progress to the file that you name, as JSON; return its path.

    FileExistsError where there is one already.
    """
    to = Path(to)
    with open(to, "x", encoding="utf-8") as file:
        json.dump(progress().asdict(), file, indent=1)
    return to


def note(checker: str, answer: Any, status: str) -> None:
    """Keep what a checker found, if the answer is the reader's own and there is somewhere to.

    checker: its name. The page's solution has another name than the exercise, so running it does
    not count as solving it. A disk that cannot be written must not stop a check, so nothing is
    raised.
    """
    file = path() if _kept() else None
    found = next((e for e in exercises() if e.checker == checker), None)
    if file is None or found is None or status not in ("passed", "not yet"):
        return
    if name_of(answer) != found.name:
        return
    with suppress(OSError):
        entries = _read(file)
        entry = entries.setdefault(found.label, {})
        entry["tries"] = int(entry.get("tries", 0)) + 1
        if status == "passed" and not entry.get("passed"):
            entry["passed"] = date.today().isoformat()
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(f".{os.getpid()}.new")
        new.write_text(json.dumps(Progress(entries).asdict(), indent=1), encoding="utf-8")
        new.replace(file)


def _kept() -> bool:
    """Whether this is a notebook, or a file was asked for by name."""
    if os.environ.get("KVLIB_PROGRESS"):
        return True
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


def _read(file: Path | None) -> Entries:
    """The entries of a file that is ours; a file that is broken is put aside, not overwritten."""
    if file is None:
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))["exercises"]
        return {str(label): dict(entry) for label, entry in found.items()}
    except OSError:  # there is none yet, or it cannot be read
        return {}
    except (ValueError, KeyError, TypeError, AttributeError):
        with suppress(OSError):
            file.replace(file.with_suffix(".broken"))
        return {}
