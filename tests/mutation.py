"""Change one function of kvlib for the length of a with block."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from museum import Mutant


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """Run the function on changed code; everyone who has imported it sees the change.

    Raises LookupError if the text to replace does not stand in the file exactly once: the museum
    has to follow the code.
    """
    module = importlib.import_module(mutant.module)
    path = Path(str(module.__file__))
    source = path.read_text(encoding="utf-8")
    if source.count(mutant.old) != 1:
        raise LookupError(
            f"{mutant.name!r}: {mutant.old!r} stands {source.count(mutant.old)} times in "
            f"{mutant.module}, needed: once"
        )
    changed = compile(source.replace(mutant.old, mutant.new), str(path), "exec", dont_inherit=True)
    target: Any = module
    for part in mutant.function.split("."):
        target = vars(target)[part]
    assert isinstance(target, FunctionType), mutant.function
    original = target.__code__
    code = _find(changed, mutant.function)
    if code.co_code == original.co_code and code.co_consts == original.co_consts:
        raise LookupError(f"{mutant.name!r} changes nothing in {mutant.function}")
    target.__code__ = code
    try:
        yield
    finally:
        target.__code__ = original


def _find(code: CodeType, name: str) -> CodeType:
    for const in code.co_consts:
        if isinstance(const, CodeType):
            if const.co_qualname == name:
                return const
            if name.startswith(const.co_qualname + "."):
                return _find(const, name)
    raise LookupError(f"no function {name} in {code.co_filename}")
