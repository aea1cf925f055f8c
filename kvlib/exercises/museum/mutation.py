"""Change one function of kvlib for the length of a with block.

A mutant is a piece of text in kvlib's source and what stands there in its place. The changed file
is compiled, and the code of one function is exchanged in the running process: whoever imported
that function before sees the change, no file is touched, and the end of the block puts the old
code back, whatever happened inside.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any


@dataclass(frozen=True, repr=False)
class Mutant:
    """One change: in ``function`` (a qualified name) of ``module``, ``old`` becomes ``new``.

    ``old`` must stand in the module's file exactly once, so that the museum has to follow the code.
    """

    name: str
    module: str
    function: str
    old: str
    new: str

    @property
    def source(self) -> str:
        """The change as a unified diff, one line of context before and after."""
        text = _text(importlib.import_module(self.module))
        path = self.module.replace(".", "/") + ".py"
        lines = difflib.unified_diff(
            text.splitlines(),
            text.replace(self.old, self.new).splitlines(),
            f"{path}  {self.function}",
            f"{path}  {self.name}",
            lineterm="",
            n=1,
        )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}: {self.module}, {self.function})"


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """Run the function on changed code; everyone who has imported it sees the change.

    Raises LookupError, having changed nothing, if the text to replace does not stand in the file
    exactly once or changes nothing in the function.
    """
    module = importlib.import_module(mutant.module)
    target, code = _function(module, mutant.function), changed_code(mutant)
    original = target.__code__
    if code.co_code == original.co_code and code.co_consts == original.co_consts:
        raise LookupError(f"{mutant.name!r} changes nothing in {mutant.function}")
    target.__code__ = code
    try:
        yield
    finally:
        target.__code__ = original


@cache
def changed_code(mutant: Mutant) -> CodeType:
    """The code of the mutant's function, compiled from the changed file. LookupError as above.

    Compiled once: scoring a test asks for every mutant again.
    """
    module = importlib.import_module(mutant.module)
    text = _text(module)
    if text.count(mutant.old) != 1:
        raise LookupError(
            f"{mutant.name!r}: {mutant.old!r} stands {text.count(mutant.old)} times in "
            f"{mutant.module}, needed: once"
        )
    changed = text.replace(mutant.old, mutant.new)
    return _find(compile(changed, str(module.__file__), "exec", dont_inherit=True), mutant.function)


def _text(module: ModuleType) -> str:
    """The source of a module, from wherever it was imported."""
    loader: Any = module.__spec__.loader if module.__spec__ else None
    text = loader.get_source(module.__name__) if loader is not None else None
    if text is None:
        raise LookupError(f"{module.__name__} has no source to change")
    return str(text)


def _function(module: ModuleType, name: str) -> FunctionType:
    target: Any = module
    for part in name.split("."):
        target = vars(target).get(part)
    if not isinstance(target, FunctionType):
        raise LookupError(f"no function {name} in {module.__name__}")
    return target


def _find(code: CodeType, name: str) -> CodeType:
    for const in code.co_consts:
        if isinstance(const, CodeType):
            qualified = const.co_qualname
            if qualified == name:
                return const
            if name.startswith(qualified + "."):
                return _find(const, name)
    raise LookupError(f"no function {name} in {code.co_filename}")
