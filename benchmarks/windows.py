"""Measure memory and time of decoding past the window, where layers give back what they cannot see.

Four layers, three with a window of 512 tokens and one that looks at everything (the pattern of
many models), and those three alone, decode far past four windows. Every half window: the bytes
that the request's tokens have claimed, and the median time of a step's appends and attention.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import harness

WINDOW, BLOCK = 512, 16


def layers(window: int | None) -> Any:
    """Two kv heads of 64 in each of four layers; the last looks at everything."""
    from kvlib import LayerSpec

    return [LayerSpec(2, 64, window=window if i < 3 else None) for i in range(4)]


def caches(tokens: int) -> dict[str, Any]:
    """The ways to hold the same tokens."""
    import numpy as np

    from kvlib import BlockPool, DenseCache, PagedCache
    from kvlib.caches import KeepAll

    specs, blocks = layers(WINDOW), -(-tokens // BLOCK)
    local = specs[:3]
    return {
        "windows alone": PagedCache(local, BlockPool(blocks, BLOCK), xp=np),
        "blocks": PagedCache(specs, BlockPool(4 * blocks, BLOCK), xp=np),
        "rows": DenseCache(specs, 1, tokens, xp=np),
        "rows, all kept": DenseCache(specs, 1, tokens, retention=KeepAll(), xp=np),
    }


def decoded(cache: Any, tokens: int) -> list[dict[str, float]]:
    """What a request claims and what a step takes, every half window."""
    import numpy as np

    rng = np.random.default_rng(0)
    k, v = rng.standard_normal((2, 1, 2, 64)).astype(np.float32)
    q = rng.standard_normal((1, 8, 64)).astype(np.float32)
    cache.add("a")
    found, times = [], []
    for n in range(1, tokens + 1):
        start = time.perf_counter()
        step = cache.plan(["a"], [1])
        for layer in range(len(cache.layers)):
            cache.append(layer, k, v, step)
            cache.run(layer, q, step)
        times.append(time.perf_counter() - start)
        if n % (WINDOW // 2) == 0:
            memory = cache.memory()
            claimed = memory.payload + memory.wasted
            found.append({"tokens": n, "payload": memory.payload, "claimed": claimed})
            found[-1]["median_us"] = round(statistics.median(times) * 1e6, 1)
            times.clear()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--tokens", type=int, default=10 * WINDOW, help="tokens to decode (default: ten windows)"
    )
    parser.add_argument("--json", help="where to write (default: benchmarks/results/windows.json)")
    args = parser.parse_args()
    harness.limit_threads(1)
    found = {name: decoded(cache, args.tokens) for name, cache in caches(args.tokens).items()}
    print(f"{'tokens':>8}" + "".join(f"{name:>22}" for name in found))
    for rows in zip(*found.values(), strict=True):
        cells = (f"{row['claimed']:>12,} B {row['median_us']:>5.0f} µs" for row in rows)
        print(f"{rows[0]['tokens']:>8}" + "".join(f"{cell:>22}" for cell in cells))
    harness.save("windows", {"window": WINDOW, "block": BLOCK, "results": found}, args.json)


if __name__ == "__main__":
    main()
