"""Build the book twice from nothing, in folders apart, and compare all files of the two builds.

Pages, scripts, pictures, the search index. Exit status 1, and the names, where two files differ or
one is missing. A build over an older one is no clean build: it keeps pictures that no page shows.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
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
    parser.add_argument(
        "--html", type=Path, help="compare with this clean build, and build only once"
    )
    site: Path | None = parser.parse_args().html
    if site is not None and not (site / "index.html").exists():
        parser.error(f"nothing is built at {site.name}: run `make book` first")
    with tempfile.TemporaryDirectory() as folder:
        here = files(site or build(Path(folder) / "first"))
        again = files(build(Path(folder) / "second"))
    changed = differences(here, again)
    for name in changed:
        print(f"differs: {name}", file=sys.stderr)
    print(f"{len(here)} files; {len(changed)} of them differ in a second build")
    return bool(changed)


if __name__ == "__main__":
    sys.exit(main())
