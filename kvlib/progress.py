"""How far a long run has come: a bar on a terminal, where tqdm is installed."""

import sys
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any


def bar(
    progress: bool | None, total: int, unit: str = "token", what: str = "generate"
) -> AbstractContextManager[Any]:
    """A context with ``update()``: a bar, or its stand-in. See :func:`kvlib.generate`."""
    nothing = nullcontext(SimpleNamespace(update=lambda: None))
    # A notebook calls its output a terminal; a bar there would become part of the page.
    if progress is False or (progress is None and "ipykernel" in sys.modules):
        return nothing
    try:
        from tqdm.auto import tqdm
    except ImportError:
        if progress:
            raise ImportError("a progress bar needs tqdm: pip install tqdm") from None
        return nothing
    quiet = {} if progress else {"delay": 2, "disable": None}
    return tqdm(total=total, unit=unit, desc=what, **quiet)
