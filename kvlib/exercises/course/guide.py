"""What stands in the README of a course that was built."""

from kvlib.exercises.grading.draws import UNDRAWN

GUIDE = f"""\
# A course from The KV Cache Book

    student/      one notebook a chapter: text, stubs, visible checks. Hand these out.
    instructor/   the same with solutions and hidden tests, marked as nbgrader wants them.
    hidden/       the numbers that seed the hidden tests. Keep these to yourself.

Students need Python 3.11 or later and kvlib, which is in no package index. Give them the
repository (`git clone` or its archive; then `pip install ".[book]"` in its folder), or a wheel:
`pip wheel . --no-deps` writes `kvlib-<version>-py3-none-any.whl`, and
`pip install "kvlib[book] @ file:///path/to/kvlib-<version>-py3-none-any.whl"` installs it with what
the notebooks import.

`python -m kvlib.exercises course paged` builds one chapter, without a name all of them. The hidden
tests of a chapter are drawn once: a second build keeps the numbers that lie in `hidden/`, unless
`--force` draws others; `--seed 7` draws the same ones everywhere. Only numbers on which the
instructor's own solutions pass are kept.

## Grade without nbgrader

    python -m kvlib.exercises grade handed-in.ipynb --hidden hidden/paged.json --json grade.json

prints a report and writes the same as JSON. A folder in place of the file grades every notebook in
it, one line each: `python -m kvlib.exercises grade folder/ --hidden hidden/paged.json --json out/`
writes `out/<name>.json` for each and `out/grades.csv`.

An exercise counts as many points as it is difficult (1 to 3), all or none. Only what a notebook
defines counts: nothing that it prints. The grader runs what each answer needs, in a process of its
own with limits: `--timeout 20` seconds for a statement or a check, `--memory 4096` megabytes,
`--total 600` seconds for a notebook. A notebook that crashes, loops, prints or fills memory loses
the points of what it broke and nothing else. `--all-cells` runs everything.

Hidden tests are the visible checks with some of their inputs drawn anew, so an answer that knows
only the inputs it was shown fails them. These exercises have none, because their answers take no
input:
{", ".join(sorted(UNDRAWN))}.

A process with limits is no prison: notebooks from people you do not trust belong in a container
or under a user of their own, with no network. What a notebook can do to the grade from inside is
written in `kvlib/exercises/grading/__init__.py`.

## Grade with nbgrader

Copy `instructor/paged.ipynb` to `source/paged/paged.ipynb` of your course and go on as usual
(`nbgrader generate_assignment paged`, ...). Solutions lie between `### BEGIN SOLUTION` and
`### END SOLUTION`, hidden tests between `### BEGIN HIDDEN TESTS` and `### END HIDDEN TESTS`.

This way is not guarded: the hidden tests run in the student's own kernel, after the student's code.
A notebook that replaces a checker, or `kvlib.exercises.grading.passes`, gets all points. Look at
the cells that import from `kvlib.exercises`, or grade the same file with the command above, too.
"""
