"""Find the numbers and words of a notebook that another processor would print differently.

If a number is near an edge of its rounding, or a token wins by very little, every run on this
machine prints the same, but a reader's machine may print something else, because its BLAS adds
float32 products in another order. This tool runs notebooks with every product of NumPy summed in
two orders, multiplies the difference of the two by `--times` (tools/other_order.cpp), and compares
each output that nbval compares with the committed one. The tool reports an output that changes,
because it is so near to an edge that a difference of this size moves it across.

Each seed cuts the sums at other points. Every second seed also turns off NumPy's own SIMD loops
(exp, tanh, ...), as on a processor without AVX.

How far is eight times? The reference model's logits over 300 tokens (standard deviation 6) differ
by 3e-6 (rms) between AVX-512's and Haswell's BLAS kernels, by 4e-6 with Prescott's, by 3e-6
without NumPy's SIMD loops, by 4e-6 in another order of this tool, and by 26e-6 in eight times that.

Linux only; needs a C++ compiler.

    python tools/rounding_edges.py                     # all of book/, three seeds, eight times over
    python tools/rounding_edges.py book/extend.ipynb --seeds 5 --times 4
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from normalise_notebooks import BOOK, IGNORE, normalise_outputs, texts_of
from tqdm.auto import tqdm

SOURCE = Path(__file__).with_name("other_order.cpp")
TIMES, SEEDS = 8, 3
# the names under which builds of NumPy call their BLAS: (before, after, type of an index)
NAMES = (("scipy_cblas_", "64_", "int64_t"), ("cblas_", "64_", "int64_t"), ("cblas_", "", "int"))
TOKEN = re.compile(r"[^\W_]+(?:[.,][^\W_]+)*|\S")


def build(folder: Path) -> Path:
    """The compiled library, for this NumPy. OSError where it has no such BLAS or no LD_PRELOAD."""
    from kvlib.kernels.processor import compiler

    core = Path(importlib.import_module("numpy._core._multiarray_umath").__file__ or "")
    code = core.read_bytes()
    known = [names for names in NAMES if "{}sgemm{}\0".format(*names).encode() in code]
    if not known:
        raise OSError(f"{core.name} calls no BLAS by a known name; use NumPy's wheel from PyPI")
    if sys.platform != "linux":
        raise OSError(f"sums are reordered by LD_PRELOAD, which {sys.platform} lacks; use Linux")
    library = folder / "other_order.so"
    before, after, integer = known[0]
    names = [f"-DPREFIX={before}", f"-DSUFFIX={after}", f"-DINTEGER={integer}"]
    command = [*compiler(), "-std=c++17", "-O2", "-shared", "-fPIC", *names, str(SOURCE)]
    subprocess.run([*command, "-o", str(library), "-ldl"], check=True)
    return library


def environment(library: Path, times: float, seed: int) -> dict[str, str]:
    """The environment of a process whose sums run in another order."""
    made = os.environ | {
        "LD_PRELOAD": str(library),
        "KVLIB_TIMES": str(times),
        "KVLIB_SEED": str(seed),
        "OPENBLAS_NUM_THREADS": "1",
    }
    if seed % 2:
        made["NPY_DISABLE_CPU_FEATURES"] = " ".join(simd_of_numpy())
    return made


def simd_of_numpy() -> list[str]:
    """The instructions of this processor for which NumPy has special loops."""
    core: Any = importlib.import_module("numpy._core._multiarray_umath")
    return [name for name in core.__cpu_dispatch__ if core.__cpu_features__.get(name)]


def executed(notebook: Any, folder: Path, variables: dict[str, str]) -> Any:
    """A run of a copy of the notebook, in `folder`; what a cell raises is among its outputs."""
    from nbclient import NotebookClient

    client = NotebookClient(
        nbformat.from_dict(notebook),
        timeout=600,
        kernel_name="python3",
        allow_errors=True,
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
    )
    return client.execute(env=variables)


def compared(cell: Any) -> list[str]:
    """The texts of a cell's outputs that must be the same on every machine."""
    if IGNORE in cell["metadata"].get("tags", []):
        return []
    outputs = normalise_outputs(cell["outputs"], 0)
    errors = [f"{o['ename']}: {o['evalue']}" for o in outputs if o["output_type"] == "error"]
    return errors + [text for output in outputs for text in in_order_of_kind(output)]


def in_order_of_kind(output: Any) -> Iterator[str]:
    """The texts of one output; a kernel hands text/html and text/plain over in either order."""
    if "data" in output:
        output = {**output, "data": dict(sorted(output["data"].items()))}
    return iter(texts_of(output))


def differences(before: str, after: str, most: int = 5) -> list[str]:
    """What differs, in words: '1.013 became 1.012, after "as long:"', at most so many."""
    old, new = TOKEN.findall(before), TOKEN.findall(after)
    if len(old) != len(new):
        first = next((i for i, (a, b) in enumerate(zip(old, new)) if a != b), 0)
        around = slice(max(0, first - 3), first + 8)
        return [f"{' '.join(old[around])!r} became {' '.join(new[around])!r}"]
    places = [i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
    found = [
        f"{old[i]} became {new[i]}, after {' '.join(old[max(0, i - 4) : i])!r}"
        for i in places[:most]
    ]
    return found + ([f"and {len(places) - most} more"] if len(places) > most else [])


def changes(committed: Any, run: Any) -> Iterator[str]:
    """A line for each thing that a run printed otherwise; cells are counted as nbval does."""
    pairs = [
        (a, b)
        for a, b in zip(committed["cells"], run["cells"], strict=True)
        if a["cell_type"] == "code"
    ]
    for number, (cell, again) in enumerate(pairs):
        old, new = compared(cell), compared(again)
        if len(old) != len(new):
            yield f"cell {number}: {len(new)} texts and not {len(old)}: {new[:1]}"
        for before, after in zip(old, new):
            yield from (f"cell {number}: {line}" for line in differences(before, after))


def changed(path: Path, variables: dict[str, str]) -> list[str]:
    """What a run of a notebook prints otherwise; that it did not end, where it did not."""
    from nbclient.exceptions import CellTimeoutError, DeadKernelError

    committed = nbformat.read(path, as_version=4)
    try:
        return list(changes(committed, executed(committed, path.parent, variables)))
    except (CellTimeoutError, DeadKernelError) as error:
        return [f"the run did not end: {error}"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("notebooks", nargs="*", type=Path, help="notebooks (default: all in book/)")
    parser.add_argument(
        "--times", type=float, default=TIMES, help=f"factor for the difference (default: {TIMES})"
    )
    parser.add_argument(
        "--seeds", type=int, default=SEEDS, help=f"number of seeds (default: {SEEDS})"
    )
    given = parser.parse_args(arguments)
    paths = given.notebooks or sorted(BOOK.glob("*.ipynb"))
    found: dict[str, list[int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))
        runs = [(path, seed) for path in paths for seed in range(given.seeds)]
        for path, seed in tqdm(runs, unit="run", disable=None):
            for line in changed(path, environment(library, given.times, seed)):
                found.setdefault(f"{path.name}, {line}", []).append(seed)
    for line, seeds in found.items():
        print(f"{line} (seed {', '.join(map(str, seeds))})")
    if found:
        print(
            f"\n{len(found)} outputs change when sums run in another order, their difference taken "
            f"{given.times:g} times. Print fewer digits, or choose another example or prompt."
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
