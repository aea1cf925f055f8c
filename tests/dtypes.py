"""Watch every array that kvlib makes, and name those that are float64.

Two nets, because each has holes: an ndarray subclass sees what is computed from the model's own
arrays, unnamed intermediates included; a trace sees whatever any line of kvlib gives a name.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

Found = set[str]
# Angles are formed in float64 on purpose: a float32 angle is off by 0.004 at position 100,000.
ON_PURPOSE = {"tables", "frequencies", "llama3"}


@contextmanager
def watch() -> Iterator[Found]:
    """Collect the lines that made a float64 array inside the block."""
    found: Found = set()

    def note(frame: Any, what: str) -> None:
        found.add(f"{frame.f_globals['__name__']}:{frame.f_lineno} {what}")

    def look(frame: Any, name: str, value: Any) -> None:
        if isinstance(value, tuple | list):
            for x in value:
                look(frame, name, x)
        elif isinstance(value, np.ndarray | np.floating) and value.dtype == np.float64:
            note(frame, name)

    def trace(frame: Any, event: str, result: Any) -> Any:
        module = str(frame.f_globals.get("__name__", ""))
        if not module.startswith(("kvlib", "kvbook")):
            return None
        if module.startswith("kvlib.model.rope") and frame.f_code.co_name in ON_PURPOSE:
            return None
        for name, value in frame.f_locals.items():
            look(frame, name, value)
        if event == "return":
            look(frame, "what is returned", result)
        return trace

    Watched.note = staticmethod(lambda: _in_kvlib(note))
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield found
    finally:
        sys.settrace(before)
        Watched.note = staticmethod(lambda: None)


class Watched(np.ndarray):
    """An array that tells when something computed from it is float64."""

    note = staticmethod(lambda: None)

    def __array_finalize__(self, obj: Any) -> None:
        if self.dtype == np.float64:
            Watched.note()


def _in_kvlib(note: Any) -> None:
    frame = sys._getframe()
    while frame is not None and not frame.f_globals["__name__"].startswith(("kvlib", "kvbook")):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is not None:
        note(frame, "an intermediate")
