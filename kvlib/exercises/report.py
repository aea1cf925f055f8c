"""How a checker speaks: what was proved, and the first thing that is wrong.

A checker is a generator function: it calls what it was handed, raises a `Finding` (or lets an
`expect_*` raise one) when something is wrong, and yields a sentence for each thing it proved.

    @checker
    def check_causal_mask(causal_mask):
        mask = causal_mask(4)
        expect_shape(mask, (4, 4), "the mask")
        yield "the mask has a row for each query and a column for each key"

Calling `check_causal_mask(mine)` returns a `Report`, whose repr is what the notebook shows.
Whatever the learner's function does (returns nothing, raises, changes its inputs) becomes words;
there is no traceback to read.
"""

from __future__ import annotations

import functools
import linecache
import textwrap
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvlib.exercises.expect import (
    Finding,
    diagnose,
    expect_array,
    expect_close,
    expect_dtype,
    expect_equal,
    expect_shape,
    expect_unchanged,
)
from kvlib.exercises.progress import note

__all__ = [
    "Finding",
    "NotDone",
    "Report",
    "checker",
    "diagnose",
    "expect_array",
    "expect_close",
    "expect_dtype",
    "expect_equal",
    "expect_shape",
    "expect_unchanged",
    "guarded",
]


class NotDone(Finding):
    """The stub is still a stub: it returned nothing, or raised NotImplementedError.

    >>> def causal_mask(n):
    ...     "(n, n) bool, True where query i may look at key j"
    >>> guarded(causal_mask)(4)
    Traceback (most recent call last):
        ...
    kvlib.exercises.report.NotDone: causal_mask returned None: write its body, ...
    """


@dataclass(frozen=True, repr=False)
class Report:
    """The result of a checker. True if everything was proved; its repr is what a notebook shows.

    status is "passed", "not yet" (something is wrong) or "not done yet" (still the stub).

    >>> report = Report("tokens_left", "not yet", ("it gives a number",), "got 4, needed 12")
    >>> report
    tokens_left: not yet
      proved: it gives a number
      wrong: got 4, needed 12
    >>> bool(report)  # so that a cell may end with `assert check(mine)`
    False
    """

    name: str
    status: str
    proved: tuple[str, ...] = ()
    finding: str = ""

    @property
    def passed(self) -> bool:
        return self.status == "passed"

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        lines = [f"{self.name}: {self.status}"]
        for sentence in self.proved:
            lines += _hang("proved: ", sentence)
        if self.finding:
            lines += _hang("to do: " if self.status == "not done yet" else "wrong: ", self.finding)
        return "\n".join(lines)


def _hang(label: str, text: str) -> list[str]:
    # Narrow enough for an exercise box on a page, so that nobody has to scroll sideways.
    lines: list[str] = []
    for line in text.splitlines():
        start = "  " + (label if not lines else " " * len(label))
        indent = " " * (len(label) + 2)
        lines += textwrap.wrap(line, 68, initial_indent=start, subsequent_indent=indent)
    return lines


def checker(check: Callable[[Any], Iterator[str]]) -> Callable[[Any], Report]:
    """Turn a generator of proved sentences into a function that returns a `Report`.

    The generator receives the learner's function wrapped by `guarded`. A class arrives unwrapped:
    guard its methods. The result goes into the reader's record (`kvlib.exercises.progress`).
    The function raises TypeError for what cannot be called, RuntimeError if nothing was proved.

    >>> @checker
    ... def check_tokens_left(tokens_left):
    ...     expect_equal(tokens_left(16, 20), 12, "free in blocks of 16 that hold 20 tokens")
    ...     yield "the rest of the last block is free"
    >>> check_tokens_left(lambda size, held: -held % size)
    tokens_left: passed
      proved: the rest of the last block is free
    >>> check_tokens_left(lambda size, held: held % size)
    tokens_left: not yet
      wrong: free in blocks of 16 that hold 20 tokens: got 4, needed 12
    """
    name = check.__name__.removeprefix("check_")

    @functools.wraps(check)
    def run(solution: Any) -> Report:
        if not callable(solution):
            came = type(solution).__name__
            raise TypeError(f"check_{name}: got {came}, needed the function itself")
        report = _ask(name, check, solution)
        note(check, solution, report.status)
        return report

    return run


def _ask(name: str, check: Callable[[Any], Iterator[str]], solution: Any) -> Report:
    """Run the checker to its end, or to the first thing that is wrong."""
    proved: list[str] = []
    try:
        for sentence in check(solution if isinstance(solution, type) else guarded(solution)):
            proved.append(sentence)
    except NotDone as todo:
        return Report(name, "not done yet", (), str(todo))
    except Finding as finding:
        return Report(name, "not yet", tuple(proved), str(finding))
    if not proved:
        raise RuntimeError(f"check_{name} proved nothing: it must yield a sentence")
    return Report(name, "passed", tuple(proved))


def guarded(
    function: Callable[..., Any], *, may_modify: bool = False, may_return_none: bool = False
) -> Callable[..., Any]:
    """Wrap a learner's function: errors, missing results, changed inputs become a `Finding`.

    may_modify=True is for functions whose work is to change an argument; may_return_none for
    those that return nothing.

    >>> import numpy as np
    >>> def softmax(x):
    ...     x -= x.max()  # in the caller's array
    ...     return np.exp(x) / np.exp(x).sum()
    >>> guarded(softmax)(np.ones(4))
    Traceback (most recent call last):
        ...
    kvlib.exercises.expect.Finding: argument 1 of softmax was changed in place: copy it first, ...
    >>> guarded(softmax, may_modify=True)(np.ones(4))
    array([0.25, 0.25, 0.25, 0.25])
    """
    name = getattr(function, "__name__", "your function")

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = [("argument " + str(i + 1), a) for i, a in enumerate(args)] + list(kwargs.items())
        arrays = [(label, a, a.copy()) for label, a in given if isinstance(a, np.ndarray)]
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                result = function(*args, **kwargs)
        except Finding:  # the function was guarded already, and has said what is wrong
            raise
        except NotImplementedError:
            raise NotDone(f"write the body of {name}, then run this cell again.") from None
        except Exception as err:  # whatever a learner's code raises must become words
            raise Finding(_error_in_words(function, name, err)) from err
        if result is Ellipsis or (result is None and not may_return_none):
            word = "..." if result is Ellipsis else "None"
            raise NotDone(f"{name} returned {word}: write its body, then run this cell again.")
        if not may_modify:
            for label, now, before in arrays:
                expect_unchanged(now, before, f"{label} of {name}")
        return result

    return call


def _error_in_words(function: Callable[..., Any], name: str, err: Exception) -> str:
    # The line that matters is the deepest one in the file (or notebook cell) where the learner
    # wrote the function.
    code = getattr(function, "__code__", None)
    where, trace = "", err.__traceback__
    while trace is not None and code is not None:
        frame = trace.tb_frame
        if frame.f_code.co_filename == code.co_filename:
            source = linecache.getline(code.co_filename, trace.tb_lineno).strip()
            where = f"\nat the line: {source}" if source else ""
        trace = trace.tb_next
    return f"{name} raised {type(err).__name__}: {err}{where}"
