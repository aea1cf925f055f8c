"""What the records of the exercises on the GPU can't say."""

from typing import Any

import pytest

from kvbook.exercises import gpu
from kvlib.kernels.processor import compiled, compiler


def has_compiler() -> bool:
    """Whether kvlib finds a C++ compiler: one of the system's, or the one that ziglang carries."""
    try:
        return bool(compiler())
    except ImportError:
        return False


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("check", [gpu.check_split_range, gpu.check_shared_heads])
@pytest.mark.parametrize(("lines", "words"), [
    (7, "needed a string of CUDA C++"), (" \n", "the string is empty"),
    ("// \ud800", "UTF-8 cannot encode"),
    ("while (true) end = len;", "had not ended after"),
])
def test_lines_that_are_none(check: Any, lines: Any, words: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(gpu, "SECONDS", 1.0)
    if check is gpu.check_shared_heads and isinstance(lines, str):
        lines = lines.replace("end = len", "l[0] = 0")
    report = check(lambda: lines)
    assert report.status == "not yet" and words in report.finding, report


def test_without_a_compiler_the_checker_says_so(monkeypatch: Any) -> None:
    def missing() -> None:
        raise ImportError("running CUDA kernels on a processor needs a C++ compiler")

    monkeypatch.setattr(compiled, "compiler", missing)
    report = gpu.check_split_range(lambda: gpu.split_range() + "// anew")
    assert "could not be compiled here" in report.finding, report
