"""An answer that changes what it was lent is told so, whatever it puts there."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kvbook.exercises.expect import Finding
from kvbook.exercises.guard import guarded


def another_dtype(x: Any) -> None:
    x["array"].dtype = np.int32


def another_shape(x: Any) -> None:
    x["array"].shape = (2, 2)


def another_key(x: Any) -> None:
    x["dict"]["c"] = x["dict"].pop("b")


def another_order(x: Any) -> None:
    x["dict"]["a"] = x["dict"].pop("a")


CHANGES: dict[str, Callable[[Any], Any]] = {
    "a number of an array": lambda x: x["array"].fill(3),
    "the sign of a zero": lambda x: x["array"].__imul__(-1),
    "the dtype of an array": another_dtype, "the shape of an array": another_shape,
    "an array in a list": lambda x: x["list"][2].fill(3),
    "an array in a tuple": lambda x: x["tuple"][1].fill(3),
    "a list in a list": lambda x: x["list"][1].append(3),
    "one entry": lambda x: x["list"].__setitem__(0, 3),
    "an array for a list": lambda x: x["list"].__setitem__(1, np.zeros(2)),
    "an entry removed": lambda x: x["list"].pop(), "all removed": lambda x: x["list"].clear(),
    "a list that holds itself": lambda x: x["list"].append(x["list"]),
    "a value of a dict": lambda x: x["dict"].update(a=3),
    "a key of a dict": another_key, "the order of a dict": another_order,
    "a key removed": lambda x: x["dict"].pop("a"),
    "True for 1": lambda x: x["list"].__setitem__(0, True),
}


def given() -> dict[str, Any]:
    return {
        "array": np.zeros(4, np.float32), "list": [1, [2.0, float("nan")], np.zeros(2)],
        "tuple": (1, np.zeros(2)), "dict": {"a": 1, "b": [2]},
    }


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_noticed(name: str) -> None:
    def answer(**lent: Any) -> int:
        CHANGES[name](lent)
        return 4

    with pytest.raises(Finding, match="of answer was changed in place: copy it first"):
        guarded(answer)(**given())


def test_reading_is_no_change() -> None:
    assert guarded(lambda **lent: len(str(lent)))(**given()) > 0
