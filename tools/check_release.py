"""Check that a tag can be released: it names the version, and so do changelog and citation.

python tools/check_release.py v0.1.0        needs nothing but Python
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def version(root: Path = ROOT) -> str:
    """kvlib's version, read without importing it."""
    text = (root / "kvlib" / "__init__.py").read_text(encoding="utf-8")
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__version__":
            return str(ast.literal_eval(node.value))
    raise SystemExit("kvlib/__init__.py sets no __version__")


def faults(tag: str | None, root: Path = ROOT) -> list[str]:
    """What keeps a tag from being released, a sentence each; without a tag, what never may be."""
    here = version(root)
    cited = dict(
        re.findall(r"^([a-z-]+): (.+)$", (root / "CITATION.cff").read_text(encoding="utf-8"), re.M)
    )
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    found = []
    if cited.get("version") != here:
        found.append(f"CITATION.cff has version {cited.get('version')}, expected {here}.")
    day = cited.get("date-released")
    if f"## {here} ({day})" not in changes.splitlines():
        found.append(f"CHANGELOG.md needs the heading '## {here} ({day})', as in CITATION.cff.")
    if tag is not None and tag != f"v{here}":
        found.append(f"The tag is {tag}, expected v{here}, as kvlib/__init__.py says.")
    unreleased = re.search(r"^## Unreleased\n+(?!## )\S", changes, re.M)
    if tag is not None and unreleased:
        found.append("CHANGELOG.md has lines under Unreleased: move them under the new version.")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tag", help="for example v0.1.0")
    tag: str = parser.parse_args().tag
    found = faults(tag)
    print("\n".join(found) or f"{tag} can be released.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
