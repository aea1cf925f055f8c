"""Change what one function of kvlib does, for the length of a with block.

A `Bug` is a function that is called instead of another and gets that other one first: it may
change what goes in, change what comes out, or leave the call out. It names a function or a method
of kvlib and knows nothing of the lines inside. A `Mutant` replaces a piece of the function's text,
for changes in the middle of a loop, and has to follow every edit of that text.

Both exchange the code of the function itself in the running process. Therefore everybody who has
imported the function before sees the change, no file is touched, and the end of the block puts the
old code back, whatever happened inside.
"""

import difflib
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from types import CodeType, FunctionType, ModuleType
from typing import Any

Call = Callable[..., Any]
REPLACED = "_replaced_by"  # the keyword argument that carries a bug into the function it replaces


@dataclass(frozen=True, repr=False)
class Change:
    """A change to ``function`` (a qualified name) of ``module``: a `Bug` or a `Mutant`."""

    name: str
    module: str
    function: str

    @property
    def source(self) -> str:
        """What the change is, as text to read."""
        raise NotImplementedError

    def code_for(self, target: FunctionType) -> tuple[CodeType, Any, Any]:
        """The code of the changed function, and the defaults of its arguments."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}: {self.module}, {self.function})"


@dataclass(frozen=True, repr=False)
class Bug(Change):
    """``bug(original, ...)`` is called wherever ``function`` of ``module`` would be.

    bug: a function of the original and of the original's own arguments. Of a method, the original
    is the plain function, so its first argument is the object.

    >>> from kvlib import attend_causal
    >>> def blind(attend_causal, q, k, v, **settings):
    ...     return 0 * attend_causal(q, k, v, **settings)
    >>> import numpy as np
    >>> x = np.ones((1, 1, 2), np.float32)
    >>> with applied(Bug("blind", "kvlib.attention.causal", "attend_causal", blind)):
    ...     attend_causal(x, x, x)
    array([[[0., 0.]]], dtype=float32)
    """

    bug: Call

    @property
    def source(self) -> str:
        """The text of the function that is called instead of the original."""
        text = textwrap.dedent(inspect.getsource(self.bug)).rstrip()
        return re.sub(r"(?ms)\A@.*?^(?=def )", "", text)  # without decorators

    def code_for(self, target: FunctionType) -> tuple[CodeType, Any, Any]:
        original = FunctionType(
            target.__code__,
            target.__globals__,
            target.__name__,
            target.__defaults__,
            target.__closure__,
        )
        original.__kwdefaults__ = target.__kwdefaults__
        old = target.__code__
        code = _relay.__code__.replace(  # the same cells: a function never changes those
            co_name=old.co_name, co_qualname=old.co_qualname, co_freevars=old.co_freevars
        )
        return code, None, {REPLACED: partial(self.bug, original)}


def _relay(*args: Any, _replaced_by: Call, **settings: Any) -> Any:
    """Pass every argument on: a replaced function runs this code instead."""
    return _replaced_by(*args, **settings)


@dataclass(frozen=True, repr=False)
class Mutant(Change):
    """A change of text: in ``function`` of ``module``, ``old`` becomes ``new``.

    ``old`` must occur in the module's file exactly once, so that a mutant has to follow the code.
    """

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

    def code_for(self, target: FunctionType) -> tuple[CodeType, Any, Any]:
        code, before = changed_code(self), target.__code__
        if REPLACED in (target.__kwdefaults__ or {}):
            raise LookupError(f"{self.function} is replaced already: install {self.name!r} first")
        if code.co_code == before.co_code and code.co_consts == before.co_consts:
            raise LookupError(f"{self.name!r} changes nothing in {self.function}")
        return code, target.__defaults__, target.__kwdefaults__


@contextmanager
def applied(change: Change) -> Iterator[None]:
    """Inside the block, the function does what the change says, for everybody who calls it.

    Blocks may be nested, also for one function: a bug is then handed the changed function.
    Raises LookupError, having changed nothing, if the function is not there, or if the text that a
    `Mutant` replaces does not occur in the file exactly once or changes nothing in the function.
    """
    target = _function(importlib.import_module(change.module), change.function)
    before = target.__code__, target.__defaults__, target.__kwdefaults__
    after = change.code_for(target)
    try:
        target.__code__, target.__defaults__, target.__kwdefaults__ = after
        yield
    finally:
        target.__code__, target.__defaults__, target.__kwdefaults__ = before


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
        target = getattr(target, "__dict__", {}).get(part)
    target = getattr(target, "__func__", target)  # of a static method
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
