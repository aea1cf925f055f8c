"""What stands in the README of a course that was built."""

GUIDE = """\
# A course from The KV Cache Book

    student/      one notebook a chapter: text, stubs, visible checks. Hand these out.
    instructor/   the same with solutions and hidden tests, marked as nbgrader wants them.
    hidden/       the numbers that seed the hidden tests. Keep these to yourself.

Students need Python 3.11 or later and `pip install "kvlib[book]"`.

## Grade without nbgrader

    python -m kvlib.exercises grade handed-in.ipynb --hidden hidden/paged.json --json grade.json

prints a report and writes the same as JSON. An exercise counts as many points as it is difficult
(1 to 3), all or none. The grader runs what each answer needs, in a process of its own with limits
(`--timeout` seconds, `--memory` megabytes); a notebook that crashes, loops, prints or fills
memory loses the points of what it broke and nothing else. `--all-cells` runs everything.

Hidden tests are the visible checks on other random inputs, so an answer that knows only the
inputs it was shown fails them.

A process with limits is no prison: notebooks from people you do not trust belong in a container
or under a user of their own, with no network. What a notebook can do to the grade from inside is
written in `kvlib/exercises/grading/__init__.py`.

## Grade with nbgrader

Copy `instructor/paged.ipynb` to `source/paged/paged.ipynb` of your course and go on as usual
(`nbgrader generate_assignment paged`, ...). Solutions lie between `### BEGIN SOLUTION` and
`### END SOLUTION`, hidden tests between `### BEGIN HIDDEN TESTS` and `### END HIDDEN TESTS`.
"""
