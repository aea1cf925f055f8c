"""The kernels' CUDA sources, each joined into one text, and the names of their instantiations."""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "cuda"
ONLY = {"prefill_wgmma": "9.0"}  # units with instructions of one compute capability alone
INCLUDE = re.compile(r'^#include "([\w.]+)"\n', re.MULTILINE)


class Kernel(NamedTuple):
    """One instantiation, such as Kernel("decode", "decode<Plain<Half>, 128, 4>") of cuda/decode.cu;
    text: the source, if it is not one of those files."""

    unit: str
    name: str
    text: str = ""


def source_of(kernel: Kernel) -> str:
    """The source of a kernel with included files written in; custom text keeps its line numbers."""
    if not kernel.text:
        return source(kernel.unit)
    lines = kernel.text.split("\n")
    last = max((i for i, line in enumerate(lines) if INCLUDE.match(line + "\n")), default=-1)
    head, rest = "".join(line + "\n" for line in lines[: last + 1]), "\n".join(lines[last + 1 :])
    return f'{joined(head)}\n#line {last + 2} "your kernel"\n{rest}'


@cache
def source(unit: str) -> str:
    """cuda/<unit>.cu with the files it includes written in, each once."""
    return joined((FOLDER / f"{unit}.cu").read_text(encoding="utf-8"))


def joined(text: str) -> str:
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
