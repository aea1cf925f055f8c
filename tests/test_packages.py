"""What is shipped, what importing it brings along, and whether the README tells the truth."""

from __future__ import annotations

import json
import re
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from repository import ROOT, run, version

HEAVY = ("cupy", "matplotlib", "ipywidgets", "tokenizers", "torch", "transformers", "threadpoolctl")
REFERENCE = ("config.json", "model.safetensors", "MODEL_CARD.md", "sample.py.txt")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel and sdist, built without a network by the pinned build backend."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-d", str(folder))
    return folder


def shipped() -> set[str]:
    """Every file of kvlib, by its path in the repository."""
    files = (path for path in (ROOT / "kvlib").rglob("*") if path.is_file())
    return {p.relative_to(ROOT).as_posix() for p in files if "__pycache__" not in p.parts}


def test_wheel_holds_kvlib_whole_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in names if ".dist-info/" not in name} == shipped()
    for name in REFERENCE:
        assert f"kvlib/reference/{name}" in names
    metadata = zipfile.ZipFile(wheel).read(f"kvlib-{version()}.dist-info/METADATA").decode()
    needed = re.findall(r"^Requires-Dist: ([\w.-]+)[^;\n]*$", metadata, re.M)
    assert sorted(needed) == ["array-api-compat", "numpy"]


def test_sdist_holds_kvlib_and_its_tests(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as tar:
        names = {name.split("/", 1)[1] for name in tar.getnames()}
    assert shipped() <= names
    assert {"LICENSE", "README.md", "pyproject.toml", "tests/test_frame.py"} <= names


def test_kvlib_runs_from_the_wheel_with_its_two_packages_alone(built: Path, tmp_path: Path) -> None:
    """Unpacked somewhere else, with nothing of the repository on the path."""
    (wheel,) = built.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        f"for name in {HEAVY!r}: sys.modules[name] = None\n"
        "import kvlib; assert kvlib.__file__.startswith(sys.path[0]), kvlib.__file__\n"
        "model = kvlib.load_reference_model()\n"
        "out = kvlib.generate(model, [list(b'import ')], max_new_tokens=4)\n"
        "assert len(out) == 1 and 1 <= len(out[0]) <= 4, out\n"
    )
    run(sys.executable, "-I", "-c", code)


# ---------------------------------------------------------------------------------- imports


def loaded_by(statement: str) -> set[str]:
    """Top-level names of the modules that a fresh interpreter holds after `statement`."""
    code = f"{statement}\nimport sys, json; print(json.dumps(list(sys.modules)))"
    return {name.split(".")[0] for name in json.loads(run(sys.executable, "-c", code))}


@pytest.mark.parametrize("statement", ["import kvlib", "import kvlib; kvlib.DenseCache"])
def test_import_brings_nothing_heavy(statement: str) -> None:
    assert loaded_by(statement) & set(HEAVY) == set()


def test_import_alone_brings_no_array_library_either() -> None:
    assert loaded_by("import kvlib") & {"numpy", "array_api_compat"} == set()


# ----------------------------------------------------------------------------------- README


def test_the_ten_lines_of_the_readme_run() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    lines = [line for line in block.splitlines() if line.strip() and line != "import kvlib"]
    assert len(lines) <= 10
    answer = run(sys.executable, "-c", block)
    assert "45 tokens held" in answer


def test_readme_names_only_what_exists() -> None:
    text = (ROOT / "README.md").read_text()
    for target in re.findall(r"`?make ([a-z][a-z-]+)`?", text):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M), f"make {target}"
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / link).exists(), link
