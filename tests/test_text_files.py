"""Text is UTF-8 wherever kvlib and the tools read or write it, whatever the user's locale."""

import ast
from collections.abc import Iterator

from repository import ROOT

FIRST = {"read_text": 0, "write_text": 1}  # the index of encoding among the arguments


def without_encoding(source: str) -> Iterator[int]:
    """Lines that read or write a text file in the encoding of the locale."""
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call) or any(k.arg == "encoding" for k in call.keywords):
            continue
        if isinstance(call.func, ast.Attribute) and call.func.attr in FIRST:
            if len(call.args) <= FIRST[call.func.attr]:
                yield call.lineno
        elif isinstance(call.func, ast.Name) and call.func.id == "open":
            modes = [a.value for a in call.args[1:2] if isinstance(a, ast.Constant)]
            if "b" not in "".join(map(str, modes)):
                yield call.lineno


def test_every_text_file_names_its_encoding() -> None:
    found = [
        f"{path.relative_to(ROOT).as_posix()}:{line}"
        for folder in ("kvlib", "kvbook", "tools", "benchmarks")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in without_encoding(path.read_text(encoding="utf-8"))
    ]
    assert found == [], 'say encoding="utf-8" there'


def test_what_counts_as_a_text_file() -> None:
    source = (
        'open("a")\nopen("a", "w")\nopen("a", "rb")\nopen("a", encoding="utf-8")\n'
        'p.read_text()\np.read_text("utf-8")\np.write_text(x)\np.read_bytes()\np.open("rb")\n'
    )
    assert sorted(without_encoding(source)) == [1, 2, 5, 7]
