"""Generate on a GPU: check that the tokens are those of NumPy, and count tokens per second.

The reference model, and a Llama of 100 M parameters with random weights (benchmarks/decode.py)
beside Hugging Face transformers on the same device; float32 all, greedy. Each step reads its token
on the host, as a server does, so times are of whole steps by the host's clock. Writes
results/gpu_generate.json after each case. Without a device it says so and ends.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import decode as host
import numpy as np
from on_device import device_or_exit, save, torch_or_none

CASES = ((1, 512), (8, 512), (1, 128))  # requests, tokens of each prompt
TEXTS = ("class Stack:\n    def push(self, ", "def add(a, b):\n    return ")


def library() -> Any:
    """CuPy as kvlib takes it."""
    import array_api_compat.cupy as cp

    return cp


def same_tokens(new: int = 64) -> dict[str, Any]:
    """The reference model's greedy tokens on NumPy, on CuPy, and through the kernels."""
    from kvlib import generate, load_reference_model
    from kvlib.kernels import use_kernels

    settings: dict[str, Any] = {"max_new_tokens": new, "progress": False}
    prompts = list(TEXTS)
    wanted = generate(load_reference_model(xp=np), prompts, **settings)
    model = load_reference_model(xp=library())
    found = {"arrays": generate(model, prompts, **settings)}
    cache = use_kernels(model.new_cache(len(prompts), new + max(map(len, prompts))))
    found["kernels"] = generate(model, prompts, cache=cache, **settings)
    return {
        "prompts": len(prompts),
        "new_tokens": new,
        "same": {name: tokens == wanted for name, tokens in found.items()},
    }


def case(model: Any, peer: Any, batch: int, length: int, steps: int) -> dict[str, Any]:
    """Medians of `steps` steps, the first quarter dropped; blocks of eight take turns."""
    from kvlib.kernels import use_kernels

    prompt = np.random.default_rng(0).integers(0, model.config.vocab_size, (batch, length))
    runs = {
        "kernels": host.ours(model, prompt, steps + 8, use_kernels),
        "arrays": host.ours(model, prompt, steps + 8),
    }
    if peer is not None:
        runs["transformers"] = host.theirs(peer, prompt)
    times: dict[str, list[float]] = {name: [] for name in runs}
    tokens: dict[str, list[int]] = {name: [] for name in runs}
    for _ in range(steps // 8):
        for name, run in runs.items():
            for _ in range(8):
                start = time.perf_counter()
                tokens[name].append(run())
                times[name].append(time.perf_counter() - start)
    row: dict[str, Any] = {"batch": batch, "prompt": length, "steps": steps}
    for name, values in times.items():
        low, mid, high = np.quantile(values[steps // 4 :], [0.25, 0.5, 0.75]) * 1e3
        alike = sum(a == b for a, b in zip(tokens[name], tokens["arrays"], strict=True))
        row[name] = {
            "median_ms": mid, "q1_ms": low, "q3_ms": high,
            "tokens_per_s": 1e3 * batch / mid, "tokens_as_arrays": alike,
        }  # fmt: skip
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--steps", type=int, default=96, help="decode steps per figure (default: 96)"
    )
    args = parser.parse_args()
    cp = device_or_exit()
    results: dict[str, Any] = {"reference": same_tokens(), "decode": []}
    print(f"the reference model's tokens are NumPy's: {results['reference']['same']}", flush=True)
    save("gpu_generate", results, cp)
    from kvlib.model import Decoder, random_weights

    plain = host.build()
    peer = host.build_peer(plain) if torch_or_none() is not None else None
    peer = None if peer is None else peer.to("cuda")
    model = Decoder(plain.config, random_weights(plain.config, seed=0, xp=library()))
    for batch, length in CASES:
        row = case(model, peer, batch, length, args.steps)
        results["decode"].append(row)
        figures = "; ".join(
            f"{n} {row[n]['median_ms']:.2f} ms, {row[n]['tokens_per_s']:.0f} tokens/s"
            for n in ("kernels", "arrays", "transformers")
            if n in row
        )
        print(f"batch {batch}, prompt {length}: {figures}", flush=True)
        save("gpu_generate", results, cp)


if __name__ == "__main__":
    main()
