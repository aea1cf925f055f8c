"""Try each kernel's variants on this card, and write the fastest of each case to tuned.json.

Variants are keyword arguments of a plan, {} for its defaults. A variant's answers are compared with
the twin's on a small, ragged case; then it is timed as a graph that is replayed, on inputs past the
second-level cache. It replaces the default if it is at least LEAST faster. The next Python that
imports kvlib plans with the table. results/gpu_tune.json has all times.

    python benchmarks/gpu_tune.py [kernel ...] [--limit 230]
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import gpu_attention
import gpu_sampling
import numpy as np
import on_device

from kvlib.arrays import to_numpy
from kvlib.kernels import engine, tuning
from kvlib.kernels.launch import here, prepare
from kvlib.kernels.types import as_type

LEAST = 0.02
Variant = Mapping[str, Any]


def variants(names: str, *sizes: Sequence[int]) -> list[Variant]:
    """The keyword arguments that are tried, the default first."""
    return [{}, *(dict(zip(names.split(), x, strict=True)) for x in sizes)]


# The variants of product.cu, prefill.cu and decode_tensor.cu that are tried
PRODUCT = [*variants("per_sm", [1], [2]), *variants("warps depth", (8, 6), (16, 2), (16, 3))[1:]]
PRODUCT.append({"late": True})
PREFILL = variants(
    "bands warps keys stages",
    *((1, 4, 32, 3), (1, 4, 64, 2), (1, 8, 64, 2), (2, 2, 32, 3), (2, 4, 32, 3)),
)
DECODE = variants(
    "warps blocks keys", (4, 3, 32), (4, 4, 16), (8, 2, 16), (6, 2, 32), (12, 1, 32)
)


class Case(NamedTuple):
    """One choice of a plan.

    small(xp): answers to inputs made by NumPy and moved to `xp`
    large(cp): makes the inputs that are timed; gives the call of the i-th set, and how many sets
    """

    kernel: str
    name: str
    variants: Sequence[Variant]
    small: Callable[[Any], Sequence[Any]]
    large: Callable[[Any], tuple[Callable[[int], Any], int]]


def topk() -> Iterator[Case]:
    """Softmax with top-k: rows of logits."""
    from kvlib.kernels import softmax_topk
    from kvlib.kernels.plans_topk import VARIANTS, case_of

    def case(rows: int, dtype: str) -> Case:
        def small(xp: Any) -> list[Any]:
            x = np.random.default_rng(1).standard_normal((3, 40_005)).astype(np.float32)
            best = softmax_topk(xp.asarray(as_type(x, np.dtype(dtype))), 50)
            return [best.values, best.indices, best.lse]

        def large(cp: Any) -> tuple[Callable[[int], Any], int]:
            sets = gpu_sampling.logits_of(cp, rows, dtype)
            return lambda i: softmax_topk(sets[i % len(sets)], gpu_sampling.K), len(sets)

        name = case_of(rows, np.dtype(dtype).itemsize, here().sms)
        return Case("topk", name, [{}, *(v._asdict() for v in VARIANTS[1:])], small, large)

    for rows in (2048, 64, 1):
        for dtype in ("float32", "uint16"):
            yield case(rows, dtype)


LLAMA = ((3072, 2048), (2048, 2048), (8192, 2048), (2048, 8192), (128_256, 2048))  # of 1.24 B
LAYERS = 4  # that are timed together
SMALL = ((1280, 768), (768, 768), (2048, 768), (768, 2048), (32_000, 768))  # of 100 M


def product() -> Iterator[Case]:
    """Products of a decode step: rows of x, and the shapes of a layer's weights and of the last.

    They are timed in a chain, each product after those that it follows in a step, because what is
    fastest alone may leave the next one no room to start early.
    """
    from kvlib.kernels.product import case_of, linear

    def chain(
        cp: Any, rows: int, dtype: str, shapes: Sequence[tuple[int, int]]
    ) -> Callable[..., Any]:
        rng, hidden = cp.random.default_rng(0), shapes[0][1]
        *layer, last = [(n * (1 + (i == 2)), k) for i, (n, k) in enumerate(shapes)]
        wide = np.dtype(dtype).itemsize == 4
        made = [
            rng.standard_normal(shape, dtype=cp.float32) if wide
            else gpu_attention.bits(cp, rng, shape)
            for shape in (*layer * LAYERS, last)
        ]  # fmt: skip
        x0, norm = (
            rng.standard_normal((rows, hidden), dtype=cp.float32),
            cp.ones(hidden, cp.float32),
        )

        def run(i: int) -> None:
            x = x0
            for at in range(0, len(made) - 1, 4):
                qkv, o, gate_up, down = made[at : at + 4]
                linear(x, qkv, norm=norm)
                x = linear(x, o, residual=x)
                x = linear(linear(x, gate_up, norm=norm, gated=True), down, residual=x)
            linear(x, made[-1], norm=norm)

        return run

    def cases(rows: int, dtype: str, shapes: Sequence[tuple[int, int]]) -> Iterator[Case]:
        runs: list[Callable[[int], Any]] = []

        def large(cp: Any) -> tuple[Callable[[int], Any], int]:
            if not runs:
                runs.append(chain(cp, rows, dtype, shapes))
            return runs[0], 1

        for i, (n, k) in enumerate(shapes):
            gated = i == 2

            def small(xp: Any, k: int = k, gated: bool = gated) -> list[Any]:
                rng = np.random.default_rng(2)
                x, w = (rng.standard_normal(s).astype(np.float32) for s in ((rows, k), (66, k)))
                w = as_type(w, np.dtype(dtype))
                return [linear(xp.asarray(x), xp.asarray(w), gated=gated)]

            yield Case("product", case_of(rows, n, k, dtype, gated), PRODUCT, small, large)

    for rows, dtype, shapes in ((1, "uint16", LLAMA), (8, "uint16", LLAMA), (1, "float32", SMALL)):
        yield from cases(rows, dtype, shapes)


PROMPTS = ((128, 4096, 4096), (128, 16, 65_536), (64, 4096, 4096), (256, 4096, 4096))


def prefill() -> Iterator[Case]:
    """Prompts of each head, and sixteen guesses after a long text."""
    from kvlib.kernels import prefill_attention
    from kvlib.kernels.prefill import case_of, split_work

    def case(dim: int, tokens: int, keys: int) -> Case:
        def answer(xp: Any, arrays: Sequence[Any], keys: int) -> Any:
            q, k, v = arrays
            new, heads = q.shape[0], k.shape[1]
            ends, lens = (xp.asarray(np.array(x, np.int32)) for x in ([0, new], [keys]))
            run_on = "twin" if xp is np else "device"
            work = split_work(q, heads, [new], [keys], run_on=run_on) if tokens < keys else None
            return lambda: prefill_attention(q, k, v, ends, lens, max_new=new, work=work)

        def small(xp: Any) -> list[Any]:
            rng, new = np.random.default_rng(3), min(tokens, 70)
            shapes = (new, 4, dim), (1, 1, 600, dim), (1, 1, 600, dim)
            made = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
            arrays = [xp.asarray(as_type(x, np.dtype(np.float16))) for x in made]
            return [answer(xp, arrays, new if tokens == keys else 555)()]

        def large(cp: Any) -> tuple[Callable[[int], Any], int]:
            rng, heads = cp.random.default_rng(0), gpu_attention.HEADS
            shapes = (tokens, 4 * heads, dim), (1, heads, keys, dim), (1, heads, keys, dim)
            sets = [
                answer(cp, [rng.standard_normal(shape, dtype=cp.float32).astype(cp.float16)
                            for shape in shapes], keys)
                for _ in range(on_device.sets_for(cp, 4 * heads * keys * dim))
            ]  # fmt: skip
            return lambda i: sets[i % len(sets)](), len(sets)

        return Case("prefill", case_of(dim, 4 * tokens), PREFILL, small, large)

    for sizes in PROMPTS:
        yield case(*sizes)


def decode() -> Iterator[Case]:
    """Keys in blocks on tensor cores, four query heads a kv head: bfloat16, and codes."""
    from kvlib.kernels import decode_attention
    from kvlib.kernels.codes import Codes, check_stored
    from kvlib.kernels.decode import case_of
    from kvlib.kernels.types import as_float

    heads, groups, dim = gpu_attention.HEADS, gpu_attention.GROUPS, gpu_attention.DIM

    def made(xp: Any, name: str, batch: int, keys: int) -> tuple[Any, ...]:
        """Queries, keys, values, lengths and a block table."""
        rng, size = xp.random.default_rng(4), 32 if name == "int4" else gpu_attention.BLOCK
        q = gpu_attention.bits(xp, rng, (batch, heads * groups, dim))
        shape = batch * keys // size, heads, size, dim
        k, v = (
            (gpu_attention.bits(xp, rng, shape) for _ in "kv")
            if name == "bfloat16"
            else gpu_attention.codes(xp, rng, name, batch, keys)
        )
        table = np.random.default_rng(1).permutation(shape[0]).astype(np.int32)
        lens = xp.full(batch, keys, dtype=xp.int32)
        return q, k, v, lens, xp.asarray(table.reshape(batch, -1))

    def case(name: str) -> Case:
        def small(xp: Any) -> list[Any]:
            q, k, v, lens, table = made(np, name, 3, 320)
            lens -= np.array([20, 313, 191], np.int32)
            q, k, v, lens, table = (moved(xp, x) for x in (q, k, v, lens, table))
            return [as_float(to_numpy(decode_attention(q, k, v, lens, table, splits=2)))]

        def moved(xp: Any, x: Any) -> Any:
            if not isinstance(x, Codes):
                return xp.asarray(x)
            return Codes(x[0], *(None if a is None else xp.asarray(a) for a in x[1:]))

        def large(cp: Any) -> tuple[Callable[[int], Any], int]:
            batch, keys = gpu_attention.CASES[0]
            count = on_device.sets_for(cp, batch * keys * heads * dim)
            sets = [made(cp, name, batch, keys) for _ in range(count)]
            return lambda i: decode_attention(*sets[i % count], max_len=keys), count

        _, k, v, *_ = made(np, name, 1, 32)
        stored = check_stored(k, v, {"D": dim})
        return Case("decode_tensor", case_of(stored, dim, groups), DECODE, small, large)

    for name in ("bfloat16", "int8", "e4m3", "int4"):
        yield case(name)


KERNELS = {"topk": topk, "product": product, "decode": decode, "prefill": prefill}


def compiled(cases: Sequence[Case], cp: Any) -> int:
    """Compile what the cases' variants launch, on all cores; how many kernels those are."""
    found: dict[Any, None] = {}
    run, engine.run = engine.run, lambda launch: found.setdefault(launch.kernel)  # type: ignore
    try:
        for case in cases:
            for variant in case.variants:
                with tuning.trying(case.kernel, variant), contextlib.suppress(Exception):
                    case.small(cp)  # what goes wrong is said when it is tried
    finally:
        engine.run = run
    with contextlib.suppress(Exception):
        return len(list(prepare(found)))
    return 0


def same(found: Any, wanted: np.ndarray) -> None:
    """Raises AssertionError unless numbers are near, and indices equal."""
    found = to_numpy(found)
    if wanted.dtype.kind == "i":
        np.testing.assert_array_equal(found, wanted)
    else:
        most = float(np.abs(wanted).max())
        np.testing.assert_allclose(found, wanted, rtol=1e-2, atol=1e-2 * most)


def measured(case: Case, cp: Any) -> dict[str, Any]:
    """Microseconds of each variant that is right, why others were refused, and the choice."""
    wanted = [to_numpy(x) for x in case.small(np)]
    call, sets = case.large(cp)
    runs, refused = {}, {}
    for i, variant in enumerate(case.variants):
        try:
            with tuning.trying(case.kernel, variant):
                for x, y in zip(case.small(cp), wanted, strict=True):
                    same(x, y)
            with tuning.trying(case.kernel, variant, case.name):
                runs[str(i)] = on_device.Graph(cp, call, max(4, sets))
        except Exception as error:  # whatever it is, this variant isn't chosen
            refused[i] = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    times = on_device.alternate(cp, runs, rounds=5, burst=max(4, sets), seconds=0.3)
    us = {int(i): t["median_us"] for i, t in times.items()}
    best = min(us, key=lambda i: us[i] * (1 + LEAST if i else 1))
    figures = [
        {"variant": variant, "us": us.get(i), "refused": refused.get(i)}
        for i, variant in enumerate(case.variants)
    ]
    return {"variants": figures, "choice": case.variants[best]}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", nargs="*", help=f"of {', '.join(KERNELS)} (default: all)")
    parser.add_argument("--limit", type=float, default=230, help="seconds (default: 230)")
    given = parser.parse_args(arguments)
    cp, begin = on_device.device_or_exit(), time.monotonic()
    cases = [case for name in given.kernels or KERNELS for case in KERNELS[name]()]
    print(f"{compiled(cases, cp)} kernels compiled, {time.monotonic() - begin:.0f} s", flush=True)
    results: dict[str, Any] = {"cases": []}
    for case in cases:
        if time.monotonic() - begin > given.limit:
            print(f"{case.kernel}, {case.name}: not tried, because {given.limit:g} s are over")
            continue
        one = measured(case, cp)
        tuning.store(here().name, case.kernel, case.name, one["choice"])
        results["cases"].append({"kernel": case.kernel, "case": case.name, **one})
        on_device.save("gpu_tune", results, cp)
        times = " ".join(f"{v['us']:.1f}" if v["us"] else "refused" for v in one["variants"])
        print(f"{case.kernel}, {case.name}: {one['choice']} of {times} us", flush=True)
        for v in (v for v in one["variants"] if v["refused"]):
            print(f"    {v['variant']} refused: {v['refused']}")
        cp.get_default_memory_pool().free_all_blocks()
    return 0


if __name__ == "__main__":
    sys.exit(main())
