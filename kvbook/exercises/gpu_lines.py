"""Run a learner's lines of CUDA C++ on the processor.

A learner's function gives the lines as text. They are put into a kernel, which runs in a process
of its own: what does not compile, never ends or leaves its arrays becomes words.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from kvbook.exercises.report import Finding
from kvlib.kernels.own import run_cuda
from kvlib.kernels.processor import KernelError, Traffic

SECONDS = 5.0


def run_lines(lines: Callable[[], Any], kernel: str, name: str, *rest: Any) -> Traffic:
    """Put the learner's lines into a kernel and run it. Raises Finding in words."""
    text = lines()
    if not isinstance(text, str):
        raise Finding(f"got {type(text).__name__}, needed a string of CUDA C++")
    if not text.strip():
        raise Finding("the string is empty: put your lines of CUDA C++ into it")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Finding(f"your lines hold a character that UTF-8 cannot encode: {error}") from None
    whole = kernel.replace("@@", f'#line 1 "your lines"\n{text}\n#line 900 "the kernel"')
    try:
        traffic = run_cuda(whole, name, *rest, run_on="processor", seconds=SECONDS)
    except ImportError as error:
        raise Finding(f"your lines could not be compiled here: {error}") from None
    except KernelError as error:
        raise Finding(_in_words(str(error), text)) from None
    assert traffic is not None
    return traffic


def _in_words(said: str, text: str) -> str:
    if "does not compile" not in said:
        return said
    found = re.search(r"(your lines|the kernel|your kernel):(\d+):(?:\d+:)? error: (.*)", said)
    if found is None:
        return said
    if found[1] != "your lines":
        return (
            f"your lines do not compile with the kernel around them: {found[3]}. Look for a brace "
            "or a semicolon that is missing, or a name of the kernel that you declare anew"
        )
    lines, n = text.splitlines(), int(found[2])
    own = f"\nat the line: {lines[n - 1].strip()}" if n <= len(lines) else ""
    return f"line {n} of yours does not compile: {found[3]}{own}"
