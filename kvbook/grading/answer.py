"""An answer as the checking process sees it: calls go to the answer's process, data comes back."""

from __future__ import annotations

import builtins
import functools
import struct
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from kvbook.grading.channel import Channel, Gone, Late
from kvbook.grading.containers import within
from kvbook.grading.lent import Lender
from kvbook.grading.values import Values
from kvlib import errors

Found = dict[str, Any]
MOST_WARNINGS = 20


class Missing(Exception):
    """The notebook defines no such name."""


class Remote:
    """One answer in its process, for one check."""

    def __init__(self, channel: Channel) -> None:
        self._channel, self._values = channel, Values("c")
        self._lender = Lender(self._values)
        self._values.accept = self._may_change
        self._args = set[int]()
        self.lost: Late | Gone | None = None  # why nothing more comes
        self._raised: list[Exception] = []  # by what was asked of something lent

    def answer(self, name: str) -> Any:
        """The function, class or value that the notebook calls so. Missing where there is none."""
        self._channel.send({"op": "describe", "name": name})
        head, data = self._channel.receive()
        kind = head.get("is")
        if kind == "missing":
            raise Missing
        if kind == "value":
            return self._values.unpack(head, data, "value")[0]
        if kind == "class":
            return self._class(name, *self._values.unpack(head, data, "data"))
        return Function(self, name, str(head.get("called"))[:80])

    def together(self, label: str) -> Found:
        """What the checker says in the answer's own process, where kvlib itself is changed."""
        self._channel.send({"op": "together", "label": label})
        head, _ = self._channel.receive()
        proved = head.get("proved")
        return {
            "status": str(head.get("status")),
            "finding": str(head.get("finding")),
            "proved": list(map(str, proved)) if isinstance(proved, list) else [],
        }

    def call(self, target: Any, args: Any, named: Any, measure: str = "") -> Any:
        """Call a function, a class or a method of an object there; its result as plain data."""
        try:
            return self._call(target, args, named, measure)
        except (Late, Gone) as lost:  # a guard may make words of it
            self.lost = self.lost or lost
            raise

    def _call(self, target: Any, args: Any, named: Any, measure: str) -> Any:
        self._lender.reads = None
        self._args = within((args, named))
        head = {"op": "call", "target": target, "errors": np.geterr(), "measure": measure}
        head, data = self._exchange(*self._values.pack(head, args=args, named=named))
        for text in list(head.get("warnings", ()))[:MOST_WARNINGS]:
            warnings.warn(str(text), RuntimeWarning, stacklevel=3)
        if head.get("op") == "raise":
            self._values.unpack(head, data)
            number = head.get("number")
            if type(number) is int and 0 <= number < len(self._raised):
                raise self._raised[number]
            raise error(*(str(head.get(key)) for key in ("kind", "text", "where")))
        (result,) = self._values.unpack(head, data, "value")
        self._count(head.get("reads"))
        if measure:
            return result, int(head.get("measured", 0))
        return result

    def _exchange(self, head: Found, arrays: list[Any]) -> tuple[Found, bytearray]:
        """Send a call, answer what its function asks for, and take what it says in the end."""
        self._channel.send(head, arrays)
        while True:
            head, data = self._channel.receive()
            if head.get("op") != "ask":
                return head, data
            self._channel.send(*self._asked(head, data))

    def _asked(self, head: Found, data: bytearray) -> tuple[Found, list[Any]]:
        """The answer to a question about something lent."""
        args, named, values = *self._values.unpack(head, data, "args", "named"), self._values
        try:
            given = None if args is None else tuple(args)
            made = self._lender.ask(str(head.get("name")), str(head.get("attribute")), given, named)
            return values.pack({"op": "return"}, value=made)
        except Exception as problem:
            self._raised.append(problem)
            said = {"kind": _known(problem), "text": str(problem), "number": len(self._raised) - 1}
            return values.pack({"op": "raise", **said})

    def _class(self, name: str, data: dict[str, Any]) -> type:
        remote = self

        def begin(self: Any, *args: Any, **named: Any) -> None:
            made, methods = remote.call(name, args, named)
            vars(self).update({m: Function(remote, [made, m], m) for m in methods})

        return type(name, (), {**data, "__init__": begin})

    def _may_change(self, name: str) -> bool:
        """Only what the answer made itself, and the arguments of this very call."""
        return name.startswith("s") or id(self._values.known[name]) in self._args

    def _count(self, counts: Any) -> None:
        reads = self._lender.reads
        if reads is not None and isinstance(counts, dict):
            for name in reads.counts:
                reads.counts[name] += int(counts.get(name, 0))


class Function:
    """A function in the answer's process."""

    def __init__(self, remote: Remote, target: Any, name: str) -> None:
        self._remote, self._target = remote, target
        self._what, self._found = "", list[int]()
        self.__name__ = self.__qualname__ = name

    def __call__(self, *args: Any, **named: Any) -> Any:
        if not self._what:
            return self._remote.call(self._target, args, named)
        result, count = self._remote.call(self._target, args, named, self._what)
        self._found.append(count)
        return result

    @contextmanager
    def measured(self, what: str) -> Iterator[list[int]]:
        """Inside, a call adds what it took there: "steps" of Python, or "bytes" of memory."""
        self._what, self._found = what, list[int]()
        try:
            yield self._found
        finally:
            self._what = ""


def run_cuda_there(remote: Remote) -> Callable[..., Any]:
    """`run_cuda` for checkers whose answers are lines of CUDA C++: native code runs there, too."""
    from kvlib.kernels.processor import KernelError, Traffic

    def run(*args: Any, **named: Any) -> Any:
        try:
            got = remote.call(["", "run_cuda"], args, named)
            requests, sectors, asked, read, written = got
            return Traffic(int(requests), int(sectors), int(asked), tuple(read), tuple(written))
        except (TypeError, ValueError) as problem:
            raise Gone(f"no traffic: {problem}") from None
        except Exception as problem:
            if type(problem).__name__ == "KernelError":
                raise KernelError(str(problem)) from None
            raise

    return run


@functools.cache
def _classes() -> dict[str, type[Exception]]:
    known = {"error": struct.error, "KernelError": RuntimeError}
    for module in (builtins, errors):
        for name, kind in vars(module).items():
            if isinstance(kind, type) and issubclass(kind, Exception):
                known[name] = kind
    return known


def _known(problem: Exception) -> str:
    return next(
        (c.__name__ for c in type(problem).__mro__ if c.__name__ in _classes()), "Exception"
    )


def error(kind: str, text: str, where: str) -> Exception:
    """An exception of this name: of the class that Python or kvlib calls so, if there is one.

    where   the line of the notebook that raised it, in words, for the report
    """
    base = _classes().get(kind, Exception)
    name = kind if kind.isidentifier() and len(kind) < 80 else "Exception"
    own = {"__str__": lambda self: text, "__init__": lambda self: None}
    made: Exception = type(name, (base,), own)()
    made.at_the_line = where  # type: ignore[attr-defined]
    return made
