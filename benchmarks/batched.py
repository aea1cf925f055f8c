"""Compare decode attention of many requests in one product with one request after the other.

float32, one layer, in a dense cache or in blocks of 16 tokens. Only `run` is timed. Each request
has one query, or three, as with two guesses. `behind` tokens are missing at random from all
requests but the first, up to what `kvlib.attention.batched.one_product_pays` allows and to twice
that. Calls take turns.

    python benchmarks/batched.py [--cache rows|blocks] [--threads 1] [--steps 200] [--json FILE]
"""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import harness

SIZES = ((1, 512), (8, 64), (8, 96), (32, 64), (64, 64), (32, 256), (16, 512), (2, 512), (4, 4096))
BLOCK = 16  # tokens of a block
QUERIES = (1, 3)  # of a request
SHAPES = ((2, 2, 64), (4, 2, 64), (8, 4, 128))  # key heads, query heads each, numbers of a head


def cache_of(where: str, kind: type, layers: list[Any], requests: int, tokens: int) -> Any:
    """A cache with room for so many requests of so many tokens."""
    import numpy as np

    from kvlib import BlockPool

    if where == "rows":
        return kind(layers, requests, tokens, xp=np)
    return kind(layers, BlockPool(requests * -(-tokens // BLOCK), BLOCK), xp=np)


def decoding(
    where: str, kind: type, shape: tuple[int, int, int], size: tuple[int, int], behind: int,
    queries: int,
) -> Any:  # fmt: skip
    """A cache of that kind, the step of each request's last tokens, and their queries."""
    import numpy as np

    from kvlib import LayerSpec

    (heads, groups, dim), (requests, keys) = shape, size
    rng = np.random.default_rng(0)
    cache = cache_of(where, kind, [LayerSpec(heads, dim)], requests, keys)

    def append(step: Any) -> None:
        k, v = (rng.standard_normal((step.num_tokens, heads, dim), np.float32) for _ in "kv")
        cache.append(0, k, v, step)

    for i in range(requests):
        cache.add(i)
        fewer = int(rng.integers(min(behind, keys - queries - 1) + 1)) if i else 0
        append(cache.plan([i], [keys - queries - fewer]))
    step = cache.plan(range(requests), [queries] * requests)
    append(step)
    return cache, step, rng.standard_normal((step.num_tokens, heads * groups, dim), np.float32)


def row(
    where: str, shape: tuple[int, int, int], size: tuple[int, int], behind: int, queries: int,
    steps: int,
) -> Any:  # fmt: skip
    """Milliseconds of both ways, and how many times as fast one is as the other."""
    import numpy as np

    from kvlib import DenseCache, PagedCache
    from kvlib.caches import run_alone
    from kvlib.caches.batches import batches

    base: Any = DenseCache if where == "rows" else PagedCache
    runs, results = {}, []
    for name, kind in (("one by one", partial(base, attention=run_alone)), ("as run", base)):
        cache, step, q = decoding(where, kind, shape, size, behind, queries)
        runs[name] = lambda cache=cache, step=step, q=q: cache.run(0, q, step)
        results.append(runs[name]())
    together = [len(batch) for batch in batches(cache, 0, step, shape[1])]
    np.testing.assert_allclose(*results, atol=1e-5)
    found: dict[str, Any] = dict(zip(("heads", "groups", "dim"), shape, strict=True))
    found |= {"requests": size[0], "keys": size[1], "behind": behind, "queries": queries}
    found["batches"] = together
    found |= harness.alternate(runs, steps=steps, rounds=steps // 4)
    found["times_as_fast"] = found["one by one"]["median_ms"] / found["as run"]["median_ms"]
    return found


def main() -> None:
    parser = harness.parser(__doc__, "batched[_blocks]", threads=1, steps=200)
    parser.add_argument(
        "--cache", choices=("rows", "blocks"), default="rows", help="(default: rows)"
    )
    args = parser.parse_args()
    harness.limit_threads(args.threads)
    from kvlib.attention.batched import COPIED

    rows = []
    for shape, queries, size in product(SHAPES, QUERIES, SIZES):
        most = COPIED // (shape[0] * shape[2])
        for behind in (0, most, 2 * most):
            rows.append(row(args.cache, shape, size, behind, queries, args.steps))
            r = rows[-1]
            print(
                f"{shape} {size[0]:2} requests of {size[1]:4}, up to {behind:2} fewer, {queries} "
                f"new: {r['times_as_fast']:.2f} times as fast"
                f"{'' if r['batches'] else ' (each alone)'}"
            )
    name = "batched" if args.cache == "rows" else "batched_blocks"
    harness.save(name, {"cache": args.cache, "threads": args.threads, "rows": rows}, args.json)


if __name__ == "__main__":
    main()
