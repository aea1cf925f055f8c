"""Results as plain values to compare, and what a call with a hostile argument did."""

import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

import numpy as np

from kvlib import CacheFull, OutOfBlocks

ERRORS = (ValueError, TypeError, CacheFull, OutOfBlocks, MemoryError)
# Words of Python and NumPy, which name no quantity.
RAW = re.compile(
    r"object is not|unsupported operand|not supported between|cannot be interpreted|has no len|"
    r"only integer scalar|too large to convert|Exceeds the limit|expected .* argument|"
    r"__\w+__|not iterable|ufunc|could not convert|invalid literal|Maximum allowed|broadcast"
)
LONGEST = 400


def plain(x: Any) -> Any:
    """The same as lists, tuples and numbers, arrays with their bytes and dtypes."""
    if isinstance(x, np.ndarray):
        return str(x.dtype), x.shape, x.tobytes()
    if isinstance(x, Mapping):
        return [(plain(k), plain(v)) for k, v in x.items()]
    if is_dataclass(x) and not isinstance(x, type):
        return type(x).__name__, [plain(getattr(x, f.name)) for f in fields(x) if f.compare]
    if isinstance(x, set | frozenset):
        return sorted(map(repr, x))
    if isinstance(x, tuple | list):
        return [plain(y) for y in x]
    if isinstance(x, int | float | str | bytes | None | type):
        return type(x), x if x == x else "nan"
    return repr(x)


def outcome(call: Callable[[Any], Any], value: Any, name: str, needed: Any = None) -> str:
    """What is wrong with a call: "" for the result `needed`, or words that name the argument."""
    said, what = re.compile(_PATTERNS.get(name, name.split()[-1])), type(value).__name__
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = call(value)
    except ERRORS as error:
        words = str(error)
        if RAW.search(words) or not said.search(words):
            return f"raised {type(error).__name__}: {words[:300]}"
        return f"said too much: {len(words)} letters" if len(words) > LONGEST else ""
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"raised {type(error).__name__}: {str(error)[:300]}"
    if needed is None or plain(found) != needed:
        return f"taken, for a {what}: {str(plain(found))[:200]}"
    return ""


def check_outcomes(call, values, name, needed=None) -> None:
    """Check the `outcome` of a call with each of the values."""
    wrong = {what: words for what, x in values.items() if (words := outcome(call, x, name, needed))}
    assert not wrong, "\n".join(f"{what}: {words}" for what, words in wrong.items())


# Words that stand for an argument in an error, where they are not its name.
_PATTERNS = {
    "generate seeds": "seed 0", "generate prompts": "prompt 0|prompts",
    "generate prompt 0": "prompt 0|prompts", "Scheduler.add prompt": "prompt",
    **dict.fromkeys(
        ("Cache.plan seq_ids", "block_table seq_ids", "to_dense seq_ids", "from_dense seq_ids"),
        "seq_ids|request",
    ),
    "cross_step seq_ids": "seq_ids|request", "from_dense layers": "layers|layer 0",
}
PACKAGES = ("", ".caches", ".attention", ".codecs", ".kernels", ".model", ".quality", ".serve",
            ".caches.layouts")  # fmt: skip


def public_arguments() -> Iterator[tuple[str, str, str]]:
    """(name, argument, annotation) of each public function, class and method of kvlib."""
    for package in PACKAGES:
        module = import_module("kvlib" + package)
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            if not callable(thing) or (isinstance(thing, type) and issubclass(thing, Exception)):
                continue
            members = inspect.getmembers(thing, callable) if isinstance(thing, type) else ()
            methods = [(f"{name}.{n}", f) for n, f in members if n[0] != "_"]
            for label, function in [(name, thing), *methods]:
                if getattr(function, "__module__", "").startswith("kvlib"):
                    for parameter in inspect.signature(function).parameters.values():
                        yield label, parameter.name, str(parameter.annotation)
