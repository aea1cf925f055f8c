"""The book where nothing is installed: what the browser's Python and launch services find."""

import json
import os
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import build_lite
import fetch_pyodide
import launch_buttons
import lite_notebooks
import nbformat
import pytest
import yaml
from jupyterlite_pyodide_kernel.constants import PYODIDE_VERSION
from packaging.requirements import Requirement
from rendered import tags_of
from repository import ROOT, run

PINS = json.loads(fetch_pyodide.PINS.read_text(encoding="utf-8"))
REQUIREMENTS = (ROOT / "requirements.txt").read_text(encoding="utf-8")
MYST = r"\{[\w:-]+\}`|^:::|^[:`]{3,}\{"  # a role, or the edge of a directive
GITHUB = "https://github.com/someone/kv-cache-book"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build_lite.build_wheel(folder)
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def bare_python(code: str, *paths: Path) -> str:
    """What `code` prints in a Python that sees its standard library and `paths`."""
    start = f"import sys; sys.path[:0] = {[str(path) for path in paths]!r}\n"
    return run(sys.executable, "-I", "-S", "-c", start + code, env={"PATH": os.defpath})


def test_the_wheel_is_pure_python(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl"), "the browser's installer takes no other"
    names = zipfile.ZipFile(wheel).namelist()
    (metadata,) = (name for name in names if name.endswith(".dist-info/WHEEL"))
    assert "Root-Is-Purelib: true" in zipfile.ZipFile(wheel).read(metadata).decode()
    assert [name for name in names if name.endswith((".so", ".pyd", ".dylib"))] == []


def test_costs_and_sliders_need_python_alone(unpacked: Path) -> None:
    out = bare_python(
        "import importlib.util as util\n"
        "assert not any(util.find_spec(n) for n in ('numpy', 'matplotlib', 'ipywidgets'))\n"
        "import kvlib\n"
        "from kvlib.costs import GPUS, MODELS, decode\n"
        "print(MODELS['llama-3.1-8b'].kv_bytes_per_token())\n"
        "print(decode(MODELS['llama-2-7b'], 1, 4096).floor(GPUS['h100-sxm']).bound)\n"
        "from kvbook.explorers.catalogue import ALL\n"
        "from kvbook.explorers import svg\n"
        "for make in ALL.values():\n"
        "    made = make()\n"
        "    print(made.name, len(svg.draw(made.scene())) > 1000, len(made.to_html()) > 1000)\n",
        unpacked,
    )
    first, second, *explorers = out.splitlines()
    assert (first, second) == ("128.00 KiB", "memory")
    assert explorers and all(line.endswith("True True") for line in explorers), out


def test_the_model_runs_with_numpy_alone_and_no_threads(unpacked: Path, tmp_path: Path) -> None:
    """A Python in WebAssembly has one processor and cannot start a thread."""
    import array_api_compat
    import numpy

    for module in (numpy, array_api_compat):
        place = Path(module.__file__).parent
        (tmp_path / place.name).symlink_to(place)
        if (libraries := place.with_name(f"{place.name}.libs")).exists():
            (tmp_path / libraries.name).symlink_to(libraries)
    out = bare_python(
        "import os, threading\n"
        'def refuse(self): raise RuntimeError("can\'t start new thread")\n'
        "threading.Thread.start = refuse\n"
        "os.cpu_count, os.sched_getaffinity = (lambda: 1), (lambda pid: {0})\n"
        "import kvlib\n"
        "model = kvlib.load_reference_model()\n"
        "print(len(kvlib.generate(model, [list(b'import ')] * 9, max_new_tokens=3)))\n",
        unpacked, tmp_path,
    )
    assert out == "9\n"


def test_the_pins_are_for_the_kernel_in_use() -> None:
    renew = "run tools/fetch_pyodide.py --renew"
    assert PINS["pyodide"] == PYODIDE_VERSION, renew
    for name in fetch_pyodide.BESIDE:
        (pinned,) = re.findall(rf"^{name}==\S+", REQUIREMENTS, re.M)
        assert pinned in PINS["wheels"], renew
    hashes = [PINS["sha256"], *PINS["wheels"].values()]
    assert all(re.fullmatch("[0-9a-f]{64}", value) for value in hashes)
    names = {Requirement(name).name for name in PINS["wheels"]}
    assert set(fetch_pyodide.STARTS_WITH + fetch_pyodide.BESIDE) <= names


def test_closure_follows_names_however_they_are_written() -> None:
    packages = {
        "a": {"depends": ["B_b"]}, "b-b": {"depends": ["c.c"]}, "C_C": {"depends": ["a"]},
        "d": {"depends": []},
    }
    assert list(fetch_pyodide.closure(packages, ("A",))) == ["a", "b-b", "c-c"]


def test_a_lock_takes_the_wheels_that_came_and_no_other_version(tmp_path: Path) -> None:
    needed = {n: {"depends": [], "version": "1", "sha256": ""} for n in fetch_pyodide.STARTS_WITH}
    lock = tmp_path / fetch_pyodide.LOCK
    lock.write_text(
        json.dumps({"info": 0, "packages": needed | {"numpy": {"depends": []}}}), encoding="utf-8"
    )
    wheels = [tmp_path / f"{name}-1-py3-none-any.whl" for name in (*needed, "comm")]
    for path in wheels:
        path.write_bytes(path.name.encode())
    assert fetch_pyodide.rewrite_lock(tmp_path, wheels) == wheels[-1:]
    written = json.loads(lock.read_text(encoding="utf-8"))["packages"]
    assert set(written) == set(needed)
    for path in wheels[:-1]:
        entry = written[path.name.split("-")[0]]
        assert (entry["file_name"], entry["sha256"]) == (path.name, fetch_pyodide.sha256(path))
    other = wheels[0].rename(tmp_path / wheels[0].name.replace("-1-", "-2-"))
    with pytest.raises(ValueError, match="needed version 1"):
        fetch_pyodide.rewrite_lock(tmp_path, [other, *wheels[1:]])


def texts_of(cell: dict[str, Any]) -> Iterator[Any]:
    """The source of a cell and what it printed and showed."""
    yield cell["source"]
    for output in cell.get("outputs", []):
        yield from (output[key] for key in ("text",) if key in output)
        yield from (data for kind, data in output.get("data", {}).items() if "json" not in kind)


def test_every_chapter_goes_to_the_browser_with_a_cell_that_installs(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    lite_notebooks.write_contents(folder)
    sources = [*lite_notebooks.chapters(), ROOT / "lite" / "costs.ipynb"]
    assert {path.name for path in folder.iterdir()} == {path.name for path in sources}
    assert {path.name for path in sources} > {"intro.ipynb", "memory.ipynb"}
    for source in sources:
        held = json.loads((folder / source.name).read_text(encoding="utf-8"))
        texts = [text for cell in held["cells"] for text in texts_of(cell)]
        assert all(isinstance(text, str) for text in texts), "lists of lines would get commas"
        before = nbformat.read(source, as_version=4)
        after = nbformat.read(folder / source.name, as_version=4)
        nbformat.validate(after)
        install = after.cells.pop(1)
        code = [cell.source for cell in before.cells if cell.cell_type == "code"]
        assert [cell.source for cell in after.cells if cell.cell_type == "code"] == code
        for cell in after.cells:
            if cell.cell_type == "markdown":
                assert not re.search(MYST, cell.source, re.M), cell.source
            elif "solution" in cell.metadata.get("tags", []):
                assert cell.metadata.jupyter.source_hidden, "a solution is read on request"
        (line,) = re.findall(r"^%pip install (.*)$", install.source, re.M)
        names = [Requirement(word).name for word in line.split() if not word.startswith("-")]
        assert "kvlib" in names and "ipywidgets" in names
        assert ("--no-deps" in line) == (source.name == "costs.ipynb")


def test_the_chapters_import_nothing_that_the_browser_lacks() -> None:
    known = set(sys.stdlib_module_names) | {"numpy", "kvbook"}
    known |= {name.replace("-", "_") for name in lite_notebooks.CHAPTER_NEEDS}
    for path in lite_notebooks.chapters():
        cells = nbformat.read(path, as_version=4).cells
        code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
        imported = set(re.findall(r"^(?:import|from) (\w+)", code, re.M))  # not inside try
        assert imported <= known, f"{path.name}: {imported - known}"


def test_a_requirement_has_the_version_of_the_tests() -> None:
    assert lite_notebooks.requirement("numpy") == "numpy"
    assert f"\n{lite_notebooks.requirement('ipywidgets')}\n" in REQUIREMENTS


PLACES = {"binderhub_url": "https://b", "colab_url": "https://c", "jupyterhub_url": ""}


def test_no_address_no_buttons() -> None:
    options = {"show_toc_level": 2, "repository_url": "", "launch_buttons": PLACES}
    assert launch_buttons.usable(options) == {"show_toc_level": 2}
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["sphinx"]["config"]
    assert config["html_theme_options"]["repository_url"] == "", "no public address exists yet"


@pytest.mark.parametrize(("address", "places"), [
    (GITHUB, {"binderhub_url", "colab_url"}),
    ("https://gitlab.com/someone/book", {"binderhub_url"}),  # Colab reads GitHub alone
])
def test_an_address_brings_the_places_that_can_read_it(address: str, places: set[str]) -> None:
    options = launch_buttons.usable({"repository_url": address, "launch_buttons": PLACES})
    assert options["repository_url"] == address
    assert set(options["launch_buttons"]) == places


def test_one_setting_brings_the_buttons(tmp_path: Path) -> None:
    """A book of one chapter, built with the book's own settings and an address."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    options = config["sphinx"]["config"]["html_theme_options"]
    options["repository_url"] = GITHUB
    options["launch_buttons"]["jupyterhub_url"] = "https://hub.example.org"
    (tmp_path / "_config.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: book/page\n", encoding="utf-8")
    (tmp_path / "book").mkdir()
    for name in ("tools", "assets", "book/_static", "book/_templates", "book/references.bib"):
        (tmp_path / name).symlink_to(ROOT / name)
    page = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# A page")])
    page.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(page, tmp_path / "book" / "page.ipynb")
    run(str(Path(sys.executable).parent / "jupyter-book"), "build", "-n", "-W", str(tmp_path))
    built = (tmp_path / "_build" / "html" / "book" / "page.html").read_text(encoding="utf-8")
    links = [at.get("href") for tag, at in tags_of(built) if tag == "a"]
    repository = "someone/kv-cache-book"
    for wanted in (
        f"https://mybinder.org/v2/gh/{repository}/main?urlpath=lab/tree/book/page.ipynb",
        f"https://colab.research.google.com/github/{repository}/blob/main/book/page.ipynb",
        f"https://hub.example.org/hub/user-redirect/git-pull?repo=https%3A//github.com/{repository}"
        "&urlpath=lab/tree/kv-cache-book/book/page.ipynb&branch=main",
        "../lite/notebooks/index.html?path=page.ipynb",
    ):
        assert wanted in links, links


def test_the_files_for_repo2docker_say_what_the_project_says() -> None:
    folder = ROOT / "binder"
    assert {path.name for path in folder.iterdir()} == {"requirements.txt", "runtime.txt"}
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (least,) = re.findall(r'requires-python = ">=([\d.]+)"', project)
    assert (folder / "runtime.txt").read_text(encoding="utf-8") == f"python-{least}\n"
    lines = (folder / "requirements.txt").read_text(encoding="utf-8").splitlines()
    constraint, package = (line for line in lines if not line.startswith("#"))
    assert (folder / constraint.removeprefix("-c ")).samefile(ROOT / "requirements.txt")
    extras = re.findall(r"\w+", package.removeprefix("."))
    assert package.startswith(".[") and extras
    assert all(re.search(rf"^{extra} = \[", project, re.M) for extra in extras)
