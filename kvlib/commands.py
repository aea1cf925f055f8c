"""How every command of kvlib ends: ``sys.exit(run(main))``. Needs nothing but Python.

A reader that closes the pipe (``python -m kvlib models | head -3``) ends a command without a word,
and a package that is not installed is named together with the extra that brings it. Any other
error keeps its traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

CLOSED_PIPE = 141  # what a shell reports of a program that SIGPIPE ended
MISSING = 2  # as for other input that a command cannot work with

EXTRAS = {
    **dict.fromkeys(("IPython", "ipywidgets", "matplotlib", "matplotlib_inline"), "book"),
    **dict.fromkeys(("nbformat", "tqdm"), "book"),
    "tokenizers": "checkpoints",
    "cupy": "gpu",
}  # package → the extra of pyproject.toml that installs it


def run(main: Callable[[], int]) -> int:
    """Run a command; its exit status, or what stands above for a closed pipe or a missing package.

    >>> run(lambda: 0)
    0
    """
    try:
        try:
            return main()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # here, where a closed pipe is caught, and not as Python ends
    except BrokenPipeError:
        _write_nowhere()
        return CLOSED_PIPE
    except ImportError as error:
        words = missing(error)
        if words is None:
            raise
        print(words, file=sys.stderr)
        return MISSING


def missing(error: ImportError) -> str | None:
    """Which package is missing and how to install it; None where the error means something else.

    >>> missing(ModuleNotFoundError("No module named 'nbformat'", name="nbformat"))
    'This command needs the package nbformat: pip install "kvlib[book]"'
    """
    if error.name is None:  # not of the import system: whoever raised it said what to install
        return str(error)
    package = error.name.partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or package not in EXTRAS:
        return None
    return f'This command needs the package {package}: pip install "kvlib[{EXTRAS[package]}]"'


def _write_nowhere() -> None:
    """Python flushes both streams once more as it ends; let that reach no closed pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
