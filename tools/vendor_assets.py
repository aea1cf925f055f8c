"""Fetch the browser files of the rendered book and its tests, so that pages load nothing else.

Each package comes from npm at the version below; only the files in use are kept, with their
licence: what a page needs under assets/vendor (copied to the root of the site by
`html_extra_path`), what a test needs under tests/vendor. The result is committed: building and
testing the book needs neither Node nor a network.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tqdm.auto import tqdm

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Package:
    """One npm package and what is taken from it (path in the package -> path in the folder)."""

    name: str
    version: str
    files: dict[str, str]


PAGES = (
    # tex-svg draws formulas as SVG paths: one file, no fonts, the same from file:// and a server
    Package("mathjax", "3.2.2", {"es5/tex-svg.js": "tex-svg.js", "LICENSE": "LICENSE"}),
)
TESTS = (
    # rules for accessible pages, run by tests/test_rendered_access.py
    Package("axe-core", "4.14.1", {"axe.min.js": "axe.min.js", "LICENSE": "LICENSE"}),
)
FOLDERS = {"assets/vendor": PAGES, "tests/vendor": TESTS}


def fetch(package: Package, folder: Path) -> dict[str, bytes]:
    """Return the wanted files of `package`, downloaded by npm into `folder`."""
    source = f"{package.name}@{package.version}"
    command = ["npm", "pack", source, "--silent", "--pack-destination", str(folder)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    archive = folder / answer.strip().splitlines()[-1]
    found = {}
    with tarfile.open(archive) as tar:
        for inside, name in package.files.items():
            member = tar.extractfile(f"package/{inside}")
            if member is None:
                raise FileNotFoundError(f"{source} has no file {inside}")
            found[name] = member.read()
    return found


def manifest_entry(package: Package, files: dict[str, bytes]) -> dict[str, object]:
    """What the manifest says of a package: version, and size and SHA-256 of every file."""
    return {
        "version": package.version,
        "files": {
            name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in sorted(files.items())
        },
    }


def vendor(packages: tuple[Package, ...], output: Path) -> None:
    """Fetch the packages into `output`, and write what came into its manifest."""
    manifest = {}
    with tempfile.TemporaryDirectory() as temporary:
        for package in tqdm(packages, desc=output.parent.name, unit="package"):
            files = fetch(package, Path(temporary))
            target = output / package.name.removeprefix("@").replace("/", "-")
            target.mkdir(parents=True, exist_ok=True)
            for name, data in files.items():
                (target / name).write_bytes(data)
            manifest[package.name] = manifest_entry(package, files)
    (output / "manifest.json").write_text(
        json.dumps(manifest, indent=1, sort_keys=True) + "\n", encoding="utf-8"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository to write into")
    root: Path = parser.parse_args().root
    for folder, packages in FOLDERS.items():
        vendor(packages, root / folder)


if __name__ == "__main__":
    main()
