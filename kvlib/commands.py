"""How every command of kvlib ends: ``sys.exit(run(main))``. Needs nothing but Python.

A reader that closes the pipe ends a command without a word; a missing package (named together with
the extra that brings it) and a full disk end it with 2 and a line, Ctrl-C with 130.
"""

import argparse
import os
import sys
from collections.abc import Callable
from typing import TextIO

CLOSED_PIPE = 141  # what a shell reports of a program that SIGPIPE ended
INTERRUPTED = 130  # the same for SIGINT
MISSING = UNWRITTEN = 2  # as for other input that a command cannot work with

EXTRAS = {
    **dict.fromkeys(("IPython", "ipywidgets", "matplotlib", "matplotlib_inline"), "book"),
    **dict.fromkeys(("nbclient", "nbformat", "tqdm"), "book"),
    "tokenizers": "checkpoints",
    "cupy": "gpu",
}  # package → the extra of pyproject.toml that installs it


def run(main: Callable[[], int]) -> int:
    """Run a command; its exit status, or that of a closed pipe, interrupt or missing package."""
    try:
        try:
            return main()
        finally:
            _flush()  # here, where a closed pipe is caught, and not as Python ends
    except BrokenPipeError:
        _write_nowhere(sys.stdout, sys.stderr)
        return CLOSED_PIPE
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return INTERRUPTED
    except Unwritten as error:
        print(f"The output cannot be written: {error}", file=sys.stderr)
        _write_nowhere(sys.stdout)
        return UNWRITTEN
    except ImportError as error:
        words = missing(error)
        if words is None:
            raise
        print(words, file=sys.stderr)
        return MISSING


def add_version(parser: argparse.ArgumentParser) -> None:
    """Give a command the option --version."""
    text = f"kvlib {sys.modules['kvlib'].__version__}"
    parser.add_argument("--version", action="version", version=text, help="print kvlib's version")


def missing(error: ImportError) -> str | None:
    """Which package is missing and how to install it; None where the error means something else."""
    if error.name is None:  # not of the import system: whoever raised it said what to install
        return str(error)
    package = error.name.partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or package not in EXTRAS:
        return None
    return f'This command needs the package {package}: pip install "kvlib[{EXTRAS[package]}]"'


class Unwritten(Exception):
    """What a command printed could not be written."""


def _flush() -> None:
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Unwritten(error.strerror) from None


def _write_nowhere(*streams: TextIO) -> None:
    """Python flushes its streams once more as it ends; let that reach no closed pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream.fileno())
