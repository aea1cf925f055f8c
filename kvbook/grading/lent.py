"""Objects of kvlib that a checker lends to an answer: they stay in the checking process.

The answer gets a stand-in of the same class. Each public name that is listed here is asked for
over the channel, so what a cache or a pool has seen is what it really saw.
"""

from __future__ import annotations

import base64
import functools
import pickle
from dataclasses import is_dataclass
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from kvbook.exercises.counted import Reads, Watched
from kvbook.grading.values import Values
from kvlib.caches import BlockPool, Cache, Step
from kvlib.model import Decoder

FUNCTIONS = (FunctionType, MethodType, functools.partial)
_CACHE = ("add", "append", "attend", "dtype", "fork", "free", "held", "layers", "max_seq_len",
          "max_seqs", "memory", "plan", "read", "seq_ids", "seq_len", "truncate")  # fmt: skip
_STEP = ("last", "last_rows", "lengths", "num_tokens", "positions", "q_lens", "qo_indptr",
         "seq_ids", "seq_lens", "whole")  # fmt: skip
_POOL = ("allocate", "block_size", "free", "num_blocks", "num_free", "references", "touch",
         "writable")  # fmt: skip
NAMES: dict[type, tuple[str, ...]] = {
    Cache: _CACHE,
    Step: _STEP,
    BlockPool: _POOL,
    Decoder: ("forward",),
}


def names_of(x: Any) -> tuple[str, ...] | None:
    """The names that an answer may ask of an object; None if it is not one to lend."""
    for kind, names in NAMES.items():
        if isinstance(x, kind):
            return names
    of_checker = type(x).__module__.startswith("kvbook.exercises.") and callable(x)
    calls = isinstance(x, FUNCTIONS) or (of_checker and not isinstance(x, type))
    return ("__call__",) if calls else None


class Lender:
    """The checking side: what was lent, and what may be asked of it."""

    def __init__(self, values: Values) -> None:
        self._values, self._lent = values, dict[str, Any]()
        self.reads: Reads | None = None
        values.lend, values.found = self.lend, self.found

    def lend(self, x: Any) -> list[Any] | None:
        """The form of something that is not plain: a copy of a config, or a name to ask for."""
        if isinstance(x, Watched):
            self.reads = x.reads
            sizes = None if x.reads is None else [x.reads.sizes, x.reads.width]
            plain = np.ascontiguousarray(x.view(np.ndarray))
            return ["w", x.name, sizes, self._values._content(plain)]
        if names_of(x) is not None:
            name = next((n for n, y in self._lent.items() if y is x), f"k{len(self._lent)}")
            self._lent[name] = x
            if not isinstance(x, tuple(NAMES)):
                return ["k", name, None]
            made_of = (x.config, x.weights) if isinstance(x, Decoder) else _kind_of_kvlib(x)
            return ["k", name, _pickled(made_of)]
        kind = x if isinstance(x, type) else type(x)
        own = kind.__module__.startswith(("kvlib.", "kvbook."))
        if own and is_dataclass(x) or isinstance(x, np.dtype):
            return ["p", _pickled(x)]
        return None

    def found(self, form: list[Any]) -> Any:
        """What the answer names comes back as itself."""
        if form[0] != "k":
            raise ValueError("an unknown form")
        return self._lent[form[1]]

    def ask(self, name: str, attribute: str, args: Any, named: Any) -> Any:
        """What an answer asked of something lent: the value, or what calling it gave."""
        x = self._lent.get(name)
        if x is None or attribute not in (names_of(x) or ()):
            raise AttributeError(
                f"{type(x).__name__}.{attribute} is not there while you are graded"
            )
        value = x if attribute == "__call__" else getattr(x, attribute)
        return value(*args, **named) if args is not None else value


def _kind_of_kvlib(x: Any) -> type:
    """Which of its classes is one of the library, not of a checker."""
    kinds = type(x).__mro__
    return next(c for c in kinds if not c.__module__.startswith("kvbook.exercises"))


def _pickled(x: Any) -> str:
    return base64.b64encode(pickle.dumps(x)).decode("ascii")
