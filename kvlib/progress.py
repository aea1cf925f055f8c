"""How far a long run has come: a bar on a terminal, where tqdm is installed."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any


class _NoBar:
    """Stands in where tqdm is not installed or no bar is wanted."""

    def update(self) -> None:
        """Nothing to draw."""


def bar(
    progress: bool | None, total: int, unit: str = "token", what: str = "generate"
) -> AbstractContextManager[Any]:
    """A context with ``update()``: a bar, or what stands in for one. See :func:`kvlib.generate`."""
    # A notebook calls its output a terminal; a bar there would become part of the page.
    if progress is False or (progress is None and "ipykernel" in sys.modules):
        return nullcontext(_NoBar())
    try:
        from tqdm.auto import tqdm
    except ImportError:
        if progress:
            raise ImportError("a progress bar needs tqdm: pip install tqdm") from None
        return nullcontext(_NoBar())
    quiet = {} if progress else {"delay": 2, "disable": None}
    return tqdm(total=total, unit=unit, desc=what, **quiet)
