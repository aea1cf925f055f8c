"""Guesses of one request on a graphics card: a tree of 16 and a chain of 5 beside a single token.

8 kv heads of 128, four query heads each, bfloat16, as gpu_attention.py. One step checks all guesses
and reads the older keys once per kv head, so it should take little longer than the single token.
Calls are replayed from graphs: over few keys, starting one from Python would take longer than it.
`share` is bytes of keys and values over time, over the copy bandwidth measured in the same run.
Results: benchmarks/results/.

    python benchmarks/gpu_guesses.py [--quick]
"""

from __future__ import annotations

import argparse
from typing import Any

import on_device
from gpu_attention import DIM, GROUPS, HEADS, Decode, bits

KEYS = (65_536, 8_192, 1_024)
FORMS = {"tree of 16": (16, None), "tree of 16, not split": (16, 1), "chain of 5": (5, None)}


class Guesses(on_device.Launches):
    """The new tokens of one request, `sets` times over, with the launches that attend to each."""

    def __init__(self, cp: Any, q: Any, rows: list[Any], keys: int, tree: Any, splits: Any) -> None:
        from kvlib.kernels.checks import BlockTable, check_settings
        from kvlib.kernels.plans import plan_prefill
        from kvlib.kernels.prefill import launches_of, split_work

        n, plan = q.shape[0], plan_prefill(DIM, 2, q.shape[0] * GROUPS)
        work = split_work(q, HEADS, [n], [keys], splits=splits, run_on="device")
        lens, ends, table = (cp.asarray(x, dtype=cp.int32) for x in ([keys], [0, n], [[0]]))
        blocks, settings = BlockTable(table, keys, 31, 1), check_settings(DIM, None, None, None)
        self.splits, launches = 1 if work is None else work.most, []
        for k, v in rows:
            o, lse = cp.empty_like(q), cp.empty(q.shape[:2], dtype=cp.float32)
            arrays = q, k, v, table, lens, ends
            launches.append(
                launches_of(o, lse, arrays, blocks, settings, n * GROUPS, plan, tree, work)
            )
        super().__init__(launches)


def case(cp: Any, keys: int, bandwidth: float) -> dict[str, Any]:
    """Every form of guesses after as many older keys as make `keys` together."""
    from kvlib.kernels.trees import tree_of

    rng, sets = cp.random.default_rng(3), on_device.sets_for(cp, 2 * keys * HEADS * DIM * 2)
    rows = [[bits(cp, rng, (1, HEADS, keys, DIM)) for _ in "kv"] for _ in range(sets)]
    one = bits(cp, rng, (1, HEADS * GROUPS, DIM))
    lens = cp.asarray([keys], dtype=cp.int32)
    runs: dict[str, Any] = {"one token": Decode(cp, one, [(*x, None) for x in rows], lens)}
    for name, (n, splits) in FORMS.items():
        q = bits(cp, rng, (n, HEADS * GROUPS, DIM))
        tree = tree_of([[-1, *(j // 2 for j in range(n - 1))]], cp) if "tree" in name else None
        runs[name] = Guesses(cp, q, rows, keys, tree, splits)
    graphs = {name: on_device.Graph(cp, run, 2 * sets) for name, run in runs.items()}
    found = on_device.alternate(cp, graphs, burst=4 * sets)
    for times in found.values():
        times["share"] = runs["one token"].bytes / (times["median_us"] * 1e-6) / bandwidth
        times["times_one"] = times["median_us"] / found["one token"]["median_us"]
    return {"keys": keys, "splits": {n: run.splits for n, run in runs.items()}, "runs": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the most keys alone")
    args = parser.parse_args()
    cp = on_device.device_or_exit()
    bandwidth = on_device.copy_bandwidth(cp)
    results: dict[str, Any] = {"copy_bytes_per_s": bandwidth, "guesses": []}
    for keys in KEYS[:1] if args.quick else KEYS:
        row = case(cp, keys, bandwidth)
        results["guesses"].append(row)
        print(f"{keys:>6} keys: {on_device.line(row['runs'])}", flush=True)
        on_device.save("gpu_guesses", results, cp)


if __name__ == "__main__":
    main()
