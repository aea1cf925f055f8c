"""Bugs that a reader cannot have meant: `check_quiet_bug` says in words what is wrong with them."""

from __future__ import annotations

from typing import Any

import pytest
from hostile_types import EqualText, Raises

from kvbook.museum import Bug, Change, Mutant, check_quiet_bug

PLACE = ("kvlib.attention.causal", "attend_causal")


def harmless(original: Any, *args: Any, **settings: Any) -> Any:
    return original(*args, **settings)


class Unequal(Bug):
    """A bug that cannot be compared or hashed."""

    def __eq__(self, other: Any) -> bool:
        raise RuntimeError("no ==")

    def __hash__(self) -> int:
        raise RuntimeError("no hash")


class Leaves(Change):
    """A change of another kind, which ends the process."""

    def code_for(self, target: Any) -> Any:
        raise SystemExit(3)


def bug(name: Any = "mine", module: Any = PLACE[0], function: Any = PLACE[1]) -> Any:
    return Bug(name, module, function, harmless)


NO_BUGS: dict[str, tuple[Any, str]] = {
    "a change of no kind": (Change("mine", *PLACE), "returned a Change. It has to return"),
    "a change of its own kind": (Leaves("mine", *PLACE), "returned a Leaves. It has to return"),
    "a bug that cannot be compared": (Unequal("mine", *PLACE, harmless), "No test of the museum"),
    "a bug without fields": (object.__new__(Bug), "name of the bug must be a string, got None"),
    "a name that is a list": (bug(["mine"]), "name of the bug must be a string, got ['mine']"),
    "a name that raises": (bug(Raises()), "name of the bug must be a string, got Raises"),
    "a module that is a number": (bug(module=5), "module of the bug must be a string, got 5 (int)"),
    "no module": (bug(module=None), "module of the bug must be a string, got None"),
    "an empty module": (bug(module=""), "must change a module of kvlib, got ''"),
    "a relative module": (bug(module=".causal"), "must change a module of kvlib, got '.causal'"),
    "a module outside kvlib": (bug(module="json"), "must change a module of kvlib, got 'json'"),
    "a module with a null byte": (bug(module="kvlib.\0"), "No module named 'kvlib.\\x00'"),
    "a module of 100,000 letters": (bug(module="kvlib." + "x" * 10**5), "No module named"),
    "a module that equals all": (bug(module=EqualText("kvlib.caches")), "no function attend"),
    "a function that is a number": (bug(function=5), "function of the bug must be a string"),
    "no function": (bug(function=None), "function of the bug must be a string, got None"),
    "a class": (bug(module="kvlib.caches", function="DenseCache"), "no function DenseCache"),
    "a bug that is a number": (Bug("mine", *PLACE, 5), "must be a function"),  # type: ignore
    "a mutant of numbers": (Mutant("mine", *PLACE, 1, 2), "old of the bug must be"),  # type: ignore
    "a mutant of nothing": (Mutant("mine", *PLACE, "", ""), "stands"),
    "a mutant with a null byte": (Mutant("mine", *PLACE, "from __future__", "\0"), "cannot be"),
}


@pytest.mark.parametrize("name", NO_BUGS)
def test_what_is_no_bug_of_kvlib_is_refused_in_words(name: str) -> None:
    mutant, words = NO_BUGS[name]
    report = check_quiet_bug(lambda: mutant)
    assert report.status == "not yet" and words in report.finding, report
    assert "mistake of the checker" not in report.finding
