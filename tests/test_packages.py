"""What is shipped, what importing it brings along, and whether the README tells the truth."""

import importlib
import json
import os
import pkgutil
import re
import sys
import tarfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from repository import ROOT, run, version

import kvlib

HEAVY = ("cupy", "matplotlib", "ipywidgets", "tokenizers", "torch", "transformers", "threadpoolctl")
NEEDED = ("numpy", "array_api_compat")
REFERENCE = ("config.json", "model.safetensors", "MODEL_CARD.md", "sample.py.txt")
DRAFT = ("config.json", "model.safetensors", "tokenizer_config.json", "MODEL_CARD.md")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel and sdist: KVLIB_DIST names their folder, or the pinned build backend builds them."""
    if given := os.environ.get("KVLIB_DIST"):
        return ROOT / given
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-d", str(folder))
    return folder


def shipped() -> set[str]:
    """Every file of both packages, by its path in the repository."""
    files = (p for name in ("kvlib", "kvbook") for p in (ROOT / name).rglob("*") if p.is_file())
    return {p.relative_to(ROOT).as_posix() for p in files if "__pycache__" not in p.parts}


def test_wheel_holds_kvlib_whole_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in names if ".dist-info/" not in name} == shipped()
    for name in REFERENCE:
        assert f"kvlib/reference/{name}" in names
    assert {f"kvlib/reference/draft/{name}" for name in DRAFT} <= names
    metadata = zipfile.ZipFile(wheel).read(f"kvlib-{version()}.dist-info/METADATA").decode()
    needed = re.findall(r"^Requires-Dist: ([\w.-]+)[^;\n]*$", metadata, re.M)
    assert sorted(needed) == ["array-api-compat", "numpy"]


def test_sdist_holds_kvlib_and_its_tests(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as tar:
        names = {name.split("/", 1)[1] for name in tar.getnames()}
    assert shipped() <= names
    assert {"LICENSE", "README.md", "pyproject.toml", "tests/test_frame.py"} <= names


@pytest.fixture(scope="module")
def bare(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that holds the wheel, and links to its two requirements."""
    folder = tmp_path_factory.mktemp("bare")
    run(sys.executable, "-m", "venv", "--without-pip", str(folder))
    python = next(folder.glob("[bS]*/python*"))
    site = run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    for name in NEEDED:
        files = distribution(name).files or ()
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            (Path(site) / top).symlink_to(distribution(name).locate_file(top))
    (wheel,) = built.glob("*.whl")
    install = ("install", "--no-index", "--disable-pip-version-check", "-q", str(wheel))
    run(sys.executable, "-m", "pip", "--python", str(python), *install)
    return python


def ten_lines() -> str:
    """The example of the README."""
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    return str(block)


# What a user may write, in ten lines; mypy --strict reads them and they run.
CONSUMER = """\
import kvlib
from kvlib.caches import BlockPool, PagedCache
from kvlib.codecs import kivi
from kvlib.kernels import use_kernels
model = kvlib.load_model(str(kvlib.reference.__path__[0]), tokenizer=False)
cache = use_kernels(PagedCache(model.layer_specs, BlockPool(16, 32), codec=kivi(4)))
new = kvlib.generate(model, [[100], [100]], cache=cache, temperature=0.8, seed=range(2))
scheduler = kvlib.Scheduler(model, model.new_cache(1, 64), budget=16)
scheduler.add("a", [100], temperature=0.8, seed=1)
print(len(new), scheduler.run().keys(), kvlib.costs.fit("llama-2-7b", "l4", 1, 512).fits)
"""

WRONG = {
    "kvlib.generates": "attr-defined", "kvlib.costs.fitt": "attr-defined",
    "kvlib.kernels.use_kernel": "attr-defined", "kvbook.figures.figures": "attr-defined",
    "kvlib.model.load_modell": "attr-defined", "kvlib.load_model(3)": "arg-type",
    "kvlib.generate(kvlib.load_reference_model(), [[1]], seed=1.5)": "arg-type",
}


def test_kvlib_runs_from_the_wheel_with_its_two_packages_alone(bare: Path, tmp_path: Path) -> None:
    held = run(str(bare), "-I", "-c", f"import importlib.util as u; print([n for n in {HEAVY!r} "
               "if u.find_spec(n)], u.find_spec('kvlib').origin)")  # fmt: skip
    assert held.startswith(f"[] {bare.parent.parent}")
    (tmp_path / "consumer.py").write_text(CONSUMER)
    assert run(str(bare), "-I", str(tmp_path / "consumer.py")) == "2 dict_keys(['a']) True\n"
    (tmp_path / "readme.py").write_text(ten_lines())
    assert "45 tokens stored" in run(str(bare), "-I", str(tmp_path / "readme.py"))
    lines = [line for line in ten_lines().splitlines() if line.strip() and line != "import kvlib"]
    assert len(lines) <= 10 and len(CONSUMER.splitlines()) == 10


def public_names() -> list[str]:
    """Submodules that kvlib shows, and the names that it and they offer, as a user writes them."""
    modules = [m.name for m in pkgutil.iter_modules(kvlib.__path__) if m.name in dir(kvlib)]
    found = [f"kvlib.{name}" for name in modules]
    for module in ("kvlib", *found):
        names = getattr(importlib.import_module(module), "__all__", ())
        found += [f"{module}.{name}" for name in names]
    return found


def test_strict_types_reach_who_installs_the_wheel(bare: Path, tmp_path: Path) -> None:
    """mypy --strict accepts right code, knows every public name, and refuses wrong code."""
    names = public_names()
    assert len(names) > 150
    files = {
        "consumer.py": CONSUMER, "readme.py": ten_lines(),
        "names.py": "import kvlib\n" + "".join(f"reveal_type({name})\n" for name in names),
        "wrong.py": "\n".join(["import kvlib, kvbook.figures", *WRONG, ""]),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    code = (
        "import sys; from mypy import api; out, err, _ = api.run(sys.argv[1:]); "
        "print(out); assert not err, err"
    )
    options = ("--strict", "--config-file=", "--cache-dir", os.devnull, "--no-error-summary")
    paths = [str(tmp_path / name) for name in files]
    interpreter = ("--python-executable", str(bare))
    # from there: mypy would take kvlib's sources, if they were in its folder, for the user's own
    said = run(sys.executable, "-c", code, *options, *interpreter, *paths, cwd=tmp_path)
    errors = re.findall(r"(\w+)\.py:(\d+): error: (.*)", said)
    assert [error for error in errors if error[0] != "wrong"] == []
    kinds = [line.rpartition("[")[2].rstrip("]") for _, _, line in errors]
    assert kinds == list(WRONG.values()), said
    types = re.findall(r'names\.py:(\d+): note: Revealed type is "(.*)"', said)
    assert [int(line) for line, _ in types] == list(range(2, len(names) + 2))
    unknown = [names[int(line) - 2] for line, kind in types if kind in ("Any", "object", "object?")]
    assert unknown == []


def loaded_by(statement: str) -> set[str]:
    """Top-level names of the modules that a fresh interpreter holds after `statement`."""
    code = f"{statement}\nimport sys, json; print(json.dumps(list(sys.modules)))"
    return {name.split(".")[0] for name in json.loads(run(sys.executable, "-c", code))}


@pytest.mark.parametrize("statement", ["import kvlib", "import kvlib; kvlib.DenseCache"])
def test_import_brings_nothing_heavy(statement: str) -> None:
    assert loaded_by(statement) & set(HEAVY) == set()


def test_readme_names_only_what_exists() -> None:
    text = (ROOT / "README.md").read_text()
    for target in re.findall(r"`?make ([a-z][a-z-]+)`?", text):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M), f"make {target}"
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / link).exists(), link
