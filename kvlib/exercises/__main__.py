"""The exercises from a command line: grade a notebook, write a course, show what is done."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from kvlib.commands import run


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 whatever the grade, 2 where there is nothing to work on."""
    given = _parser().parse_args(arguments)
    try:
        return int(given.run(given))
    except BrokenPipeError:  # an OSError, but nothing is wrong with the input
        raise
    except (ValueError, OSError) as error:
        print(f"{given.command}: {error}", file=sys.stderr)
        return 2


def _grade(given: argparse.Namespace) -> int:
    from kvlib.exercises.grading import Limits, grade, grade_folder
    from kvlib.exercises.grading.draws import read_hidden

    hidden = None if given.hidden is None else read_hidden(given.hidden)
    limits = Limits(seconds=given.timeout, memory=given.memory, total=given.total)
    how = {
        "chapter": given.chapter,
        "hidden": hidden,
        "limits": limits,
        "all_cells": given.all_cells,
    }
    if given.notebook.is_dir():
        if given.json is not None and given.json.is_file():
            raise ValueError(f"--json {given.json}: of a folder's grades a folder is written")
        grade_folder(given.notebook, given.json, say=print, **how)
        return 0
    result = grade(given.notebook, **how)
    print(result)
    if given.json is not None:
        text = json.dumps(result.asdict(), indent=1, ensure_ascii=False) + "\n"
        given.json.write_text(text, encoding="utf-8")
    return 0


def _course(given: argparse.Namespace) -> int:
    from kvlib.exercises.catalogue import chapters
    from kvlib.exercises.course import build_course

    paths = [given.book / f"{name}.ipynb" for name in given.chapters or chapters()]
    written = build_course(paths, given.out, given.seed, force=given.force)
    print(f"{len(written)} files under {given.out}: read {given.out / 'README.md'}")
    return 0


def _progress(given: argparse.Namespace) -> int:
    from kvlib.exercises.progress import export, progress

    print(progress())
    if given.export is not None:
        print(f"written to {export(given.export)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m kvlib.exercises", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    grade = commands.add_parser("grade", help="grade the exercises of a notebook")
    grade.set_defaults(run=_grade)
    grade.add_argument("notebook", type=Path, help="a notebook, or a folder of them")
    grade.add_argument("--json", type=Path, metavar="FILE", help="write the grade there, too "
                       "(of a folder: a folder, with a grades.csv)")  # fmt: skip
    grade.add_argument("--chapter", help="whose exercises (found from the notebook unless given)")
    grade.add_argument("--hidden", type=Path, metavar="FILE", help="hidden tests of the course")
    grade.add_argument("--timeout", type=float, default=20.0, metavar="S",
                       help="seconds for a statement or a check (20)")  # fmt: skip
    grade.add_argument("--memory", type=int, default=4096, metavar="MB",
                       help="megabytes of address space (4096)")  # fmt: skip
    grade.add_argument("--total", type=float, default=600.0, metavar="S",
                       help="seconds for the whole notebook (600)")  # fmt: skip
    grade.add_argument("--all-cells", action="store_true", help="run every cell, not only what "
                       "the answers need")  # fmt: skip

    course = commands.add_parser("course", help="write notebooks for students and instructors")
    course.set_defaults(run=_course)
    course.add_argument("chapters", nargs="*", help="all of them unless given")
    course.add_argument("--out", type=Path, default=Path("_build/course"), metavar="FOLDER")
    course.add_argument("--book", type=Path, default=Path("book"), metavar="FOLDER")
    course.add_argument("--seed", type=int, help="draw the same hidden tests wherever it is given")
    course.add_argument("--force", action="store_true", help="draw hidden tests anew where there "
                        "are some already")  # fmt: skip

    progress = commands.add_parser("progress", help="show which exercises are done")
    progress.set_defaults(run=_progress)
    progress.add_argument("--export", type=Path, metavar="FILE", help="write it there as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(run(main))
