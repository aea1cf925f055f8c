"""Find the fastest form of x Wᵀ for each number of rows, as kvlib.model.layers.linear chooses it.

Every weight of the 100 M-parameter model is multiplied once, as in a step of decoding.
From 8 rows on kvlib's form has its own threads, and here the BLAS threads of the form before
still spin beside them; benchmarks/decode.py shows the same products in real steps.

    python benchmarks/linear.py [--threads 2] [--rows 1 2 4 8 16 64] [--json FILE]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import harness

ROWS = (1, 2, 3, 4, 6, 8, 9, 12, 16, 32, 64, 128)


def forms() -> dict[str, Callable[[Any, Any], Any]]:
    """The ways to write one and the same product."""
    import numpy as np

    from kvlib.model.layers import linear

    return {
        "x @ W.T": lambda x, w: x @ w.T,
        "row by row": lambda x, w: (x[:, None] @ w.T)[:, 0],
        "(W @ x.T).T": lambda x, w: np.ascontiguousarray((w @ x.T).T),
        "kvlib": linear,
    }


def main() -> None:
    parser = harness.parser(__doc__, "linear", threads=2)
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS), help="numbers of rows")
    args = parser.parse_args()
    harness.limit_threads(args.threads)
    import numpy as np
    from decode import build
    from tqdm import tqdm

    weights = [w for w in build().weights.values() if w.ndim == 2]
    rng = np.random.default_rng(0)
    table = []
    for rows in tqdm(args.rows, unit="row count"):
        inputs = {
            n: rng.standard_normal((rows, n), dtype=np.float32)
            for n in {w.shape[1] for w in weights}
        }
        runs = {
            name: lambda f=f, x=inputs: [f(x[w.shape[1]], w) for w in weights]
            for name, f in forms().items()
        }
        row = {"rows": rows, **harness.alternate(runs, steps=16, rounds=4)}
        table.append(row)
        figures = "  ".join(f"{name}: {row[name]['median_ms']:.1f} ms" for name in runs)
        tqdm.write(f"{rows:4d} rows  {figures}")
    harness.save("linear", {"threads": args.threads, "products": table}, args.json)


if __name__ == "__main__":
    main()
