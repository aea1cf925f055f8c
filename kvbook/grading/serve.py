"""The answer's process answers calls: it runs the notebook's functions on plain data.

Nothing here knows what is checked, or what comes next.
"""

from __future__ import annotations

import builtins
import linecache
import warnings
from collections.abc import Callable, Iterator, KeysView, ValuesView
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from kvbook.exercises.counted import allocated, kept_watched, python_steps
from kvbook.grading.borrowed import Borrower
from kvbook.grading.channel import Channel, Gone
from kvbook.grading.values import Values
from kvlib import errors

DATA = (list, dict, set, np.ndarray)


class Server:
    """Answers calls on the names of a notebook until the other side is gone.

    space     what the notebook has defined
    together  asks a checker here, by the label of its exercise
    """

    def __init__(
        self, channel: Channel, space: dict[str, Any], together: Callable[[str], dict[str, Any]]
    ) -> None:
        self._channel, self._space, self._together = channel, space, together
        self._values = Values("s", trusts=True)
        self._borrower = Borrower(self._values, self._ask)
        self._objects: dict[str, Any] = {}
        self._asked: dict[int, BaseException] = {}  # errors that came from the other side

    def serve(self, head: dict[str, Any], data: bytearray) -> bool:
        """Answer one message; False where it is none of these."""
        op = head.get("op")
        if op == "describe":
            self._channel.send(*self._described(head["name"]))
        elif op == "together":
            self._channel.send(self._together(head["label"]))
        elif op == "call":
            self._channel.send(*self._called(head, data))
        return op in ("describe", "together", "call")

    def _described(self, name: str) -> tuple[dict[str, Any], list[Any]]:
        if name not in self._space:
            return {"is": "missing"}, []
        x = self._space[name]
        if isinstance(x, type):
            own = {n: v for n, v in vars(x).items() if type(v) in DATA and not n.startswith("__")}
            return self._values.pack({"is": "class"}, data=own)
        if callable(x):
            return {"is": "function", "called": _called_so(x, name)}, []
        return self._values.pack({"is": "value"}, value=x)

    def _called(self, head: dict[str, Any], data: bytearray) -> tuple[dict[str, Any], list[Any]]:
        self._borrower.reads = None
        args, named = self._values.unpack(head, data, "args", "named")
        self._values.lent_now = self._values.names_in((args, named))
        function = self._target(head["target"])
        watching = self._borrower.reads is not None
        try:
            with _as_there(head["errors"], watching) as heard:
                result, measured = _measured(head["measure"], function, args, named)
            said = {"op": "return", "warnings": [str(w.message)[:500] for w in heard[:20]]}
            if isinstance(function, type):
                name = f"i{len(self._objects)}"
                self._objects[name] = result
                return self._values.pack(said, value=(name, _methods(result)))
            if watching and self._borrower.reads is not None:
                said["reads"] = self._borrower.reads.counts
            return self._values.pack({**said, "measured": measured}, value=result)
        except Gone:
            raise
        except BaseException as problem:  # SystemExit, too, and a result that cannot be read
            text, where = words(problem, function)
            number = next((n for n, x in self._asked.items() if x is problem), None)
            raised = {"kind": type(problem).__name__, "text": text, "where": where}
            return self._values.pack({"op": "raise", "number": number, **raised})

    def _target(self, target: Any) -> Any:
        if isinstance(target, str):
            return self._space[target]
        name, attribute = target
        if not name:
            return _run_cuda
        return getattr(self._objects[name], attribute)

    def _ask(self, name: str, attribute: str, args: Any, named: Any) -> Any:
        """Ask the other side for something of what it has lent."""
        if args is not None:
            args, named = [_listed(x) for x in args], {k: _listed(x) for k, x in named.items()}
        asked = {"op": "ask", "name": name, "attribute": attribute}
        self._channel.send(*self._values.pack(asked, args=args, named=named or {}))
        head, data = self._channel.receive()
        if head["op"] == "raise":
            self._values.unpack(head, data)
            kind = getattr(errors, head["kind"], getattr(builtins, head["kind"], Exception))
            problem = self._asked[head["number"]] = kind(head["text"])
            raise problem
        return self._values.unpack(head, data, "value")[0]


@contextmanager
def _as_there(errors: dict[str, Any], watching: bool) -> Iterator[list[warnings.WarningMessage]]:
    """NumPy's handling of errors as on the other side, and the warnings that are given."""
    with (
        warnings.catch_warnings(record=True) as heard,
        np.errstate(**errors),
        kept_watched() if watching else nullcontext(),
    ):
        warnings.simplefilter("always")
        yield heard


def words(problem: BaseException, function: Any) -> tuple[str, str]:
    """What it says, and the deepest line of the function's own cell that led to it."""
    try:
        said = str.__str__(str(problem))[:5000]
    except BaseException:
        said = ""
    code, where, trace = getattr(function, "__code__", None), "", problem.__traceback__
    while trace is not None and code is not None:
        if trace.tb_frame.f_code.co_filename == code.co_filename:
            text = linecache.getline(code.co_filename, trace.tb_lineno).strip()
            where = f"\nat the line: {text}" if text else ""
        trace = trace.tb_next
    return said, where


def _called_so(x: Any, name: str) -> str:
    """What a function is called; the exercise's own name if it does not say so."""
    try:
        found = x.__name__
    except BaseException:  # an object of the notebook's may raise what it likes
        return name
    return found if type(found) is str else name


def _methods(x: Any) -> list[str]:
    return [n for n in dir(x) if not n.startswith("_") and callable(getattr(x, n, None))]


def _measured(what: str, function: Any, args: Any, named: Any) -> tuple[Any, int]:
    if what == "steps":
        return python_steps(function, *args)
    if what == "bytes":
        return allocated(function, *args)
    return function(*args, **named), 0


def _listed(x: Any) -> Any:
    """An iterator or a view as a list: a cache takes them, too."""
    return list(x) if isinstance(x, range | KeysView | ValuesView | Iterator) else x


def _run_cuda(*args: Any, **named: Any) -> Any:
    from kvlib.kernels.own import run_cuda

    return run_cuda(*args, **named)
