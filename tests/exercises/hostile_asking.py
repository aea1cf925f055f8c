"""Ask a checker about an answer, and see that its report is fit to be read."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from effort import LEVEL, Effort
from hostile_values import VALUES
from test_hidden_draws import solved

from kvbook.exercises.catalogue import Exercise, exercises
from kvbook.exercises.plain import plain
from kvbook.exercises.report import Finding, Report

METHODS = {
    "FreeList": ("allocate", "free"),
    "LayerCache": ("append", "attend"),
    "States": ("append", "read", "truncate"),
}
CUDA = ("gpu-split-range", "gpu-shared-heads")
COMPILED = ("text", "surrogate")  # the texts that are compiled, because a compiler costs seconds
OF_TEXT = {name for name in VALUES if "text" in name or name in ("surrogate", "escape codes")}
# Answers that change an argument because that is their work.
CHANGING = {"batched-append-rows", "paged-append", "prefixes-append-key"}
ANY_KEY = "prefixes-block-keys"  # one key may be any other, if no block has it
NO_RESULT = ("museum-mask-test", "museum-batch-test")  # what these return counts for nothing
NESTED = "each thing in a list"  # the right tokens, in a shape of (1, n)
TAKEN = {
    *(("cached-decode", NESTED), ("cached-reuse", NESTED), ("speculative-rollback", NESTED)),
    # 3 tokens per second of 100,000, within the tolerance of norms that may be counted or not
    *(("roofline-ceiling", "numbers off by 3"),),
    *(("roofline-ceiling", "numbers off by 3 that claim to be right"),),
}
# Of RIGHT, what a task excludes: by a dtype that it states, because it asks for arrays, or because
# digits are what it is about. The checker must refuse these, in words that name it.
FLOAT32 = {
    *("naive-causal-attention", "naive-grouped-attention", "cached-layer_cache", "paged-decode"),
    *("prefixes-cascade", "quantized-int8_codes", "windows-keep-sinks", "latent-absorbed"),
    "latent-snapshots",
}
BYTES = {"quantized-int8_codes", "quantized-fixed_codes", "quantized-to_kvlib_order"}
ARRAYS = {"naive-window-mask", "batched-pack", "batched-packed-mask", "chunked-chunk-mask"}
EXCLUDED: dict[str, tuple[set[str], str]] = {
    "float64": (FLOAT32, "float64, needed float32"),
    "int32": (BYTES, "int32, needed int8|int32, needed uint8"),
    "uint64": (BYTES, "uint64, needed uint8"),
    "uint8": ({"paged-slot-mapping"}, "uint8, which ends at 255"),
    "lists for arrays": (FLOAT32 | BYTES | ARRAYS, "needed a NumPy array|needed float32"),
    "scalars of 32 bits": ({"layernorm-merge_moments"}, "expected"),  # a mean of 1e8 and its digits
    "a rounding off": ({"latent-snapshots"}, "needed"),  # copies are exact
}
BY = {e.label: e for e in exercises()}


# These take a tenth of a second for a right answer, and get one name in six.
COSTLY = (
    *("museum-quiet-bug", "museum-whodunit", "museum-batch-test"),
    *("paged-decode", "prefixes-block-keys", "batched-serve"),
)


def checked(table: Mapping[str, Any], name: str, effort: Effort) -> Iterator[Exercise]:
    """The exercises that get the value of this name: all of them in the weekly run.

    Usually one exercise in three, other ones for the next name, so that each value is given to a
    third of the checkers and each checker is given a third of the values.
    """
    place, asked = list(table).index(name), 0
    for i, exercise in enumerate(exercises()):
        costly = exercise.label in COSTLY
        turn = COSTLY.index(exercise.label) if costly else i
        if LEVEL == "whole" or (place - turn) % (6 if costly else 3) == 0:
            asked += 1
            yield exercise
    effort.ran("hostile values by checkers", asked, len(exercises()))


def asked(exercise: Exercise, answer: Any) -> Report:
    """The checker's report; whatever it raises fails the test, warnings included."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = exercise.check()(answer)
    assert isinstance(report, Report)
    return report


def refused(exercise: Exercise, answer: Any) -> None:
    report = asked(exercise, answer)
    assert report.status in ("not yet", "not done yet"), f"{exercise.label} passed"
    words(exercise, report)


def words(exercise: Exercise, report: Report) -> None:
    """The finding is a sentence of a sensible length that any file and terminal can take."""
    said = report.finding
    assert 10 <= len(said) <= 4100, f"{exercise.label}: {said[:200]!r}"
    assert "mistake of the checker" not in said, f"{exercise.label}: {said}"
    assert " at 0x" not in said, f"{exercise.label}: {said}"
    said.encode()
    assert all(c.isprintable() or c == "\n" for c in said), f"{exercise.label}: {said!r}"
    assert repr(report).startswith(exercise.checker.removeprefix("check_"))


def returning(exercise: Exercise, make: Callable[[], Any]) -> Any:
    """An answer that returns the value; of an exercise for a class, all of its methods do."""

    def answer(*args: Any, **kwargs: Any) -> Any:
        return make()

    return in_its_form(exercise, answer)


def in_its_form(exercise: Exercise, answer: Any) -> Any:
    if exercise.name not in METHODS:
        return answer
    methods = dict.fromkeys(METHODS[exercise.name], lambda self, *args: answer(*args))
    return type(exercise.name, (), {"__init__": lambda self, *args: None, **methods})


def around(exercise: Exercise, change: Callable[[Any, tuple[Any, ...]], Any]) -> Any:
    """The right answer, with what it returns passed through change(result, arguments)."""
    right = solved(exercise.chapter)[exercise.name]
    if exercise.name not in METHODS:
        return lambda *args, **kwargs: change(right(*args, **kwargs), (*args, *kwargs.values()))

    def method(name: str) -> Any:
        own = getattr(right, name)
        return lambda self, *args: change(own(self, *args), args)

    return type(exercise.name, (right,), {n: method(n) for n in METHODS[exercise.name]})


def what(x: Any) -> Any:
    """x as lists of floats and texts, to tell whether a lie is one: 4 and array(4.0) are equal."""
    try:
        return same_for_all_clothes(plain(x, "it"))
    except Finding:
        return "no plain data"


def same_for_all_clothes(x: Any) -> str:
    if isinstance(x, np.ndarray):
        x = x.tolist()
    if isinstance(x, list | tuple):
        return str([same_for_all_clothes(y) for y in x])
    if isinstance(x, dict):
        return str({key: same_for_all_clothes(value) for key, value in x.items()})
    number = isinstance(x, int | float) and not isinstance(x, bool)
    return repr(float(x) + 0.0) if number else repr(x)
