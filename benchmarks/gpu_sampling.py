"""From logits to candidates and to a token on a device, beside PyTorch in the same run.

Softmax with top-k at a vocabulary of 131,072 and k = 50, 2,048 rows (1 GiB of float32) and 64 rows:
`kvlib.kernels.softmax_topk` against torch.softmax followed by torch.topk, and the share of the
measured copy bandwidth that one read of the logits reaches. Then whole draws, with the copy of the
token ids to the host. Writes results/gpu_sampling.json. Without a device it says so and ends.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from on_device import (
    alternate,
    copy_bandwidth,
    describe,
    device_or_exit,
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
    """Sets of logits with a peak, as models give them: normal, times 3; bfloat16 as uint16."""
    from kvlib.kernels.types import to_bfloat16

    size = 2 if dtype != "float32" else 4
    rng = cp.random.default_rng(0)
    found = []
    for _ in range(sets_for(cp, rows * VOCABULARY * size)):
        x = rng.standard_normal((rows, VOCABULARY), dtype=cp.float32) * 3
        if dtype == "uint16":
            x = cp.asarray(np.stack([to_bfloat16(row.get()) for row in x]))
        found.append(x.astype(dtype, copy=False))
    return found


def candidates(cp: Any, torch: Any, rows: int, dtype: str, bandwidth: float) -> dict[str, Any]:
    """Times of softmax with top-k; the answers are compared before they are timed."""
    from kvlib.kernels import softmax_topk

    sets = logits_of(cp, rows, dtype)
    runs = {"kvlib": lambda i: softmax_topk(sets[i % len(sets)], K)}
    if torch is not None:
        theirs = [torch.from_dlpack(x) for x in sets]
        if dtype == "uint16":
            theirs = [x.view(torch.bfloat16) for x in theirs]

        def two_calls(i: int) -> Any:
            return torch.topk(torch.softmax(theirs[i % len(sets)], dim=-1), K, dim=-1)

        mine, other = softmax_topk(sets[0], K), two_calls(0)
        wanted = cp.from_dlpack(other.values.float())
        cp.testing.assert_allclose(mine.probabilities(), wanted, rtol=2e-2, atol=1e-6)
        runs["torch.softmax + torch.topk"] = two_calls
    times = alternate(cp, runs, burst=5 if rows > 500 else 20)
    nbytes = rows * VOCABULARY * sets[0].itemsize
    seconds = times["kvlib"]["median_us"] / 1e6
    found = {
        "rows": rows,
        "dtype": {"uint16": "bfloat16"}.get(dtype, dtype),
        "logit_bytes": nbytes,
        "times": times,
        "share_of_copy_bandwidth": nbytes / seconds / bandwidth,
    }
    if torch is not None:
        theirs_us = times["torch.softmax + torch.topk"]["median_us"]
        found["times_torch"] = theirs_us / times["kvlib"]["median_us"]
    return found


def draws(cp: Any, rows: int) -> dict[str, Any]:
    """Microseconds of a whole draw, ids on the host, for each kind of settings."""
    from kvlib.kernels import sample_tokens

    sets = logits_of(cp, rows, "float32")
    runs = {
        name: lambda i, given=given: sample_tokens(sets[i % len(sets)], **given, step=i)
        for name, given in SETTINGS.items()
    }
    return {"rows": rows, "times": alternate(cp, runs, burst=10)}


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
        print(found)
        results["candidates"].append(found)
        cp.get_default_memory_pool().free_all_blocks()
    results["draws"] = [draws(cp, rows) for rows in (64, 8)]
    save("gpu_sampling", results, cp)


if __name__ == "__main__":
    main()
