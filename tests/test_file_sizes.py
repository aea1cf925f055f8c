"""Files are short, or say in their first lines why they are not."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST = 250  # lines
REASON = re.compile(r"\b[Ll]ong\b|\bOne (class|file)\b|\bone file\b")


def without_reason(root: Path) -> list[str]:
    """The Python files of kvlib, tools and benchmarks that are long and do not say why."""
    found = []
    for part in ("kvlib", "tools", "benchmarks"):
        for path in sorted((root / part).rglob("*.py")):
            lines = path.read_text(encoding="utf-8").splitlines()
            first = "\n".join(lines).partition("from __future__")[0]
            if len(lines) > MOST and not REASON.search(first):
                found.append(f"{path.relative_to(root)}: {len(lines)} lines")
    return found


def test_long_files_say_why():
    assert without_reason(ROOT) == []


def test_a_long_file_without_a_reason_is_found(tmp_path):
    (tmp_path / "kvlib").mkdir()
    body = "from __future__ import annotations\n" + "x = 1\n" * MOST
    (tmp_path / "kvlib" / "a.py").write_text('"""All of it."""\n' + body)
    (tmp_path / "kvlib" / "b.py").write_text('"""All of it. (Long: tables.)"""\n' + body)
    assert without_reason(tmp_path) == ["kvlib/a.py: 252 lines"]
