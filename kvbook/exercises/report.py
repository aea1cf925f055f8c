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

import functools
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kvbook.exercises.expect import Finding
from kvbook.exercises.guard import NotDone, guarded, silence
from kvbook.exercises.progress import note
from kvbook.exercises.wording import name_of, readable, text_of


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


Check = Callable[[Any], Iterator[str]]


def checker(check: Check | None = None, *, returns: type | tuple[type, ...] = ()) -> Any:
    """Turn a generator of proved sentences into a function that returns a `Report`.

    The generator receives the learner's function, guarded (`kvbook.exercises.guard`). The report
    goes into the reader's record (`kvbook.exercises.progress`). The function raises TypeError for
    what cannot be called, RuntimeError if nothing was proved; an error of the checker itself
    becomes a report that says so.

    returns  types whose objects the function may return besides plain data. With
             `@checker(returns=object)` it may return anything, and may itself be a class.

    >>> @checker
    ... def check_tokens_left(tokens_left):
    ...     if tokens_left(16, 20) != 12:
    ...         raise Finding("20 tokens in blocks of 16: needed 12 free slots in the last block")
    ...     yield "the rest of the last block is free"
    >>> check_tokens_left(lambda size, held: -held % size)
    tokens_left: passed
      proved: the rest of the last block is free
    >>> check_tokens_left(lambda size, held: held % size)
    tokens_left: not yet
      wrong: 20 tokens in blocks of 16: needed 12 free slots in the last
             block
    """
    if check is None:
        return functools.partial(checker, returns=returns)
    name = check.__name__.removeprefix("check_")

    @functools.wraps(check)
    def run(solution: Any) -> Report:
        wants = "" if returns and callable(solution) else "function"
        return judged(name, lambda x: check(guarded(x, returns=returns)), solution, wants)

    return run


def judged(name: str, check: Check, solution: Any, wants: str) -> Report:
    """The report on a solution, which also goes into the reader's record.

    wants  "function", "class", or "" for either

    >>> def check(double):
    ...     if double(3) != 6:
    ...         raise Finding("double(3): needed 6")
    ...     yield "3 becomes 6"
    >>> judged("double", check, lambda x: x + x, "function")
    double: passed
      proved: 3 becomes 6
    """
    if not callable(solution):
        came = type(solution).__name__
        raise TypeError(f"check_{name}: got {came}, needed the {wants or 'function'} itself")
    came = "class" if issubclass(type(solution), type) else "function"
    if wants not in ("", came):
        report = Report(name, "not yet", (), _WANTED[wants].format(name_of(solution)))
    else:
        report = _ask(name, check, solution)
    note(f"check_{name}", solution, report.status)
    return report


_WANTED = {
    "function": "got the class {}; pass a function",
    "class": "got the function {}; pass the class itself, not one of its objects",
}


def _ask(name: str, check: Check, solution: Any) -> Report:
    """Run the checker to its end, or to the first thing that is wrong."""
    proved = list[str]()
    try:
        with silence():
            for sentence in check(solution):
                proved.append(sentence)
    except NotDone as todo:
        return Report(name, "not done yet", (), readable(text_of(todo)))
    except Finding as finding:
        return Report(name, "not yet", tuple(proved), readable(text_of(finding)))
    except Exception as error:
        said = f"{type(error).__name__}: {text_of(error)}"
        return Report(
            name, "not yet", tuple(proved),
            readable(f"check_{name} could not judge {name_of(solution)}, because it failed itself "
                     f"with {said}. That is a mistake of the checker, so please report it"),
        )  # fmt: skip
    if not proved:
        raise RuntimeError(f"check_{name} proved nothing: it must yield a sentence")
    return Report(name, "passed", tuple(proved))
