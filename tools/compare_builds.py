"""Build the book once more, elsewhere, and compare every file with the build that is there.

What is compared is what a clean build makes: pages, scripts, pictures, the search index. Exit
status 1, and the names, where two files differ or one is missing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HTML = ROOT / "_build" / "html"
# built beside the book by its own command, or a note of Sphinx to itself
NOT_OURS = ("lite/", ".buildinfo", "whole-book.html")


def files(site: Path) -> dict[str, bytes]:
    """Path in the site -> content, of every file that the book's build makes."""
    found = {p.relative_to(site).as_posix(): p for p in sorted(site.rglob("*")) if p.is_file()}
    return {
        name: path.read_bytes() for name, path in found.items() if not name.startswith(NOT_OURS)
    }


def differences(first: dict[str, bytes], second: dict[str, bytes]) -> list[str]:
    """Names of files that differ, or that one of the two lacks."""
    return sorted(n for n in first.keys() | second.keys() if first.get(n) != second.get(n))


def build(folder: Path) -> Path:
    """Build the book from nothing into `folder`; returns where the pages are."""
    jupyter_book = Path(sys.executable).with_name("jupyter-book")
    command = [str(jupyter_book), "build", "-n", "-W", "--keep-going"]
    command += ["--all", "--quiet", "--path-output", str(folder), str(ROOT)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder / "_build" / "html"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--html", type=Path, default=HTML, help="the build to compare with")
    site: Path = parser.parse_args().html
    if not (site / "index.html").exists():
        parser.error(f"nothing is built at {site.name}: run `make book` first")
    with tempfile.TemporaryDirectory() as folder:
        here, again = files(site), files(build(Path(folder)))
    changed = differences(here, again)
    for name in changed:
        print(f"differs: {name}", file=sys.stderr)
    print(f"{len(here)} files, {len(changed)} of them different in a second build")
    return bool(changed)


if __name__ == "__main__":
    sys.exit(main())
