"""The museum of bugs that shipped, each rebuilt as a small change to what kvlib does.

    from kvbook import museum

    museum.exhibits()                          # all exhibits, by topic
    museum.exhibit("stale_prefix")             # what happened, where, what catches it
    with museum.exhibit("stale_prefix").installed():
        ...                                    # kvlib has the bug in here
    museum.score(my_test)                      # how many of them does my test notice?

A bug is a function that runs instead of one of kvlib's functions and receives the original. No
file changes, and the end of the block removes the bug. Mutation testing: DeMillo, Lipton &
Sayward, doi:10.1109/C-M.1978.218136.
"""

from collections.abc import Iterable

from kvbook.museum.catalogue import Hall, exhibit, exhibits
from kvbook.museum.checks import (
    check_batch_test,
    check_mask_test,
    check_quiet_bug,
    check_whodunit,
)
from kvbook.museum.exhibit import TOPICS, Exhibit, Symptom
from kvbook.museum.mutation import Bug, Change, Mutant, applied
from kvbook.museum.scoring import SECONDS, Score, Test, score_tests

__all__ = [
    "TOPICS",
    "Bug",
    "Change",
    "Exhibit",
    "Hall",
    "Mutant",
    "Score",
    "Symptom",
    "applied",
    "check_batch_test",
    "check_mask_test",
    "check_quiet_bug",
    "check_whodunit",
    "exhibit",
    "exhibits",
    "score",
]


def score(*tests: Test, of: str | Iterable[str] | None = None, seconds: float = SECONDS) -> Score:
    """How many exhibits do these tests notice?

    tests    functions without arguments that use kvlib and raise where something is wrong; a bug
             counts as killed if one of them notices it
    of       a topic, or names of exhibits; all exhibits unless given
    seconds  how long one run of a test may take; a bug that makes it run longer is killed, too

    A test that fails on healthy code, before the bugs or after them, is not counted. Raises
    TypeError if a test is not a function without arguments, ValueError for an unknown topic or
    exhibit.
    """
    if not tests:
        raise TypeError("score needs at least one test, got none.")
    if of is None or isinstance(of, str):
        hall = exhibits(of)
    else:
        hall = Hall([exhibit(name) for name in of])
    return score_tests(tests, hall, seconds)
