"""How good is a test? Install the bugs one after the other, and count those that it notices."""

import contextlib
import ctypes
import inspect
import io
import textwrap
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kvbook.exercises.wording import readable, text_of
from kvbook.museum.mutation import Bug, Change, applied
from kvlib.arrays import Array

Test = Callable[[], object]
SECONDS = 10.0


def _nan_at_first(new_array: Callable[..., Array], *args: object, **settings: object) -> Array:
    x = new_array(*args, **settings)
    if isinstance(x, np.ndarray) and x.dtype.kind == "f":
        x[...] = np.nan
    return x


# A bug may read what was never written. Whether a test notices must not depend on what was there.
NAN_AT_FIRST = Bug("unwritten memory is NaN", "kvlib.arrays", "new_array", _nan_at_first)


class TimeUp(BaseException):
    """Raised in a test that runs too long; no ``except Exception`` catches it."""


@dataclass(frozen=True, repr=False)
class Score:
    """Which mutants some tests kill. A test that fails on healthy code does not count.

    killed: name → what the test said about it. survived: names. finding: why nothing was counted.
    """

    tests: str
    killed: dict[str, str]
    survived: tuple[str, ...]
    finding: str = ""

    @property
    def total(self) -> int:
        return len(self.killed) + len(self.survived)

    @property
    def share(self) -> float:
        """Killed mutants as a part of all, 0 ... 1."""
        return len(self.killed) / self.total if self.total else 0.0

    def __bool__(self) -> bool:
        return not self.finding and not self.survived

    def __repr__(self) -> str:
        if self.finding:
            return "\n".join([f"{self.tests}: not counted", *_hang("why", self.finding)])
        lines = [f"{self.tests}: {len(self.killed)} of {self.total} mutants killed"]
        for name, words in self.killed.items():
            lines += _hang("killed", f"{name}: {words}")
        if self.survived:
            lines += _hang("alive", ", ".join(self.survived))
        return "\n".join(lines)


def _hang(label: str, text: str) -> list[str]:
    start = f"  {label + ':':<8} "
    return textwrap.wrap(text, 76, initial_indent=start, subsequent_indent=" " * 11)


def score_tests(
    tests: Sequence[Test], mutants: Sequence[Change], seconds: float = SECONDS
) -> Score:
    """Run the tests on healthy code, on each mutant, and on healthy code again.

    A test is a function without arguments that raises where something is wrong. seconds: the time
    one run of one test may take; a mutant that makes it run longer is killed.

    While they run, memory of caches that nobody has written holds NaN. Raises TypeError for what is
    not such a function.
    """
    for test in tests:
        _check(test)
    with applied(NAN_AT_FIRST):
        return _score(tests, mutants, seconds)


def _score(tests: Sequence[Test], mutants: Sequence[Change], seconds: float) -> Score:
    names = tests[0].__name__ if len(tests) == 1 else f"{len(tests)} tests"
    alive, killed = [m.name for m in mutants], dict[str, str]()
    for test in tests:
        words = verdict(test, seconds, line=True)
        if words:
            return Score(names, {}, tuple(alive), f"{test.__name__} fails on healthy code: {words}")
    called = [called_by(test, mutants, seconds) for test in tests]
    for mutant in mutants:
        place = mutant.module, mutant.function
        asked = [test for test, places in zip(tests, called, strict=True) if place in places]
        with applied(mutant):
            found = next((w for w in (verdict(test, seconds) for test in asked) if w), "")
        if found:
            alive.remove(mutant.name)
            killed[mutant.name] = found
    for test in tests:
        words = verdict(test, seconds)
        if words:
            return Score(
                names,
                {},
                tuple(m.name for m in mutants),
                f"{test.__name__} passed on healthy code at first and fails there now ({words}), "
                "so it leaves something behind. Build models and caches inside the test.",
            )
    return Score(names, killed, tuple(alive))


def called_by(test: Test, mutants: Sequence[Change], seconds: float) -> set[tuple[str, str]]:
    """Module and name of each function of the mutants that a test calls on healthy code.

    A mutant of any other function cannot change what the test does, so the test need not be run.
    """
    places, found = {(m.module, m.function) for m in mutants}, set[tuple[str, str]]()

    def noting(place: tuple[str, str]) -> Bug:
        def note(original: Callable[..., object], *args: object, **settings: object) -> object:
            found.add(place)
            return original(*args, **settings)

        return Bug("note the call", *place, note)

    with contextlib.ExitStack() as all_noted:
        for place in sorted(places):
            all_noted.enter_context(applied(noting(place)))
        disturbed = verdict(test, seconds)
    return places if disturbed else found  # a test may look at the code itself


def _check(test: Test) -> None:
    if not inspect.isfunction(test):
        raise TypeError(f"A test must be a function, got {type(test).__name__}.")
    needed = [
        p.name
        for p in inspect.signature(test).parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if needed:
        raise TypeError(
            f"{test.__name__} needs {', '.join(needed)}. Write a test without arguments that "
            "builds what it needs from kvlib."
        )


def verdict(test: Test, seconds: float = SECONDS, *, line: bool = False) -> str:
    """What a test says: nothing where it passes, else its first line of complaint.

    line: where it complains without words, the line of code that did.

    It runs in a separate thread, so that one that never ends can be ended. Where there are no
    threads (in a browser) it runs without a limit. What it prints is dropped.
    """
    found: list[BaseException | None] = []

    def run() -> None:
        try:
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                test()
        except BaseException as error:  # whatever a broken library raises
            found.append(error)
        else:
            found.append(None)

    thread = threading.Thread(target=run, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        run()
    else:
        try:
            thread.join(seconds)
        finally:
            late = thread.is_alive()
            _stop(thread)
        if late:
            return f"ran longer than {seconds:g} s"
    error = found[0]
    if error is None:
        return ""
    first = (readable(text_of(error)).strip().splitlines() or [""])[0]
    if not first and line:
        first = _line(error)
    first = first if len(first) <= 80 else first[:77] + "..."
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _line(error: BaseException) -> str:
    """The line of code that raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"at the line {frames[-1].line}" if frames and frames[-1].line else ""


def _stop(thread: threading.Thread) -> None:
    """Raise TimeUp in a thread until it ends. RuntimeError if it never leaves compiled code."""
    for _ in range(100):
        if not thread.is_alive():
            return
        ident = ctypes.c_ulong(thread.ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(TimeUp))
        thread.join(0.1)
    raise RuntimeError("A test ran too long, but it is inside compiled code and cannot be stopped.")
