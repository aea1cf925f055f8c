"""Notice, and undo, what a notebook changed in the modules that grade it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

_WATCHED = ("kvlib", "kvbook", "numpy", "builtins", "math", "random", "functools", "json", "os")
_Place = tuple[Any, dict[str, Any]]


class Guard:
    """A note of every function, class and module attribute of what is loaded now.

    `restore` puts back what was replaced, in modules and in kvlib's own classes, and what functions
    are made of (code, defaults); `changed` names it. Names that came later are left alone: modules
    load parts of themselves on first use.
    """

    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}
        for name, module in list(sys.modules.items()):
            if name.split(".")[0] in _WATCHED and isinstance(module, ModuleType):
                self._places[name] = (module, dict(vars(module)))
                if name.split(".")[0] in ("kvlib", "kvbook"):
                    for kind in _classes(module):
                        self._places[f"{name}.{kind.__qualname__}"] = (kind, dict(vars(kind)))
        self._modules = dict(sys.modules)
        self._inside = {id(f): (name, f, _inside(f)) for name, f in self._functions()}

    def changed(self) -> list[str]:
        """Full names of the callables that are not what they were."""
        replaced = [
            f"{where}.{name}" for where, _, name, value in self._differences() if callable(value)
        ]
        rewritten = [name for name, f, before in self._inside.values() if _inside(f) != before]
        return sorted([*replaced, *rewritten])

    def restore(self) -> None:
        """Put everything back, modules included."""
        sys.modules.update(self._modules)
        for _, thing, name, value in self._differences():
            setattr(thing, name, value)
        for _, f, before in self._inside.values():
            if _inside(f) != before:
                f.__code__, f.__defaults__, named = before
                f.__kwdefaults__ = dict(named) if named else None

    def _functions(self) -> Iterator[tuple[str, FunctionType]]:
        """Python's functions among what was noted, with those that a decorator wraps."""
        for where, (_, members) in self._places.items():
            for name, value in members.items():
                for _ in range(5):
                    if isinstance(value, FunctionType):
                        yield f"{where}.{name}", value
                    value = _within(value)

    def _differences(self) -> Iterator[tuple[str, Any, str, Any]]:
        gone = object()
        for where, (thing, before) in self._places.items():
            now = vars(thing)
            for name, value in before.items():
                if now.get(name, gone) is not value and name not in ("__dict__", "__weakref__"):
                    yield where, thing, name, value


def _inside(f: FunctionType) -> tuple[Any, Any, Any]:
    """What a function does: its code, and what it takes for arguments that are not given."""
    named = f.__kwdefaults__
    return f.__code__, f.__defaults__, tuple(named.items()) if named else None


def _within(value: Any) -> Any:
    """The function behind a decorator, a property or a method."""
    if isinstance(value, property):
        return value.fget
    if isinstance(value, classmethod | staticmethod | FunctionType) or callable(value):
        return getattr(value, "__wrapped__", None)
    return None


def _classes(module: ModuleType) -> Iterator[type]:
    for value in vars(module).values():
        if isinstance(value, type) and value.__module__ == module.__name__:
            yield value
