"""Compare softmax with top-k, and whole draws, on a GPU with PyTorch in the same run.

Softmax with top-k at a vocabulary of 131,072 and k = 50, 2,048 rows (1 GiB of float32) and 64 rows:
`kvlib.kernels.softmax_topk` against torch.softmax followed by torch.topk, and the share of the
measured copy bandwidth that one read of the logits reaches. Then whole draws, with the copy of the
token ids to the host; with top_p alone the host draws, because 0.9 of the probability of these
logits is spread over thousands of tokens. Writes results/gpu_sampling.json. Without a device it
says so and ends.
"""

from __future__ import annotations

import argparse
from typing import Any

from on_device import (
    Graph,
    Launches,
    TorchGraph,
    alternate,
    as_torch,
    copy_bandwidth,
    describe,
    device_or_exit,
    line,
    save,
    sets_for,
    torch_or_none,
)

VOCABULARY, K = 1 << 17, 50
SETTINGS: dict[str, dict[str, Any]] = {
    "top_k 50": {"top_k": 50},
    "top_p 0.9": {"top_p": 0.9},
    "top_k 50, top_p 0.9, temperature 0.7": {"top_k": 50, "top_p": 0.9, "temperature": 0.7},
    "every token": {},
}


def logits_of(cp: Any, rows: int, dtype: str) -> list[Any]:
    """Sets of logits, normal and times 3; bfloat16 as uint16."""
    size = 2 if dtype != "float32" else 4
    rng = cp.random.default_rng(0)
    found = []
    for _ in range(sets_for(cp, rows * VOCABULARY * size)):
        x = rng.standard_normal((rows, VOCABULARY), dtype=cp.float32) * 3
        if dtype == "uint16":  # to nearest, on the device
            bits = x.view(cp.uint32)
            x = (bits + cp.uint32(0x7FFF) + (bits >> cp.uint32(16) & cp.uint32(1))) >> cp.uint32(16)
        found.append(x.astype(dtype, copy=False))
    return found


def candidates(cp: Any, torch: Any, rows: int, dtype: str, bandwidth: float) -> dict[str, Any]:
    """Times of softmax with top-k; the answers are compared before they are timed."""
    from kvlib.kernels import softmax_topk

    sets = logits_of(cp, rows, dtype)
    runs = {"kvlib": lambda i: softmax_topk(sets[i % len(sets)], K)}
    if torch is not None:
        shared = [as_torch(torch, cp, x) for x in sets]

        def two_calls(i: int) -> Any:
            return torch.topk(torch.softmax(shared[i % len(sets)], dim=-1), K, dim=-1)

        mine, other = softmax_topk(sets[0], K), two_calls(0)
        wanted = cp.from_dlpack(other.values.float())
        cp.testing.assert_allclose(mine.probabilities(), wanted, rtol=2e-2, atol=1e-6)
        runs["torch.softmax + torch.topk"] = two_calls
    if rows <= 500:  # shorter than Python takes to start them: the same calls, replayed
        runs["kvlib, replayed"] = Graph(cp, Ready(cp, sets), 4 * len(sets))
        if torch is not None:
            try:
                runs["torch, replayed"] = TorchGraph(torch, two_calls, 4 * len(sets))
            except RuntimeError as error:
                print(f"PyTorch's calls are not recorded: {str(error).splitlines()[0]}")
    times = alternate(cp, runs, burst=20 if rows > 500 else 40)
    nbytes = rows * VOCABULARY * sets[0].itemsize
    kvlib, theirs = (
        [n for n in (name, f"{name.split('.')[0]}, replayed") if n in times][-1:]
        for name in ("kvlib", "torch.softmax + torch.topk")
    )
    seconds = times[kvlib[0]]["median_us"] / 1e6
    found = {
        "rows": rows,
        "dtype": {"uint16": "bfloat16"}.get(dtype, dtype),
        "logit_bytes": nbytes,
        "times": times,
        "share_of_copy_bandwidth": nbytes / seconds / bandwidth,
    }
    if theirs:
        found["times_torch"] = times[theirs[0]]["median_us"] / times[kvlib[0]]["median_us"]
    return found


class Ready(Launches):
    """softmax_topk's launches with everything made beforehand, so that a graph can record them."""

    def __init__(self, cp: Any, sets: list[Any]) -> None:
        from kvlib.kernels.launch import here
        from kvlib.kernels.plans_topk import plan_topk
        from kvlib.kernels.sample import launches_of, scale_of

        rows, columns = sets[0].shape
        plan = plan_topk(rows, columns, K, itemsize=sets[0].itemsize, device=here())
        self.launches = []
        for x in sets:
            values = cp.empty((rows, K), dtype=cp.float32)
            places = cp.empty((rows, K), dtype=cp.int32)
            totals = cp.empty((3, rows), dtype=cp.float32)
            self.launches.append(launches_of(plan, values, places, totals, x, K, scale_of(1.0)))


def draws(cp: Any, rows: int) -> dict[str, Any]:
    """Microseconds of a whole draw, which waits for its ids, for each kind of settings."""
    from kvlib.kernels import sample_tokens

    sets = logits_of(cp, rows, "float32")
    runs = {
        name: lambda i, given=given: sample_tokens(sets[i % len(sets)], **given, step=i)
        for name, given in SETTINGS.items()
    }
    return {"rows": rows, "times": alternate(cp, runs, burst=1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.parse_args()
    cp = device_or_exit()
    torch = torch_or_none()
    print(describe(cp))
    bandwidth = copy_bandwidth(cp)
    sizes = [(2048, "float32"), (64, "float32"), (2048, "uint16"), (64, "uint16"), (1, "float32")]
    results: dict[str, Any] = {
        "copy_bandwidth": bandwidth,
        "vocabulary": VOCABULARY,
        "k": K,
        "torch": None if torch is None else torch.__version__,
        "candidates": [],
    }
    for rows, dtype in sizes:
        found = candidates(cp, torch, rows, dtype, bandwidth)
        share, figures = found["share_of_copy_bandwidth"], line(found["times"])
        print(f"{rows:>5} rows, {found['dtype']}: {figures}; {share:.0%} of the copy", flush=True)
        results["candidates"].append(found)
        save("gpu_sampling", results, cp)
        cp.get_default_memory_pool().free_all_blocks()
        if torch is not None:
            torch.cuda.empty_cache()
    results["draws"] = [draws(cp, rows) for rows in (64, 8)]
    save("gpu_sampling", results, cp)


if __name__ == "__main__":
    main()
