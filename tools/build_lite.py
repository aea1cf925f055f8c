"""Build the JupyterLite site beside the book: the chapters, with a Python inside the browser.

    tools/build_lite.py                  # _build/html/lite, for a web server: Pyodide from its CDN
    tools/build_lite.py --local FOLDER   # everything from FOLDER, for the test (fetch_pyodide.py)

It runs `jupyter lite build` beside the book, not jupyterlite-sphinx inside it: that extension asks
a font server for a font on the book's own pages, its copies of the notebooks are sources that
Sphinx warns of, and the test's second site would take a second build of the book.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from lite_notebooks import write_contents

ROOT = Path(__file__).resolve().parent.parent
LITE = ROOT / "lite"
SITE = ROOT / "_build" / "html" / "lite"
APPS = ("notebooks", "lab", "tree")
EXTENSIONS = ("@jupyterlite/pyodide-kernel-extension", "@jupyter-widgets/jupyterlab-manager")
# How the site is put together. What else is installed here may ask for a Jupyter server.
BUILD = {
    "LiteBuildConfig": {
        "apps": list(APPS),
        "output_dir": "site",
        "no_sourcemaps": True,
        "no_unused_shared_packages": True,
        "ignore_sys_prefix": ["federated_extensions"],
        "federated_extensions": [
            str(Path(sys.prefix) / "share" / "jupyter" / "labextensions" / name)
            for name in EXTENSIONS
        ],
    }
}
KERNEL = "@jupyterlite/pyodide-kernel-extension:kernel"
# An application that a browser refuses to run from a file would show an empty page; without an icon
# in the page, the browser asks the server for /favicon.ico, which is not there.
HEAD = """<link rel="icon" href="../icon-120x120.png">
<script>
if (location.protocol === "file:") location.replace("../../book/anywhere.html#from-a-server");
</script>
"""


def build_wheel(folder: Path) -> None:
    """kvlib's wheel, made without a network by the pinned backend."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def configuration(local: bool) -> dict[str, Any]:
    """jupyter-lite.json: what every application of the site reads."""
    kernel = {"disablePyPIFallback": True} if local else {}
    data = {"appName": "The KV Cache Book", "litePluginSettings": {KERNEL: kernel}}
    return {"jupyter-lite-schema-version": 0, "jupyter-config-data": data}


def build(output: Path, pyodide: Path | None = None) -> None:
    """Build the site at `output`; with `pyodide` (core/ and wheels/) it needs nothing else."""
    with tempfile.TemporaryDirectory() as temporary:
        project = Path(temporary)
        write_contents(project / "files")
        build_wheel(project / "pypi")
        if pyodide is not None:
            shutil.copytree(pyodide / "core", project / "static" / "pyodide")
            shutil.copytree(pyodide / "wheels", project / "pypi", dirs_exist_ok=True)
        config = configuration(local=pyodide is not None)
        (project / "jupyter-lite.json").write_text(json.dumps(config), encoding="utf-8")
        shutil.copy(LITE / "overrides.json", project)
        (project / "jupyter_lite_config.json").write_text(json.dumps(BUILD), encoding="utf-8")
        command = [sys.executable, "-m", "jupyterlite_core", "build", "--no-libarchive"]
        done = subprocess.run(command, cwd=project, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"jupyter lite build failed:\n{done.stdout}{done.stderr}")
        for app in APPS:
            page = project / "site" / app / "index.html"
            page.write_text(
                page.read_text(encoding="utf-8").replace("<head>", f"<head>\n{HEAD}", 1),
                encoding="utf-8",
            )
        shutil.rmtree(output, ignore_errors=True)
        output.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(project / "site", output)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--output", type=Path, default=SITE, help="where to write (default: _build/html/lite)"
    )
    parser.add_argument("--local", type=Path, help="copy Pyodide from this folder into the site")
    arguments = parser.parse_args()
    build(arguments.output, arguments.local)
    size = sum(path.stat().st_size for path in arguments.output.rglob("*") if path.is_file())
    print(f"JupyterLite: {size / 1e6:.0f} MB in {arguments.output}")


if __name__ == "__main__":
    main()
