"""Every command of kvlib: a reader that closes the pipe, a package that is not installed."""

import ast
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from repository import ROOT

from kvlib import __version__
from kvlib.commands import CLOSED_PIPE, EXTRAS, INTERRUPTED, MISSING, missing, run

OWN = {"array_api_compat", "numpy"}  # what kvlib always comes with
WORDED = {"cuda"}  # imported where an error of kvlib's own says what to install


def command(*arguments, without=(), unbuffered=False) -> subprocess.Popen[str]:
    """Start `python -m ...` in a process that cannot import some packages."""
    blocked = "".join(f"sys.modules[{name!r}] = None; " for name in without)
    code = (
        f"import runpy, sys; {blocked}sys.argv = sys.argv[1:]; "
        "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "KVLIB_PROGRESS": "off", "PYTHONUNBUFFERED": "1" * unbuffered},
    )  # fmt: skip


PRINTS = [
    ["kvlib", "fit", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--context", "32k"],
    ["kvlib", "fit", "--help"], ["kvlib.costs", "gpus"], ["kvbook", "progress"],
    ["kvlib.kernels", "--help"],
]


@pytest.mark.parametrize("arguments", PRINTS, ids=" ".join)
def test_a_reader_that_goes_away_ends_a_command_without_a_word(arguments: list[str]) -> None:
    process = command(*arguments)
    process.stdout.close()  # before anything is written
    assert process.stderr.read() == ""
    assert process.wait() == CLOSED_PIPE


def test_a_reader_that_reads_one_line(tmp_path: Path) -> None:
    """More text than a pipe holds, so the command still writes when the reader goes."""
    script = tmp_path / "long.py"
    script.write_text(
        "from kvlib.commands import run\n"
        "raise SystemExit(run(lambda: print('line\\n' * 100_000) or 0))\n"
    )
    shell = f"'{sys.executable}' '{script}' | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"line\n{CLOSED_PIPE}\n", "")


def test_a_table_that_nobody_reads_is_no_fault_of_the_input() -> None:
    """BrokenPipeError is an OSError, and kvbook reports those as faults of the input."""
    process = command("kvbook", "progress", unbuffered=True)
    process.stdout.close()
    assert process.stderr.read() == "" and process.wait() == CLOSED_PIPE


def test_a_unit_of_kernels_that_does_not_exist_is_refused() -> None:
    process = command("kvlib.kernels", "--unit", "nope")
    _, err = process.communicate()
    assert process.returncode == 2 and "'nope'" in err and "'decode'" in err


@pytest.mark.parametrize("module", ["kvlib", "kvbook", "kvlib.kernels"])
def test_commands_say_their_version(module: str) -> None:
    assert command(module, "--version").communicate() == (f"kvlib {__version__}\n", "")


def test_an_interrupted_command_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    assert run(interrupted) == INTERRUPTED
    assert capsys.readouterr().err == "Interrupted.\n"


@pytest.mark.parametrize(("arguments", "package", "words"), [
    (["kvbook", "course", "paged"], "nbformat", 'pip install "kvlib[book]"'),
    (["kvbook", "grade", "book/intro.ipynb"], "nbclient", 'pip install "kvlib[book]"'),
    (["kvlib.kernels"], "tqdm", 'pip install "kvlib[book]"'),
    (["kvlib.kernels", "--device"], "CuPy", 'pip install "cupy-cuda'),
    (["kvlib.kernels", "--unit", "loads"], "cuda", "pip install cuda-pathfinder"),
], ids=lambda value: value if isinstance(value, str) else None)
def test_a_package_that_is_missing_is_named(arguments, package, words, tmp_path) -> None:
    if "course" in arguments:
        arguments = [*arguments, "--out", str(tmp_path / "course")]
    process = command(*arguments, without=(package.lower(),))
    out, err = process.communicate()
    assert process.returncode == MISSING, err
    (said,) = [line for line in err.splitlines() if line and "kernel/s" not in line]  # no bar
    assert words in said and package in said
    assert out == "" and "Traceback" not in err
    assert not list(tmp_path.iterdir()), "nothing is written before the package is missed"


def test_other_errors_keep_their_traceback() -> None:
    error = ModuleNotFoundError("No module named 'kvlib.misspelt'", name="kvlib.misspelt")

    def fails() -> int:
        raise error

    with pytest.raises(ModuleNotFoundError, match="misspelt"):
        run(fails)
    assert missing(ImportError("cannot import name 'x' from 'tqdm'", name="tqdm")) is None
    assert missing(ImportError("a progress bar needs tqdm: pip install tqdm")).endswith("tqdm")


def test_every_package_that_kvlib_imports_has_its_extra() -> None:
    imported = set()
    for path in (p for name in ("kvlib", "kvbook") for p in (ROOT / name).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.partition(".")[0])
    own = {"kvlib", "kvbook", *OWN}
    assert imported - set(sys.stdlib_module_names) - own - WORDED == set(EXTRAS)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert set(EXTRAS.values()) <= set(extras)
    named = {package: " ".join(extras[extra]) for package, extra in EXTRAS.items()}
    came_along = {"IPython", "matplotlib_inline"}  # with ipykernel
    assert all(package in text for package, text in named.items() if package not in came_along)
