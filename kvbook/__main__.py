"""Grade a notebook, write course material, or show which exercises you have done."""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path

from kvlib.commands import add_version, run


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 whatever the grade, 2 if the input cannot be used."""
    given = _parser().parse_args(arguments)
    try:
        return int(given.run(given))
    except BrokenPipeError:  # an OSError, but nothing is wrong with the input
        raise
    except (ValueError, OSError) as error:
        from kvbook.grading.text import plain

        missing = getattr(error, "filename", None) if isinstance(error, FileNotFoundError) else None
        said = error if missing is None else f"there is no {missing}"
        print(f"{given.command}: {plain(said)}", file=sys.stderr)
        return 2


def _grade(given: argparse.Namespace) -> int:
    from kvbook.grading import Limits, grade, grade_folder
    from kvbook.grading.draws import read_hidden
    from kvbook.grading.folder import write_json
    from kvbook.grading.sandbox import UNWALLED
    from kvbook.grading.sandbox import chosen as sandboxed

    hidden = None if given.hidden is None else read_hidden(given.hidden)
    limits = Limits(seconds=given.timeout, memory=given.memory, total=given.total)
    how = {
        "chapter": given.chapter,
        "hidden": hidden,
        "limits": limits,
        "all_cells": given.all_cells,
        "sandbox": given.sandbox,
    }
    if not sandboxed(given.sandbox) and given.notebook.exists():
        print(UNWALLED, file=sys.stderr)
    if given.notebook.is_dir():
        if given.json is not None and given.json.is_file():
            raise ValueError(
                f"--json must name a folder when a folder is graded, got the file {given.json}"
            )
        grade_folder(given.notebook, given.json, say=print, **how)
        return 0
    if given.json is not None and not given.json.parent.is_dir():  # said before grading starts
        raise ValueError(f"--json {given.json}: there is no folder {given.json.parent}")
    result = grade(given.notebook, **how)
    print(result)
    if given.json is not None:
        write_json(result, given.json)
    return 0


def _course(given: argparse.Namespace) -> int:
    from kvbook.course import build_course
    from kvbook.exercises.catalogue import chapters

    names = dict.fromkeys(given.chapters or chapters())  # each once
    paths = [given.book / f"{name}.ipynb" for name in names]
    for name, path in zip(names, paths, strict=True):
        if not path.is_file():
            near = difflib.get_close_matches(name, chapters(), 1)
            hint = f"; did you mean {near[0]}?" if near else f", needed: {', '.join(chapters())}"
            raise ValueError(f"there is no chapter {path}{hint}")
    written = build_course(paths, given.out, given.seed, force=given.force)
    print(f"{len(written)} files written to {given.out}. Read {given.out / 'README.md'} next.")
    return 0


def _progress(given: argparse.Namespace) -> int:
    from kvbook.exercises.progress import export, progress

    print(progress())
    if given.export is not None:
        print(f"written to {export(given.export)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m kvbook", description=__doc__)
    add_version(parser)
    commands = parser.add_subparsers(dest="command", required=True)

    grade = commands.add_parser("grade", help="grade the exercises of a notebook")
    grade.set_defaults(run=_grade)
    grade.add_argument(
        "notebook", type=Path, help="the notebook to grade, or a folder of notebooks"
    )
    grade.add_argument("--json", type=Path, metavar="FILE", help="also write the grade as JSON; "
                       "when you grade a folder, name a folder here, "
                       "which also gets a grades.csv")  # fmt: skip
    grade.add_argument("--chapter", help="the chapter of the exercises (default: the one "
                       "that the notebook belongs to)")  # fmt: skip
    grade.add_argument("--hidden", type=Path, metavar="FILE", help="a file of hidden tests, "
                       "which lies in the hidden/ folder of the course")  # fmt: skip
    grade.add_argument("--timeout", type=float, default=20.0, metavar="S",
                       help="limit of seconds for each statement or check "
                       "(default: 20)")  # fmt: skip
    grade.add_argument("--memory", type=int, default=4096, metavar="MB",
                       help="limit of the address space in megabytes (default: 4096)")  # fmt: skip
    grade.add_argument("--total", type=float, default=600.0, metavar="S",
                       help="limit of seconds for the whole notebook (default: 600)")  # fmt: skip
    grade.add_argument("--all-cells", action="store_true", help="run every cell, not only "
                       "those that the answers need")  # fmt: skip

    grade.add_argument("--sandbox", choices=("auto", "on", "off"), default="auto", help="run the "
                       "notebook's code in a sandbox, bubblewrap (auto: if it works)")  # fmt: skip

    course = commands.add_parser("course", help="write notebooks for students and for instructors")
    course.set_defaults(run=_course)
    course.add_argument("chapters", nargs="*", help="names of chapters (default: all)")
    course.add_argument("--out", type=Path, default=Path("_build/course"), metavar="FOLDER",
                        help="where to write (default: _build/course)")  # fmt: skip
    course.add_argument("--book", type=Path, default=Path("book"), metavar="FOLDER",
                        help="where the chapters are (default: book)")  # fmt: skip
    course.add_argument("--seed", type=int, help="draw hidden tests from this seed: the same "
                        "seed always gives the same tests")  # fmt: skip
    course.add_argument("--force", action="store_true", help="draw new hidden tests, even if "
                        "there are some already")  # fmt: skip

    progress = commands.add_parser("progress", help="show which exercises you have done")
    progress.set_defaults(run=_progress)
    progress.add_argument(
        "--export", type=Path, metavar="FILE", help="also write the record as JSON"
    )
    return parser


if __name__ == "__main__":
    if "grade" in sys.argv[1:2]:  # notebooks could look for hidden tests in this process
        from kvbook.grading.walls import hide_arguments, unreadable

        hide_arguments()
        unreadable()
    sys.exit(run(main))
