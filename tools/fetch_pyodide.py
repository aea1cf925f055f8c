"""Fetch Pyodide and the packages that its kernel needs, for the browser test.

The core comes from npm and the Python packages under IPython from PyPI, at the versions and hashes
of lite/kernel.json.

A reader's browser gets the same things from Pyodide's own server. The test has no such server, so
what is fetched here is laid out like it, with a lock file that lists these packages alone. 18 MB,
kept under _build/cache and never committed. `--renew` writes hashes for the Pyodide that the kernel
now needs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PINS = ROOT / "lite" / "kernel.json"
CACHE = ROOT / "_build" / "cache" / "pyodide"
CORE = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip")
LOCK = "pyodide-lock.json"
# What the kernel installs as it starts: these and all they need are taken from Pyodide's lock
# file. comm is not in it, and ipywidgets makes the sliders.
STARTS_WITH = ("ipython", "jedi", "micropip")
BESIDE = ("comm", "ipywidgets")
DONE = "fetched"  # the digest of the pins that a folder was filled from


def normal(name: str) -> str:
    """A package's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(packages: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The entries of a Pyodide lock that `names` need, by normal name, sorted."""
    known = {normal(name): entry for name, entry in packages.items()}
    found: dict[str, Any] = {}
    waiting = [normal(name) for name in names]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = known[name]
            waiting += [normal(needed) for needed in known[name]["depends"]]
    return dict(sorted(found.items()))


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def digest(pins: dict[str, Any]) -> str:
    """One hash for all pins: a folder filled from other ones is filled again."""
    return hashlib.sha256(json.dumps(pins, sort_keys=True).encode()).hexdigest()


def fetch_core(version: str, folder: Path) -> Path:
    """Pyodide's npm package, as npm packs it."""
    command = ["npm", "pack", f"pyodide@{version}", "--loglevel=error"]
    command += ["--pack-destination", str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"npm could not fetch pyodide {version}; what it says of it stands above")
    return folder / done.stdout.strip().splitlines()[-1]


def fetch_wheels(requirements: str, folder: Path) -> list[Path]:
    """Wheels for these lines of a requirements file, for any platform, without dependencies."""
    listed = folder / "requirements.txt"
    listed.write_text(requirements, encoding="utf-8")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    command += ["--no-deps", "--only-binary", ":all:", "--python-version", "3.14"]
    subprocess.run([*command, "-d", str(folder), "-r", str(listed)], check=True)
    return sorted(folder.glob("*.whl"))


def unpack_core(archive: Path, folder: Path) -> None:
    """Lay the files that a browser loads into `folder`, and the lock file with them."""
    with tarfile.open(archive) as tar:
        for name in (*CORE, LOCK):
            member = tar.extractfile(f"package/{name}")
            if member is None:
                raise FileNotFoundError(f"{archive.name} has no file {name}")
            (folder / name).write_bytes(member.read())


def rewrite_lock(folder: Path, wheels: list[Path]) -> list[Path]:
    """Make the lock list the packages that are in `folder`, with their own hashes.

    PyPI's wheels have the versions of Pyodide's and other bytes. Returns the wheels that Pyodide
    does not know; a site hands those out itself.
    """
    lock = json.loads((folder / LOCK).read_text(encoding="utf-8"))
    entries = closure(lock["packages"], STARTS_WITH)
    by_name = {normal(wheel.name.split("-")[0]): wheel for wheel in wheels}
    for name, entry in entries.items():
        wheel = by_name.pop(name)
        if wheel.name.split("-")[1] != entry["version"]:
            raise ValueError(f"{name}: got {wheel.name}, needed version {entry['version']}")
        entry |= {"file_name": wheel.name, "sha256": sha256(wheel)}
    (folder / LOCK).write_text(
        json.dumps(lock | {"packages": entries}, sort_keys=True), encoding="utf-8"
    )
    return list(by_name.values())


def fetch(pins: dict[str, Any], folder: Path) -> None:
    """Fill `folder` with core/ (what Pyodide's server holds) and wheels/ (what the site holds)."""
    with tempfile.TemporaryDirectory() as temporary:
        archive = fetch_core(pins["pyodide"], Path(temporary))
        if sha256(archive) != pins["sha256"]:
            raise ValueError(
                f"{archive.name}: got the hash {sha256(archive)}, needed {pins['sha256']}"
            )
        lines = [f"{name} --hash=sha256:{value}" for name, value in pins["wheels"].items()]
        wheels = fetch_wheels("\n".join(lines) + "\n", Path(temporary))
        shutil.rmtree(folder, ignore_errors=True)
        for part in ("core", "wheels"):
            (folder / part).mkdir(parents=True)
        unpack_core(archive, folder / "core")
        beside = rewrite_lock(folder / "core", wheels)
        for wheel in wheels:
            shutil.copy(wheel, folder / ("wheels" if wheel in beside else "core"))
    (folder / DONE).write_text(digest(pins), encoding="utf-8")


def fetched(folder: Path = CACHE) -> bool:
    """Whether `folder` holds what the pins name."""
    done = folder / DONE
    return done.exists() and done.read_text(encoding="utf-8") == digest(
        json.loads(PINS.read_text(encoding="utf-8"))
    )


def renew(version: str) -> dict[str, Any]:
    """The pins of another Pyodide version, from npm and PyPI as they are today."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        archive = fetch_core(version, folder)
        unpack_core(archive, folder)
        entries = closure(
            json.loads((folder / LOCK).read_text(encoding="utf-8"))["packages"], STARTS_WITH
        )
        names = [f"{name}=={entry['version']}" for name, entry in entries.items()]
        pinned = (ROOT / "requirements.txt").read_text(encoding="utf-8")
        names += [re.findall(rf"^{name}==\S+", pinned, re.M)[0] for name in BESIDE]
        hashes = {}
        for wheel in fetch_wheels("\n".join(names) + "\n", folder):
            name = normal(wheel.name.split("-")[0])
            hashes[f"{name}=={wheel.name.split('-')[1]}"] = sha256(wheel)
        return {"pyodide": version, "sha256": sha256(archive), "wheels": hashes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--renew",
        action="store_true",
        help="write hashes for the Pyodide that the kernel now needs to lite/kernel.json",
    )
    arguments = parser.parse_args()
    if arguments.renew:
        from jupyterlite_pyodide_kernel.constants import PYODIDE_VERSION

        PINS.write_text(json.dumps(renew(PYODIDE_VERSION), indent=1) + "\n", encoding="utf-8")
    if fetched():
        print("Pyodide is there already.")
        return
    in_ci = os.environ.get("CI", "").lower() == "true"
    if shutil.which("npm") is None and not in_ci:
        print("This machine has no npm, so the kernel in the browser is not tested.")
        return
    try:
        fetch(json.loads(PINS.read_text(encoding="utf-8")), CACHE)
    except subprocess.CalledProcessError as error:
        if in_ci:
            raise
        print(f"{error.cmd[0]} failed, so the kernel in the browser is not tested.")
        return
    size = sum(path.stat().st_size for path in CACHE.rglob("*") if path.is_file())
    print(f"Pyodide fetched: {size / 1e6:.0f} MB in {CACHE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
