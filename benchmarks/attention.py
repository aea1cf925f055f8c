"""Compare decode attention of each cache with the dense cache, and two ways to prefill.

A prompt is prefilled in chunks, and all at once with the whole matrix of scores.

8 key heads of 128, four query heads each, float32, one layer. Only `run` is timed: what a decode
step reads. Blocks of calls take turns. With torch installed, its scaled_dot_product_attention reads
the dense cache's own arrays.

    python benchmarks/attention.py [--threads 2] [--keys 4096 16384 65536] [--json FILE]
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import harness

KEYS = (4096, 16384, 65536)
HEADS, GROUPS, DIM = 8, 4, 128
BOUNDS = {"paged, blocks of 128": 1.4, "paged, blocks of 16": 2.0, "int8": 1.35, "int4": 3.0}


def caches(keys: int) -> dict[str, Any]:
    """Each cache with one request of so many keys, the last of them in a separate step."""
    from kvlib import BlockPool, DenseCache, LayerSpec, PagedCache, QuantizedCache
    from kvlib.codecs import int8, kivi

    layers = [LayerSpec(HEADS, DIM)]

    def paged(size: int, codec: Any = None) -> PagedCache:
        return PagedCache(layers, BlockPool(-(-keys // size), size), codec=codec)

    return {
        "dense": DenseCache(layers, 1, keys),
        "paged, blocks of 128": paged(128),
        "paged, blocks of 16": paged(16),
        "int8": QuantizedCache(layers, int8(), 1, keys),
        "int8, blocks of 128": paged(128, int8()),
        "int8, blocks of 16": paged(16, int8()),
        "int4": QuantizedCache(layers, kivi(4, 32, 128), 1, keys),
        "int4, blocks of 128": paged(128, kivi(4, 32, 128)),
        "int2": QuantizedCache(layers, kivi(2, 32, 128), 1, keys),
    }


def fill(cache: Any, keys: int) -> Any:
    """Append random keys, the same in every cache; gives the step of the last one."""
    import numpy as np

    rng = np.random.default_rng(0)
    cache.add("a")
    done = 0
    while done < keys:
        n = min(2048, keys - 1 - done) if done < keys - 1 else 1
        step = cache.plan(["a"], [n])
        k, v = (rng.standard_normal((n, HEADS, DIM), dtype=np.float32) for _ in "kv")
        cache.append(0, k, v, step)
        done += n
    return step


def peer(cache: Any, q: Any, keys: int) -> Callable[[], Any] | None:
    """PyTorch over the dense cache's arrays, or None where it is not installed."""
    try:
        import torch
    except ImportError:
        return None
    q, k, v = (torch.from_numpy(x) for x in (q, *(x[:, :, :keys] for x in cache.storage())))
    q = q.reshape(1, HEADS * GROUPS, 1, DIM)

    def run() -> Any:
        with torch.inference_mode():
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    return run


def decode(keys: int, steps: int, bar: Any) -> dict[str, Any]:
    """Milliseconds of one query's attention in each cache, and ratios to the dense one."""
    import numpy as np

    q = np.random.default_rng(1).standard_normal((1, HEADS * GROUPS, DIM), dtype=np.float32)
    runs: dict[str, Callable[[], Any]] = {}
    results, held = {}, {}
    for name, cache in caches(keys).items():
        step = fill(cache, keys)
        runs[name] = lambda cache=cache, step=step: cache.run(0, q, step)
        results[name], held[name] = runs[name](), cache.memory().reserved
        bar.update()
        if name == "dense" and (torch := peer(cache, q, keys)):
            runs["torch"] = torch
            np.testing.assert_allclose(torch().numpy().reshape(q.shape), results[name], atol=1e-5)
    for name in ("paged, blocks of 128", "paged, blocks of 16"):
        np.testing.assert_allclose(results[name], results["dense"], atol=1e-5)
    row: dict[str, Any] = {"keys": keys, "bytes": held}
    row |= harness.alternate(runs, steps=steps, rounds=8, tick=bar.update)
    base = row["dense"]["median_ms"]
    row["times_dense"] = {n: row[n]["median_ms"] / base for n in runs if n != "dense"}
    return row


def prefill(tokens: int, steps: int, bar: Any) -> dict[str, Any]:
    """A prompt in chunks through a cache and the same over the whole score matrix.

    Two key heads, for the whole matrix of eight would need many GiB. Peak memory is what Python
    allocated during the call, the result included.
    """
    import numpy as np

    from kvlib import BlockPool, DenseCache, LayerSpec, PagedCache, attend

    layers, heads = [LayerSpec(2, DIM)], 2
    rng = np.random.default_rng(2)
    shapes = ((tokens, heads * GROUPS, DIM), (tokens, heads, DIM), (tokens, heads, DIM))
    q, k, v = (rng.standard_normal(s, dtype=np.float32) for s in shapes)
    positions = np.arange(tokens)

    def through(make: Callable[[], Any], chunk: int) -> Callable[[], Any]:
        cache = make()

        def run() -> Any:
            cache.add("a")
            parts = []
            for a in range(0, tokens, chunk):
                rows = slice(a, a + chunk)
                step = cache.plan(["a"], [len(k[rows])])
                cache.append(0, k[rows], v[rows], step)
                parts.append(cache.run(0, q[rows], step))
            cache.free("a")
            return np.concatenate(parts)

        return run

    def dense() -> DenseCache:
        return DenseCache(layers, 1, tokens)

    def paged() -> PagedCache:
        return PagedCache(layers, BlockPool(-(-tokens // 128), 128))

    runs = {
        "whole score matrix": lambda: attend(q, k, v, positions, positions),
        "one step": through(dense, tokens),
        "chunks of 512": through(dense, 512),
        "paged, chunks of 512": through(paged, 512),
    }
    peaks = {}
    whole = runs["whole score matrix"]()
    for name, run in runs.items():
        tracemalloc.start()
        found = run()
        peaks[name] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        np.testing.assert_allclose(found, whole, atol=1e-5)
        bar.update()
    row: dict[str, Any] = {"tokens": tokens, "peak_bytes": peaks}
    row |= harness.alternate(runs, steps=steps, rounds=3, tick=bar.update)
    whole = row["whole score matrix"]["median_ms"]
    row["times_faster"] = {n: whole / row[n]["median_ms"] for n in runs}
    row["peak_share"] = {n: peaks[n] / peaks["whole score matrix"] for n in runs}
    return row


def line(row: dict[str, Any]) -> str:
    """One row for a reader."""
    if "keys" in row:
        parts = [f"{n} {x:.2f}" for n, x in row["times_dense"].items()]
        return f"{row['keys']:6d} keys: dense {row['dense']['median_ms']:.2f} ms; times dense: " + (
            "; ".join(parts)
        )
    parts = [
        f"{n}: {row[n]['median_ms']:.0f} ms, {row['peak_bytes'][n] / 2**20:.0f} MiB, "
        f"{x:.2f} times as fast, {row['peak_share'][n]:.1%} of the memory"
        for n, x in row["times_faster"].items()
    ]
    return f"prefill of {row['tokens']}: " + "; ".join(parts)


def main() -> None:
    parser = harness.parser(__doc__, "attention", threads=2, steps=64)
    parser.add_argument("--keys", type=int, nargs="*", default=list(KEYS), help="numbers of keys")
    parser.add_argument("--prefill", type=int, nargs="*", default=[4096], help="prompt lengths")
    args = parser.parse_args()
    harness.limit_threads(args.threads)
    from tqdm import tqdm

    out: dict[str, Any] = {"decode": [], "prefill": []}
    with tqdm(total=len(args.keys) * 17 + len(args.prefill) * 7, unit="block") as bar:
        for keys in args.keys:
            out["decode"].append(decode(keys, args.steps, bar))
            bar.write(line(out["decode"][-1]))
        for tokens in args.prefill:
            out["prefill"].append(prefill(tokens, 9, bar))
            bar.write(line(out["prefill"][-1]))
    bounds = {"times_dense_at_most": BOUNDS, "peak_share_at_most": 0.05}
    harness.save("attention", {"threads": args.threads, "bounds": bounds, **out}, args.json)


if __name__ == "__main__":
    main()
