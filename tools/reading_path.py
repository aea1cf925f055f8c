"""Measure how much of kvlib a reader has to follow from a token to its logits.

    python tools/reading_path.py

Trace steps of the Scheduler on the reference model with `sys.setprofile`, and compare the numbers
with LIMITS. The exit status is 1 if one of them is above its limit, or if the list of files to read
in CONTRIBUTING.md lacks one that a step of a paged int8 cache passes through. What counts:

calls    each "call" event whose code is in a file of kvlib: a function or lambda starts, or a
         generator starts or resumes. Comprehensions and generator expressions don't count, because
         from Python 3.12 on most of them aren't calls.
files    the files of kvlib that contain the called code
depth    the most functions of kvlib that are active at the same time
checks   calls of functions named check… or _check…, and all calls of functions in arguments.py
upward   calls from a package into a higher one (tools/house.py). The caller is the innermost active
         function of kvlib, so a callback counts, and so does a generator that is read from below.
lines    lines of Python, including docstrings, comments and blank lines

For each kind of cache, 18 consecutive decode steps are traced, so a request begins a new block in
one of them. Every number is the highest of all steps. The decode step before them isn't traced,
because it also publishes the blocks of the prompt.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from house import ORDER, Order, height

ROOT = Path(__file__).resolve().parent.parent
PROMPT, NEW, STEPS = 400, 110, 18  # tokens of a prompt, tokens to generate, traced steps
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")

# What is measured → (now, goal). The tool fails above `now`, which may only fall, until it is at
# `goal`. Numbers of lines are rounded up, so that a fault can be corrected in the meantime.
Limits = Mapping[str, Mapping[str, tuple[int, int]]]
LIMITS: Limits = {
    "paged int8": dict(
        calls=(450, 450), files=(25, 25), depth=(14, 14), checks=(20, 20), upward=(0, 0)
    ),
    "paged int4": dict(
        calls=(750, 750), files=(26, 26), depth=(14, 14), checks=(22, 22), upward=(0, 0)
    ),
    "paged int8, four requests": dict(
        calls=(1200, 1200), files=(28, 28), depth=(15, 15), checks=(20, 20), upward=(0, 0)
    ),
    "dense, plain numbers": dict(
        calls=(350, 350), files=(23, 23), depth=(13, 13), checks=(20, 20), upward=(0, 0)
    ),
    "prefill with a prefix hit": dict(files=(30, 30)),
    "decode with a drafter": dict(files=(30, 30)),
    "reading list": dict(lines=(5_050, 4_500)),
    "kvlib": dict(lines=(27_800, 20_000)),
    "kvlib/caches": dict(lines=(5_000, 5_000)),
    "kvbook": dict(lines=(19_350, 16_000)),
    "tests": dict(lines=(43_700, 40_000)),
}


@dataclass
class Trace:
    """What one call of a function passed through; files in the order of their first call."""

    calls: int = 0
    depth: int = 0
    checks: int = 0
    files: dict[str, None] = field(default_factory=dict)
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)  # (caller, called)


def trace(run: Callable[[], object], package: Path) -> Trace:
    """Call `run`, and return what it passed through in the files of `package`."""
    found, prefix = Trace(), f"{package}/"
    active: list[tuple[str, int]] = []  # of each active function: file and name, depth

    def profile(frame: Any, event: str, _: object) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(prefix):
            return
        if event == "return":
            active.pop()
            return
        file, name = code.co_filename.removeprefix(prefix), code.co_qualname
        depth = active[-1][1] if active else 0
        if code.co_name in COMPREHENSIONS:
            name = name.split(".<locals>.<")[0]
        else:
            depth += 1
            found.calls += 1
            found.depth = max(found.depth, depth)
            found.checks += file == "arguments.py" or code.co_name.startswith(("check", "_check"))
            found.files[file] = None
        if active:
            found.pairs[active[-1][0], f"{file}: {name}"] += 1
        active.append((f"{file}: {name}", depth))

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(before)
    return found


def upward(found: Trace, order: Order = ORDER) -> Counter[tuple[str, str]]:
    """Return (caller, called) → number of calls from a package into a higher one.

    Raises LookupError for a file that `order` doesn't name.
    """
    def row(called: str) -> int:
        return height(called.partition(": ")[0], order)

    return Counter({p: n for p, n in found.pairs.items() if row(p[0]) < row(p[1])})


def scenes() -> Iterator[tuple[str, list[Trace]]]:
    """Yield the name and the traced steps of each scene."""
    import numpy as np

    import kvlib
    from kvlib import BlockPool, DenseCache, PagedCache, Scheduler
    from kvlib.reference import sample_text
    from kvlib.speculation import PromptLookup

    model, text = kvlib.load_reference_model(xp=np), list(sample_text().encode())
    package, specs = Path(kvlib.__file__).parent, model.layer_specs
    prompts = [text[i * PROMPT : (i + 1) * PROMPT] for i in range(4)]

    def paged(codec: str, block_size: int = 16) -> PagedCache:
        return PagedCache(specs, BlockPool(2048 // block_size, block_size), codec=codec, xp=np)

    def decode(cache: Any, prompts: list[list[int]], **settings: Any) -> list[Trace]:
        scheduler = Scheduler(model, cache, stop_tokens=(), **settings)
        for name, prompt in enumerate(prompts):
            scheduler.add(name, prompt, NEW)
        while not all(request.new for request in scheduler.requests.values()):
            scheduler.step()
        scheduler.step()
        return [trace(scheduler.step, package) for _ in range(STEPS)]

    yield "paged int8", decode(paged("int8"), prompts[:1])
    yield "paged int4", decode(paged("int4", 32), prompts[:1])
    yield "paged int8, four requests", decode(paged("int8"), prompts)
    yield "dense, plain numbers", decode(DenseCache(specs, 1, 512, xp=np), prompts[:1])

    scheduler = Scheduler(model, paged("int8"), stop_tokens=())
    scheduler.add("first", prompts[0], 1)
    scheduler.run()
    scheduler.add("second", prompts[0][:320] + prompts[1][:80], 1)
    yield "prefill with a prefix hit", [trace(scheduler.step, package)]
    assert any(event.kind == "hit" for event in scheduler.events)

    drafter = PromptLookup()
    yield "decode with a drafter", decode(paged("int8"), [2 * prompts[0][:200]], drafter=drafter)


def line_count(*names: str) -> int:
    """Return the lines of Python in files and folders."""
    files = {p for name in names for p in (ROOT / name, *(ROOT / name).rglob("*.py"))}
    return sum(len(p.read_text(encoding="utf-8").splitlines()) for p in files if p.is_file())


def measure(traces: Mapping[str, list[Trace]], listed: list[str]) -> dict[str, dict[str, int]]:
    """Return every number that LIMITS limits, under the same names."""
    numbers = {
        name: dict(
            calls=max(step.calls for step in steps),
            files=max(len(step.files) for step in steps),
            depth=max(step.depth for step in steps),
            checks=max(step.checks for step in steps),
            upward=max(upward(step).total() for step in steps),
        )
        for name, steps in traces.items()
    }
    lines = {
        "reading list": line_count(*listed),
        "kvlib": line_count("kvlib"),
        "kvlib/caches": line_count("kvlib/caches"),
        "kvbook": line_count("kvbook"),
        "tests": line_count("tests"),
    }
    return numbers | {name: {"lines": count} for name, count in lines.items()}


def compare(numbers: Mapping[str, Mapping[str, int]], limits: Limits = LIMITS) -> int:
    """Print the numbers beside their limits; return how many are above."""
    above = 0
    print(f"{'':<27}{'measured':>16}{'limit now':>11}{'goal':>8}")
    for name, measures in limits.items():
        for what, (now, goal) in measures.items():
            found = numbers[name][what]
            above += found > now
            mark = "  ABOVE THE LIMIT" if found > now else ""
            print(f"{name:<27}{found:>9,} {what:<6}{now:>11,}{goal:>8,}{mark}")
    return above


def main() -> int:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    sys.path.insert(0, str(ROOT))
    traces = dict(scenes())
    longest = max(traces["paged int8"], key=lambda step: (len(step.files), step.calls))
    listed = [f"kvlib/{file}" for file in longest.files]
    print(
        "The files on the path of a paged int8 step, in the order of their first call, and lines:"
    )
    for file in listed:
        print(f"  {file:<36}{line_count(file):>6,}")
    print("The calls from a lower package into a higher one, and how many in the worst step:")
    worst = reduce(or_, (upward(step) for steps in traces.values() for step in steps))
    for (caller, called), count in worst.most_common():
        print(f"  {count:>4}  {caller} → {called}")
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    missing = [file for file in listed if f". `{file}`: " not in page]
    if missing:
        print(f"CONTRIBUTING.md doesn't tell its readers to read {', '.join(missing)}.")
    above = compare(measure(traces, listed)) + len(missing)
    if above:
        print(f"Faults: {above}. LIMITS is in tools/reading_path.py.")
    return int(above > 0)


if __name__ == "__main__":
    sys.exit(main())
