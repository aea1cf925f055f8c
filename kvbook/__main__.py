"""Grade a notebook, write course material, or show which exercises you have done."""

import argparse
import difflib
import json
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
        from kvbook.exercises.wording import readable

        missing = getattr(error, "filename", None) if isinstance(error, FileNotFoundError) else None
        said = error if missing is None else f"there is no {missing}"
        print(f"{given.command}: {readable(str(said))}", file=sys.stderr)
        return 2


def _grade(given: argparse.Namespace) -> int:
    from kvbook.grade import grade

    if given.json is not None and not given.json.parent.is_dir():  # said before grading starts
        raise ValueError(f"--json {given.json}: there is no folder {given.json.parent}")
    result = grade(given.notebook, given.chapter, given.timeout, given.memory)
    print(result)
    if given.json is not None:
        text = json.dumps(result.asdict(), indent=1, ensure_ascii=False)
        given.json.write_text(text + "\n", encoding="utf-8")
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
    written = build_course(paths, given.out, given.seed)
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

    grade = commands.add_parser("grade", help="run a notebook and grade its exercises")
    grade.set_defaults(run=_grade)
    grade.add_argument("notebook", type=Path, help="the notebook to grade")
    grade.add_argument("--json", type=Path, metavar="FILE", help="also write the grade as JSON")
    grade.add_argument("--chapter", help="the chapter of the exercises (default: what the "
                       "notebook or its file name says)")  # fmt: skip
    grade.add_argument("--timeout", type=float, default=60.0, metavar="S",
                       help="limit of seconds for each cell or check, and of ten times as many "
                       "for the whole notebook (default: 60)")  # fmt: skip
    grade.add_argument("--memory", type=int, default=4096, metavar="MB",
                       help="limit of the address space in megabytes (default: 4096)")  # fmt: skip

    course = commands.add_parser("course", help="write the chapters as a course for nbgrader")
    course.set_defaults(run=_course)
    course.add_argument("chapters", nargs="*", help="names of chapters (default: all)")
    course.add_argument("--out", type=Path, default=Path("_build/course"), metavar="FOLDER",
                        help="where to write (default: _build/course)")  # fmt: skip
    course.add_argument("--book", type=Path, default=Path("book"), metavar="FOLDER",
                        help="where the chapters are (default: book)")  # fmt: skip
    course.add_argument("--seed", type=int, help="draw the inputs of hidden tests from this "
                        "seed: the same seed always gives the same tests")  # fmt: skip

    progress = commands.add_parser("progress", help="show which exercises you have done")
    progress.set_defaults(run=_progress)
    progress.add_argument(
        "--export", type=Path, metavar="FILE", help="also write the record as JSON"
    )
    return parser


if __name__ == "__main__":
    sys.exit(run(main))
