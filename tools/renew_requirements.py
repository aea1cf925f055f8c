"""Renew requirements.txt: all that requirements.in needs, pinned, for Python 3.11 and later.

And tools/nbgrader.txt: what nbgrader needs besides (unless UPGRADE=oldest, which it cannot use).
The resolution is universal: one file serves every platform, by markers. It needs the package
index that pip uses, and uv (installed into the environment at hand if it is missing).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOTE = """\
# The full closure of requirements.in, pinned, for Python 3.11 and later on every platform.
# Do not edit by hand. To renew: `make requirements` (all to the newest that fit), or
# `make requirements UPGRADE=numpy` (one package), then `make test`, and commit both files.
"""


def oldest() -> str:
    """Return constraints that pin each dependency to the oldest version in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["book"], *extras["checkpoints"]]
    return "\n".join(re.sub(r">=([\d.]+).*", r"==\1", name) for name in wanted if ">=" in name)


NBGRADER_NOTE = """\
# What nbgrader needs beyond requirements.txt, for make nbgrader. Renewed by make requirements.
"""


def compile_pins(upgrade: str, output: Path) -> None:
    """Write the pins for requirements.in to `output`; upgrade: as --upgrade of the command line."""
    command = []
    if upgrade in ("all", "oldest"):
        command += ["--upgrade"]
    if upgrade == "oldest":
        limits = output.with_name("oldest.txt")
        limits.write_text(oldest(), encoding="utf-8")
        command += ["--constraint", str(limits), "--no-annotate"]
    elif upgrade not in ("all", "none"):
        command += ["--upgrade-package", upgrade]
    _compile("requirements.in", output, *command)


def nbgrader_pins(requirements: Path) -> str:
    """Return the pins of nbgrader and its dependencies that are not in `requirements`."""
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "nbgrader.in", Path(folder) / "nbgrader.txt"
        source.write_text("nbgrader\n", encoding="utf-8")
        _compile(str(source), output, "--constraint", str(requirements), "--no-annotate")
        pins = output.read_text(encoding="utf-8").splitlines()
    there = {line.partition("==")[0] for line in requirements.read_text("utf-8").splitlines()}
    return "".join(f"{pin}\n" for pin in pins if pin.partition("==")[0] not in there)


def _compile(source: str, output: Path, *options: str) -> None:
    command = [sys.executable, "-m", "uv", "pip", "compile", source, "--universal", *options]
    command += ["--python-version", "3.11", "--fork-strategy", "fewest", "--no-header", "--quiet"]
    command += ["--no-emit-index-url", "--no-emit-find-links", "--output-file", str(output)]
    # a local folder of wheels must not decide what everybody installs
    environment = {k: v for k, v in os.environ.items() if k != "UV_FIND_LINKS"}
    subprocess.run(command, cwd=ROOT, check=True, env=environment)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--upgrade",
        default=os.environ.get("UPGRADE", "all"),
        help="'all' (default); 'oldest', which pyproject.toml still allows; 'none', which keeps "
        "every pin that still fits; or the name of one package",
    )
    arguments = parser.parse_args()
    if importlib.util.find_spec("uv") is None:
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "uv"], check=True)
    target = ROOT / "requirements.txt"
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "requirements.txt"
        if target.exists():
            output.write_text(target.read_text(encoding="utf-8"), encoding="utf-8")
        compile_pins(arguments.upgrade, output)
        pins = output.read_text(encoding="utf-8")
    target.write_text(NOTE + pins, encoding="utf-8")
    if arguments.upgrade != "oldest":
        found = nbgrader_pins(target)
        (ROOT / "tools" / "nbgrader.txt").write_text(NBGRADER_NOTE + found, encoding="utf-8")
    print(f"{target.name}: {sum('==' in line for line in pins.splitlines())} pins")


if __name__ == "__main__":
    main()
