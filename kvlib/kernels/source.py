"""The kernels' sources, joined so that nothing need be found on a disk; and their names.

A `Kernel` is one instantiation: Kernel("decode", "decode<Plain<Half>, 128, 4>"). A kernel that is
not in this folder brings its source along: Kernel("", "mine<64>", text).
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "cuda"
INCLUDE = re.compile(r'^#include "([\w.]+)"\n', re.MULTILINE)


class Kernel(NamedTuple):
    """One instantiation: the file cuda/<unit>.cu, and its name with template arguments.

    text: the source, where it is not one of those files
    """

    unit: str
    name: str
    text: str = ""


def source_of(kernel: Kernel) -> str:
    """The source of a kernel with the files it includes written in, each once.

    A kernel's own text keeps its line numbers, so that a compiler's message names the right one.
    """
    if not kernel.text:
        return source(kernel.unit)
    lines = kernel.text.split("\n")
    last = max((i for i, line in enumerate(lines) if INCLUDE.match(line + "\n")), default=-1)
    head, own = "".join(line + "\n" for line in lines[: last + 1]), "\n".join(lines[last + 1 :])
    return f'{joined(head)}\n#line {last + 2} "your kernel"\n{own}'


@cache
def source(unit: str) -> str:
    """cuda/<unit>.cu with the files it includes written in, each once."""
    return joined((FOLDER / f"{unit}.cu").read_text(encoding="utf-8"))


def joined(text: str) -> str:
    """A source with the files of cuda/ that it includes written in, each once."""
    seen: set[str] = set()

    def included(match: re.Match[str]) -> str:
        file = match[1]
        if file in seen:
            return ""
        if not (FOLDER / file).exists():  # processor.h is the compiler's to find
            return match[0]
        seen.add(file)
        inner = (FOLDER / file).read_text(encoding="utf-8").replace("#pragma once\n", "")
        return INCLUDE.sub(included, inner)

    return INCLUDE.sub(included, text)
