"""The museum of bugs that shipped, each rebuilt as a small change to what kvlib does.

    from kvlib.exercises import museum

    museum.exhibits()                          # all of them, by room
    museum.exhibit("stale_prefix")             # what happened, where, what catches it
    with museum.exhibit("stale_prefix").installed():
        ...                                    # kvlib has the bug in here
    museum.score(my_test)                      # how many of them does my test notice?

A bug is a function that is called in place of one of kvlib's, which it is handed. No file is
touched, and the end of the block takes the bug out again. Mutation testing: DeMillo, Lipton &
Sayward, doi:10.1109/C-M.1978.218136.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvlib.exercises.museum.catalogue import Hall, Waiting, exhibit, exhibits, waiting
from kvlib.exercises.museum.checks import (
    check_batch_test,
    check_mask_test,
    check_quiet_bug,
    check_whodunit,
)
from kvlib.exercises.museum.exhibit import ROOMS, Exhibit, Symptom
from kvlib.exercises.museum.mutation import Bug, Change, Mutant, applied
from kvlib.exercises.museum.scoring import SECONDS, Score, Test, score_tests

__all__ = [
    "ROOMS",
    "Bug",
    "Change",
    "Exhibit",
    "Hall",
    "Mutant",
    "Score",
    "Symptom",
    "Waiting",
    "applied",
    "check_batch_test",
    "check_mask_test",
    "check_quiet_bug",
    "check_whodunit",
    "exhibit",
    "exhibits",
    "score",
    "waiting",
]


def score(*tests: Test, of: str | Iterable[str] | None = None, seconds: float = SECONDS) -> Score:
    """How many exhibits do these tests notice?

    tests    functions without arguments that use kvlib and raise where something is wrong; they
             count together
    of       a room, or names of exhibits: all of them unless given
    seconds  what one run of a test may take; a bug that makes it run longer is noticed, too

    A test that fails on healthy code, or that fails there after the bugs are out again, is not
    counted. Raises TypeError for what is not a test, ValueError for a room or a name unknown.
    """
    if not tests:
        raise TypeError("score needs a test, got none")
    if of is None or isinstance(of, str):
        hall = exhibits(of)
    else:
        hall = Hall([exhibit(name) for name in of])
    return score_tests(tests, hall, seconds)
