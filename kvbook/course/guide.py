"""The text of the README that `make course` writes beside the notebooks."""

from kvbook.grading.draws import UNDRAWN

GUIDE = f"""\
# A course from The KV Cache Book

    student/      one notebook per chapter: text, stubs, visible checks. Hand these out.
    instructor/   the same with solutions and hidden tests, marked for nbgrader.
    hidden/       the numbers that seed the hidden tests. Keep these to yourself.

Students need Python 3.11 or later and kvlib, which is in no package index. Give them one of two
things:

- the repository (by `git clone`, or as an archive). They run `pip install ".[book]"` in its folder;
- a wheel, which `pip wheel . --no-deps` writes as `kvlib-<version>-py3-none-any.whl`. They run
  `pip install "kvlib[book] @ file:///path/to/kvlib-<version>-py3-none-any.whl"`, which also
  installs what the notebooks import.

`python -m kvbook course paged` builds one chapter; without a name it builds all of them.
The hidden tests of a chapter are drawn once, so a second build keeps the numbers in `hidden/`.
With `--force` it draws new ones, and with `--seed 7` it draws the same ones on every machine. A
build keeps only numbers with which the book's own solutions pass.

## Grade without nbgrader

    python -m kvbook grade handed-in.ipynb --hidden hidden/paged.json --json grade.json

prints a report, and writes it as JSON, too. Give a folder instead of the file to grade every
notebook in it: `python -m kvbook grade folder/ --hidden hidden/paged.json --json out/`
prints one line per notebook, and writes `out/<name>.json` for each and `out/grades.csv`.

An exercise counts as many points as its difficulty (1 to 3), all or none. What a notebook defines
counts; what it prints does not. The grader runs the cells that each answer needs, in a process of
its own with limits: `--timeout 20` seconds per statement or check, `--memory 4096` megabytes, and
`--total 600` seconds per notebook. A notebook that crashes, loops, prints or fills memory loses
only the points of the exercises that it broke. `--all-cells` runs all cells.

Hidden tests are the visible checks with other inputs, drawn at random. So an answer that works only
for the visible inputs fails them. Some exercises have none, because their answers take no input:
{", ".join(sorted(UNDRAWN))}.

On Linux, install bubblewrap (the command `bwrap`): then the notebook's code runs without a network
and without your files. The grader says so if it cannot use it; with `--sandbox on` it refuses to
grade then. Without it, grade notebooks from people you do not trust in a container or under a user
account of its own. kvlib's SECURITY.md states what is promised with and without it.

## Grade with nbgrader

Copy `instructor/paged.ipynb` to `source/paged/paged.ipynb` of your course, and continue as usual
(`nbgrader generate_assignment paged`, ...). Solutions lie between `### BEGIN SOLUTION` and
`### END SOLUTION`, hidden tests between `### BEGIN HIDDEN TESTS` and `### END HIDDEN TESTS`.

This way has no guard: the hidden tests run in the student's own kernel, after the student's code.
A notebook that replaces a checker, or `kvbook.grading.passes`, gets all points. So
look at the cells that import from `kvbook.exercises`, or grade the file with the command above,
too.
"""
