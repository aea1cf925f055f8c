"""The kernels' sources, joined so that nothing need be found on a disk; and their names.

A `Kernel` is one instantiation: Kernel("decode", "decode<Plain<Half>, 128, 4>").
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "cuda"
INCLUDE = re.compile(r'^#include "([\w.]+)"\n', re.MULTILINE)


class Kernel(NamedTuple):
    """One instantiation: the file cuda/<unit>.cu, and its name with template arguments."""

    unit: str
    name: str


@cache
def source(unit: str) -> str:
    """cuda/<unit>.cu with the files it includes written in, each once."""
    seen: set[str] = set()

    def read(name: str) -> str:
        text = (FOLDER / name).read_text(encoding="utf-8").replace("#pragma once\n", "")

        def included(match: re.Match[str]) -> str:
            file = match[1]
            if (
                file in seen or not (FOLDER / file).exists()
            ):  # processor.h is the compiler's to find
                return "" if file in seen else match[0]
            seen.add(file)
            return read(file)

        return INCLUDE.sub(included, text)

    return read(f"{unit}.cu")
