"""Print what was measured on a GPU beside what it was meant to reach, from the stored results.

Bars and aims are those of an H200. On another GPU, milliseconds and TFLOP/s are replaced by ratios:
a step's floor (its weights read at the rate of a copy) over its time, and prefill against PyTorch.
Reads results/gpu_*.json, writes results/gpu_bars.json, and needs no GPU.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import harness

CARD = "H200"
BEFORE = (None, None, 12.9, None, 1.30, 1.62, 1.08, 0.78, 171, 1.99, 0.53, 0.21)  # commit 185d27f


class Bar(NamedTuple):
    """What was measured of a piece of work (None: nothing), and what it was to reach."""

    work: str
    unit: str
    measured: float | None
    bar: float
    aim: float
    less: bool = False  # whether less is better
    before: float | None = None  # what an H200 reached before it was set

    def met(self) -> str:
        if self.measured is None:
            return "not measured"
        reached = [(self.measured <= x) if self.less else (self.measured >= x) for x in self[3:5]]
        return "aim met" if reached[1] else "bar met" if reached[0] else "missed"


def stored(name: str) -> dict[str, Any]:
    path = harness.RESULTS / f"gpu_{name}.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def row(rows: list[dict[str, Any]], /, **wanted: Any) -> dict[str, Any]:
    """The first row that has these values, empty if none has."""
    return next((r for r in rows if all(r.get(k) == v for k, v in wanted.items())), {})


def us(rows: list[dict[str, Any]], run: str, /, **wanted: Any) -> float | None:
    """Microseconds of a run of a row."""
    found: float | None = row(rows, **wanted).get("runs", {}).get(run, {}).get("median_us")
    return found


def ratio(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a / b


def bars() -> tuple[str, list[Bar]]:
    """The device, and every bar in the order of the issue's table."""
    step, attention, guesses, sampling = (
        stored(name) for name in ("step", "attention", "guesses", "sampling")
    )
    names = [d["machine"]["device"] for d in (step, attention, guesses, sampling) if d]
    here, steps = bool(names) and CARD in names[0], step.get("steps", [])
    found = []
    for work, model, batch, bar, aim, floor in (
        ("step, Llama-3.2-1B shapes, batch 1", "llama-3.2-1b", 1, 1.0, 0.8, 0.583),
        ("step, Llama-3.2-1B shapes, batch 8", "llama-3.2-1b", 8, 1.3, 1.0, 0.583),
        ("step, 100 M float32, batch 1", "llama-100m", 1, 0.3, 0.18, 0.094),
    ):
        case = row(steps, model=model, batch=batch, keys=128)
        took = us(steps, "whole", model=model, batch=batch, keys=128)
        if here:
            found.append(Bar(work, "ms", ratio(took, 1e3), bar, aim, less=True))
        else:
            reads = ratio(case.get("bytes"), step.get("copy_bytes_per_s"))
            share = ratio(reads, ratio(took, 1e6))
            found.append(Bar(work, "of the copy", share, floor / bar, floor / aim))
    one = {"model": "llama-3.2-1b", "batch": 1, "keys": 128}
    faster = ratio(us(steps, "transformers, compiled", **one), us(steps, "whole", **one))
    found.append(Bar("the same against transformers, compiled", "times", faster, 2.0, 2.7))
    decode = attention.get("decode", [])
    for name, bar, aim in (("int8", 1.7, 1.9), ("e4m3", 1.8, 1.9), ("int4", 2.5, 3.2)):
        case = {"batch": 8, "keys": 32_768}
        faster = ratio(us(decode, "dense", **case), us(decode, name, **case))
        found.append(Bar(f"decode, {name} against bfloat16", "times", faster, bar, aim))
    runs = row(decode, batch=1, keys=65_536).get("runs", {})
    share = runs.get("dense", {}).get("share")
    found.append(Bar("decode, batch 1, 65,536 keys", "of the copy", share, 0.88, 0.92))
    runs = row(attention.get("prefill", []), tokens=16_384).get("runs", {})
    mine, theirs = (runs.get(name, {}).get("tflops") for name in ("kvlib", "torch"))
    if here:
        found.append(Bar("prefill, 16,384 tokens", "TFLOP/s", mine, 400, 560))
    else:
        share = ratio(mine, theirs)
        found.append(Bar("prefill, 16,384 tokens", "of PyTorch", share, 400 / 660, 560 / 660))
    runs = row(guesses.get("guesses", []), keys=65_536).get("runs", {})
    times = runs.get("tree of 16", {}).get("times_one")
    found.append(Bar("tree of 16, against one token", "times", times, 1.4, 1.2, less=True))
    for dtype, bar, aim in (("float32", 0.85, 0.90), ("bfloat16", 0.60, 0.80)):
        case = row(sampling.get("candidates", []), rows=2048, dtype=dtype)
        share = case.get("share_of_copy_bandwidth")
        found.append(Bar(f"top-k, 2,048 rows of {dtype}", "of the copy", share, bar, aim))
    if here:
        found = [x._replace(before=old) for x, old in zip(found, BEFORE, strict=True)]
    return (names or ["no GPU"])[0], found


def main() -> None:
    device, found = bars()
    print(f"{device:40} {'measured':>9} {'bar':>7} {'aim':>7}")
    for one in found:
        figures = ("" if x is None else f"{x:.3g}" for x in (one.measured, one.bar, one.aim))
        measured, bar, aim = figures
        print(f"{one.work:40} {measured:>9} {bar:>7} {aim:>7} {one.unit}: {one.met()}")
    document = [{**one._asdict(), "met": one.met()} for one in found]
    harness.save("gpu_bars", {"bars": document}, of={"device": device})


if __name__ == "__main__":
    main()
