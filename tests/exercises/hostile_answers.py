"""Answers that no checker expects: name → function that makes one."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from hostile_types import (
    EqualInt,
    Raises,
)

from kvbook.exercises.report import Finding

Maker = Callable[[], Any]


class OwnExit(BaseException):
    """An exception that `except Exception` does not see."""


class Unprintable(Exception):
    """An error whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class UnprintableFinding(Finding):
    """A finding of the answer's own, whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class NoName:
    """A callable object that has no name, and raises when it is asked for one."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return 4

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")


class OddName:
    """A callable object whose names are no texts."""

    __code__ = __wrapped__ = None

    def __init__(self) -> None:
        self.__name__ = self.__qualname__ = 4

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return 4


class Construct:
    """A class in the place of a function."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...


class FailsToConstruct:
    """A class that cannot be made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise SystemExit(3)


class NoAttributes:
    """Objects whose every attribute raises."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")


def _returns_int(cls: type, *args: Any, **kwargs: Any) -> int:
    return EqualInt(3)


NotItsOwn = type("NotItsOwn", (), {"__new__": _returns_int})


def raising(error: Any) -> Maker:
    def make() -> Any:
        def answer(*args: Any, **kwargs: Any) -> Any:
            raise error

        return answer

    return make


def _answer(body: Callable[..., Any]) -> Maker:
    return lambda: body


def _calls_itself(*args: Any, **kwargs: Any) -> Any:
    return _calls_itself(*args, **kwargs)


def _exits(*args: Any, **kwargs: Any) -> Any:
    raise SystemExit(0)


def _group(*args: Any, **kwargs: Any) -> Any:
    raise BaseExceptionGroup("several", [OwnExit(), ValueError("one")])


async def _async_answer(*args: Any, **kwargs: Any) -> int:
    await asyncio.sleep(0)
    return 4


async def _async_generator(*args: Any, **kwargs: Any) -> Any:
    yield 4


def _generator(*args: Any, **kwargs: Any) -> Any:
    yield 4


def _prints(*args: Any, **kwargs: Any) -> str:
    print("x" * 10**6)
    return "printed"


def _seterr(*args: Any, **kwargs: Any) -> Any:
    np.seterr(all="raise")
    return np.zeros(3) / 0


ANSWERS: dict[str, Maker] = {
    "raises SystemExit": _answer(_exits),
    "raises KeyboardInterrupt": raising(KeyboardInterrupt()),
    "raises GeneratorExit": raising(GeneratorExit()),
    "raises StopIteration": raising(StopIteration(4)),
    "raises MemoryError": raising(MemoryError()),
    "raises RecursionError": _answer(_calls_itself),
    "raises its own BaseException": raising(OwnExit("bye")),
    "raises a group": _answer(_group),
    "raises an error without text": raising(Unprintable()),
    "raises a Finding of its own kind": raising(UnprintableFinding()),
    "raises a Finding that says nothing": raising(Finding()),
    "raises a Finding of objects": raising(Finding(Raises())),
    "raises a megabyte of text": raising(ValueError("x" * 10**6)),
    "raises a surrogate": raising(ValueError("\ud800")),
    "raises escape codes": raising(ValueError("\x1b[2J\x00\r\x85\u2028")),
    "raises a class of another name": raising(type("\x1b[2J\n", (Exception,), {})()),
    "raises what is no exception": raising("text"),
    "takes no argument": _answer(lambda: 4),
    "takes nine arguments": _answer(lambda a, b, c, d, e, f, g, h, i: 4),
    "a builtin": _answer(len),
    "a partial": _answer(functools.partial(max, 1)),
    "a class": _answer(Construct),
    "a class that raises": _answer(FailsToConstruct),
    "a class without attributes": _answer(NoAttributes),
    "a class that makes an int": _answer(NotItsOwn),
    "the class int": _answer(int),
    "the class ndarray": _answer(np.ndarray),
    "the class type": _answer(type),
    "a coroutine function": _answer(_async_answer),
    "an async generator": _answer(_async_generator),
    "a generator function": _answer(_generator),
    "an object without a name": NoName,
    "an object with an odd name": OddName,
    "prints a megabyte": _answer(_prints),
    "sets NumPy's errors": _answer(_seterr),
}
