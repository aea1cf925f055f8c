"""An exercise as a record: the right answer, what is asked of an answer, and known mistakes.

    def pages(tokens, size):
        \"\"\"pages(tokens, size) → how many pages of `size` tokens hold `tokens`.\"\"\"
        return -(-tokens // size)

    check_pages = Checker(
        pages,
        stages={
            "full pages": [(8, 4), (12, 4)],
            "a last page that isn't full": [(9, 4), (1, 16)],
        },
        mistakes={
            "the last page isn't full, but it is a page": "-(-tokens // size) → tokens // size",
            "after a full page, no other begins": lambda tokens, size: tokens // size + 1,
        },
    )

`check_pages(mine)` asks the learner's function and the right one the same, stage by stage. At the
first difference it looks for the mistake that gives the learner's results.
"""

import copy
import inspect
import math
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import islice, takewhile
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from kvbook.exercises.expect import (
    Finding,
    expect_array,
    expect_close,
    expect_dtype,
    expect_equal,
    expect_shape,
)
from kvbook.exercises.guard import NotDone, guarded
from kvbook.exercises.received import integers, number, numbers, token_list
from kvbook.exercises.report import Report, judged
from kvbook.exercises.wording import apart

Seen = tuple[Any, ...]  # (what was asked, the result) or (what, result, why), all of one answer
Probe = Callable[[Any], Iterator[Seen]]
NONE: Mapping[str, Any] = MappingProxyType({})
AXES = dict(B="request", T="token", R="row", S="key", H="head", Hq="head", Hkv="kv head", D="dim")


class Shows(NamedTuple):
    """A mistake whose numbers depend on how it was written: shows(got, needed) recognises it."""

    answer: Any
    shows: Callable[[Any, Any], bool]


class Draws(NamedTuple):
    """Arguments that are drawn: make(generator) returns a list of them, for one call each."""

    make: Callable[[np.random.Generator], Iterable[Any]]
    seed: int = 0


class Checker:
    """`check(answer)` returns a `Report` on a learner's answer.

    right      a right answer, with the task in its docstring: a function, or a class if learners
               write one. Of a class, a probe gets a function that makes an object, whose methods
               are guarded.
    stages     {"what a right answer has proved": a list of arguments for one call each, `Draws`, or
               a probe}. A probe is a generator function that is given an answer. It asks what it
               likes and yields (what, result), or (what, result, why) to say why in words. It may
               raise a Finding that quotes the results, and return a sentence for the stage.
    mistakes   {"the sentence that diagnoses it": a wrong answer}. That is a function (a class), or
               an edit of the right one: "old text → new text", or a tuple of edits. A list holds
               several wrong answers that share a sentence. A learner reads the sentence if their
               answer and the wrong one pass the same stages, and then give the same results.
    refused    the same, {"a part of the words in which a stage refuses it": a wrong answer}
    name       in the report and the catalogue, if it isn't that of `right`
    names      of the results in a tuple, which are compared one by one
    letters    the axes of arrays: "T H D"
    typed      arrays need the dtype of the right ones. Without it, lists will do as well.
    rtol, atol of arrays. A float that is no array must agree to 1e-6 unless rtol is given.
    modifies   names of functions or methods whose work is to change an argument
    no_result  names of those that return nothing
    """

    def __init__(
        self,
        right: Any,
        *,
        stages: Mapping[str, Probe | Draws | Sequence[tuple[Any, ...]]],
        mistakes: Mapping[str, Any] = NONE,
        refused: Mapping[str, Any] = NONE,
        name: str = "",
        names: Sequence[str] = (),
        letters: str = "",
        typed: bool = False,
        rtol: float | None = None,
        atol: float = 1e-5,
        modifies: Sequence[str] = (),
        no_result: Sequence[str] = (),
    ) -> None:
        self.right, self.stages, self.mistakes, self.refused = right, stages, mistakes, refused
        self.name, self.names, self.letters = name or right.__name__, names, letters
        self.typed, self.rtol, self.atol = typed, rtol, atol
        self.modifies, self.no_result = modifies, no_result
        self.__name__, self.__doc__ = f"check_{self.name}", right.__doc__

    def __call__(self, answer: Any) -> Report:
        wants = "class" if isinstance(self.right, type) else "function"
        return judged(self.name, self._proved, answer, wants)

    def wrong(self, mistakes: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """The words and the answer of each mistake."""
        for words, answers in mistakes.items():
            for wrong in answers if type(answers) is list else [answers]:
                yield words, self._wrong(wrong)

    def _wrong(self, wrong: Any) -> Any:
        if isinstance(wrong, Shows):
            return Shows(self._wrong(wrong.answer), wrong.shows)
        edits = (wrong,) if isinstance(wrong, str) else wrong
        return edited(self.right, edits) if type(edits) is tuple else wrong

    def _proved(self, answer: Any) -> Iterator[str]:
        learner = self._guarded(answer)
        for sentence, probe in self.stages.items():
            pairs, results = self._pairs(probe, learner), list[Any]()
            while True:
                try:
                    what, got, needed, *why = next(pairs)
                except StopIteration as end:
                    yield end.value or sentence
                    break
                results.append(got)
                try:
                    self._compare(got, needed, what, *why)
                except Finding as difference:
                    words = self._diagnosis(probe, results, needed, pairs)
                    if words and not isinstance(needed, np.ndarray):
                        self._compare(got, needed, what, words)
                    raise Finding(f"{what}: {words}") if words else difference from None

    def _pairs(self, probe: Any, answer: Any) -> Iterator[Seen]:
        """(what, result, the right result), maybe with why, and of a tuple each part.

        Returns the sentence that the probe returns.
        """
        seen, right = self._seen(probe, answer), self._seen(probe, self._guarded(self.right))
        while True:
            try:
                what, got, *why = next(seen)
            except StopIteration as end:
                return end.value
            needed = next(right)[1]
            if not isinstance(needed, tuple):
                yield what, got, needed, *why
                continue
            got = parts(got, what, self.names)
            for name, x, y in zip(self.names, got, needed, strict=True):
                yield f"{what}, {name}", x, y, *why

    def _seen(self, probe: Any, answer: Any) -> Iterator[Seen]:
        if callable(probe):
            return (yield from probe(answer))
        draws = isinstance(probe, Draws)
        for args in probe.make(np.random.default_rng(probe.seed)) if draws else probe:
            what = f"{self.name}({', '.join(map(repr, args))})"
            yield what, answer(*copy.deepcopy(args))

    def _diagnosis(self, probe: Any, results: list[Any], needed: Any, rest: Iterator[Seen]) -> str:
        """The words of a mistake that gives these results, and right ones in the stages before.

        If there are several, of the first that also gives the rest of the stage's results, if any.
        """
        fitting = list[tuple[str, Any]]()
        for words, wrong in self.wrong(self.mistakes):
            if isinstance(wrong, Shows):
                fits = wrong.shows(results[-1], needed)
            else:
                fits = self._gives(wrong, probe, results) and self._passes_before(wrong, probe)
            if fits:
                fitting.append((words, wrong))
        if len({words for words, _ in fitting}) > 1:
            with suppress(Exception):
                for _, got, *_ in rest:
                    results.append(got)
            shows = [x for x in fitting if isinstance(x[1], Shows)]
            fitting = [x for x in fitting if self._gives(x[1], probe, results)] or shows
        return fitting[0][0] if fitting else ""

    def _gives(self, wrong: Any, probe: Any, results: list[Any]) -> bool:
        try:
            seen = list(islice(self._pairs(probe, self._guarded(wrong)), len(results)))
        except Exception:  # the mistake gets an error here, and the learner's answer got none
            return False
        alike = [self._alike(x, got) for x, (_, got, *_) in zip(results, seen, strict=False)]
        right = [self._alike(got, needed) for _, got, needed, *_ in seen]
        return len(alike) == len(results) and all(alike) and not all(right)

    def _passes_before(self, wrong: Any, probe: Any) -> bool:
        try:
            for before in takewhile(lambda x: x is not probe, self.stages.values()):
                seen = self._pairs(before, self._guarded(wrong))
                if not all(self._alike(got, needed) for _, got, needed, *_ in seen):
                    return False
        except Exception:
            return False
        return True

    def _compare(self, got: Any, needed: Any, what: str, why: str = "", typed: Any = None) -> None:
        """Raise a Finding unless `got` is as good as `needed`, which says what kind is needed."""
        if isinstance(needed, np.ndarray):
            typed = self.typed if typed is None else typed
            kind = integers if needed.dtype.kind in "iu" else numbers
            array = expect_array(got, what) if typed else kind(got, what)
            letters = self.letters if len(self.letters.split()) == needed.ndim else ""
            expect_shape(array, needed.shape, what, letters=letters)
            if typed or needed.dtype == bool:
                expect_dtype(array, needed.dtype, what)
            rtol, axes = self.rtol or 1e-4, tuple(AXES.get(x, x) for x in letters.split())
            expect_close(array, needed, what, axes=axes, rtol=rtol, atol=self.atol, why=why)
        elif isinstance(needed, int | float) and not isinstance(needed, bool):
            value, exact = number(got, what), isinstance(needed, int)
            close = math.isclose(value, needed, rel_tol=self.rtol or 1e-6)
            close = close or (math.isnan(value) and math.isnan(needed))
            if value != needed and (exact or not close):
                said = (got, needed) if exact else apart(value, needed, ".6g")
                raise Finding(f"{what}: got {said[0]}, needed {said[1]}{f': {why}' * bool(why)}")
        elif isinstance(needed, list) and all(type(x) is int for x in needed):
            expect_equal(token_list(got, what, "integers"), needed, what, why=why)
        elif isinstance(got, str) and isinstance(needed, str):
            if got != needed:
                raise Finding(f"{what}: got {got}, needed {needed}{f': {why}' * bool(why)}")
        else:
            expect_equal(got, needed, what, why=why)

    def _alike(self, got: Any, other: Any) -> bool:
        """Whether two results are the same but for their dtype."""
        try:
            self._compare(got, other, "", typed=False)
        except Finding:
            return False
        return True

    def _guarded(self, answer: Any) -> Any:
        if not isinstance(self.right, type):
            return guarded(answer, **self._settings(self.name))
        make = guarded(answer, may_return_none=True)
        return lambda *args: _Guarded(make(*args), self.right.__name__, self._settings)

    def _settings(self, name: str) -> dict[str, Any]:
        return {"may_modify": name in self.modifies, "may_return_none": name in self.no_result}


class _Guarded:
    """An object of a learner's class, with its methods guarded."""

    def __init__(self, thing: Any, owner: str, settings: Callable[[str], dict[str, Any]]) -> None:
        self._thing, self._owner, self._settings = thing, owner, settings

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._thing, name, None)
        if not callable(method):
            raise Finding(f"{self._owner} has no method {name}")
        return guarded(method, **self._settings(name))


def shared(thing: _Guarded) -> str:
    """In words: what of this object belongs to its class, where all objects share it."""
    for name, x in vars(type(thing._thing)).items():
        if isinstance(x, list | dict | set | np.ndarray) and not name.startswith("__"):
            return f"{name} belongs to the class, so all objects share it: make it in __init__"
    return ""


@cache
def _source(answer: Any) -> str:
    return textwrap.dedent(inspect.getsource(answer))


@cache
def edited(answer: Any, edits: tuple[str, ...]) -> Any:
    """The function or class with some of its text replaced: each edit is "old text → new text".

    ValueError for an old text that isn't there exactly once.
    """
    text = _source(answer)
    for edit in edits:
        old, new = edit.split(" → ")
        if text.count(old) != 1:
            raise ValueError(f"{answer.__name__} has {old!r} {text.count(old)} times, needed once")
        text = text.replace(old, new)
    space = dict(vars(sys.modules[answer.__module__]))
    exec(compile("from __future__ import annotations\n" + text, "a mistake", "exec"), space)
    return space[answer.__name__]


def outcome(call: Callable[..., Any], *args: Any) -> tuple[Any, str]:
    """The result of a guarded call and "", or None and what came of it: "OutOfBlocks", "None".

    For calls that may have to raise an exception.
    """
    try:
        return call(*args), ""
    except NotDone:
        return None, "None"
    except Finding as finding:
        if finding.__cause__ is None:
            raise
        why = f" ({cause})" if isinstance(cause := finding.__cause__, NameError) else ""
        return None, type(cause).__name__ + why


def parts(result: Any, what: str, names: Sequence[str]) -> Any:
    """A tuple or list of as many results as there are names.

    >>> parts((3, 4), "the slice", ("begin", "end"))
    (3, 4)
    >>> parts(3, "the slice", ("begin", "end"))
    Traceback (most recent call last):
        ...
    kvbook.exercises.expect.Finding: the slice: got int, needed (begin, end)
    """
    if isinstance(result, list | tuple) and len(result) == len(names):
        return result
    came = type(result).__name__
    came += f" of {len(result)}" if isinstance(result, list | tuple) else ""
    raise Finding(f"{what}: got {came}, needed ({', '.join(names)})")
