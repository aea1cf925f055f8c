"""Time decode steps that run as one CUDA graph (kvlib.kernels.compile_step) on a GPU.

A Llama with the shapes of Llama-3.2-1B in bfloat16, and one of 100 M parameters in float32, with
random weights that are made on the device. `whole` is a step by the host's clock: plan, start, and
read the tokens while the next step runs. `graph` is the graph alone by CUDA events, `graph, not
early` one whose kernels wait for each other's end, `one by one` the same launches from Python. The
floor is the time in which a copy moves as many bytes as the weights, keys and values have. `tokens`
counts how many of 256 tokens of the reference model are those that NumPy computes. With --peers,
transformers runs the 1B shapes, as it is and with a StaticCache and
torch.compile(mode="reduce-overhead"), which takes half a minute. Writes results/gpu_step.json after
each case. Without a device it says so and ends.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from on_device import alternate, copy_bandwidth, device_or_exit, line, save, torch_or_none

CASES = (
    ("llama-3.2-1b", 1, 128), ("llama-3.2-1b", 8, 128), ("llama-3.2-1b", 1, 4096),
    ("llama-100m", 1, 128), ("llama-100m", 8, 512),
)  # fmt: skip
PEERS = CASES[:2]
ROOM = 512  # tokens that a request grows by before it's truncated
SIZES = {  # vocabulary, hidden, inner, layers, query and kv heads, head
    "llama-3.2-1b": (128256, 2048, 8192, 16, 32, 8, 64),
    "llama-100m": (32000, 768, 2048, 12, 12, 4, 64),
}
NEW, PROMPTS = 256, (b"def mean(values):\n    return ", b"x", b"import os\n\n\nclass ")


def build(cp: Any, name: str) -> Any:
    """A decoder whose matrices repeat the same 16 M random numbers."""
    import array_api_compat.cupy as xp

    from kvlib.codecs import BFloat16
    from kvlib.model import Decoder, ModelConfig, weight_shapes

    more = {"norm_eps": 1e-5, "tie_word_embeddings": True}
    config = ModelConfig("llama", *SIZES[name], max_position_embeddings=8192, **more)
    numbers, weights = cp.random.default_rng(0).standard_normal(1 << 24, dtype=cp.float32), {}
    for weight, shape in weight_shapes(config).items():
        if len(shape) == 1:
            weights[weight] = xp.ones(shape, dtype=xp.float32)
            continue
        part = numbers / np.float32(np.sqrt(shape[1]))
        if name == "llama-3.2-1b":
            part = BFloat16().encode(part)["codes"]
        flat = xp.empty((shape[0] * shape[1],), dtype=part.dtype)
        for a in range(0, flat.size, part.size):
            flat[a : a + part.size] = part[: flat.size - a]
        weights[weight] = flat.reshape(shape)
    return Decoder(config, weights)


def ours(cp: Any, model: Any, batch: int, keys: int, steps: int) -> dict[str, Any]:
    """Bytes and launches of a step, and its times."""
    from kvlib import DenseCache
    from kvlib.kernels import compile_step, use_kernels
    from kvlib.kernels.launch import run
    from kvlib.kernels.step import captured

    names, narrow = [*range(batch)], model.weights["embed.weight"].dtype != np.float32
    settings = {"dtype": model.xp.float16 if narrow else None, "xp": model.xp}
    cache = use_kernels(DenseCache(model.layer_specs, batch, keys + ROOM, **settings))
    for array in cache.storage():
        array[...] = 0
    for name in names:
        cache.add(name)
    cache.mark_appended(cache.plan(names, [keys] * batch))  # zeros take as long as a prompt
    compiled, tokens = compile_step(model, cache), [1] * batch
    assert compiled.explain() == []

    def step() -> None:
        nonlocal tokens
        if cache.seq_len(0) == keys + ROOM:
            for name in names:
                cache.truncate(name, keys)
        logits = compiled.forward(tokens, cache, cache.plan(names, [1] * batch))
        compiled.start_next()
        tokens = compiled.greedy(logits)

    whole = by_clock(step, steps)
    for name in names:
        cache.truncate(name, keys)
    step()  # the device counts tokens from here on: fewer than ROOM steps
    launches = compiled.launches(batch, keys + 1)
    runs = {
        "graph": captured(launches),
        "graph, not early": captured([replace(launch, early=False) for launch in launches]),
        "one by one": lambda: [run(launch) for launch in launches],
    }
    turns = {name: partial(_call, run) for name, run in runs.items()}
    times = {"whole": whole} | alternate(cp, turns, rounds=8, burst=8)
    read = sum(w.nbytes for w in model.weights.values())
    read += sum(x.nbytes for x in cache.storage()) * keys // (keys + ROOM)
    return {"launches": len(launches), "bytes": read, "runs": times}


def _call(run: Callable[[], Any], _: int) -> None:
    run()


def theirs(torch: Any, name: str, batch: int, keys: int, steps: int) -> dict[str, Any]:
    """Times of the same step by transformers, as it is and compiled."""
    from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

    vocabulary, hidden, inner, layers, heads, kv_heads, dim = SIZES[name]
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=inner, head_dim=dim,
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads,
        max_position_embeddings=8192, tie_word_embeddings=True,
    )  # fmt: skip
    model = LlamaForCausalLM(config).to("cuda", torch.bfloat16).eval()
    fast = torch.compile(model, mode="reduce-overhead", fullgraph=True)

    def timed(forward: Any, steps: int) -> dict[str, float]:
        cache = StaticCache(config=config, max_cache_len=keys + ROOM)
        ids, at = torch.ones((batch, 1), dtype=torch.long, device="cuda"), keys
        with torch.inference_mode():
            model(ids.expand(batch, keys), past_key_values=cache, logits_to_keep=1)

        def step() -> None:
            nonlocal ids, at
            where = torch.tensor([at], device="cuda")
            with torch.inference_mode():
                torch.compiler.cudagraph_mark_step_begin()
                out = forward(ids, past_key_values=cache, cache_position=where)
                ids, at = out.logits[:, -1:].argmax(-1), at + 1
            ids.tolist()

        return by_clock(step, steps)

    return {"transformers": timed(model, 16), "transformers, compiled": timed(fast, steps)}


def by_clock(step: Callable[[], None], steps: int) -> dict[str, float]:
    """Microseconds of a step by the host's clock, the first quarter dropped."""
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    low, mid, high = np.quantile(times[steps // 4 :], [0.25, 0.5, 0.75]) * 1e6
    return {"median_us": mid, "q1_us": low, "q3_us": high, "steps": steps}


def equal_tokens() -> dict[str, int]:
    """How many of NEW tokens are NumPy's before the first that isn't, the fewest of all prompts."""
    import array_api_compat.cupy as xp

    from kvlib import BlockPool, DenseCache, PagedCache, generate, load_reference_model
    from kvlib.kernels import compile_step, use_kernels

    found = {}
    for kind in ("rows", "blocks", "int8"):
        tokens = []
        for library in (np, xp):
            model = load_reference_model(xp=library)
            cache, codec = DenseCache(model.layer_specs, 3, 300, xp=library), None
            if kind != "rows":
                codec = kind if kind == "int8" else None
                cache = PagedCache(model.layer_specs, BlockPool(120, 8), codec=codec, xp=library)
            compiled = library is xp and compile_step(model, use_kernels(cache))
            settings = {"max_new_tokens": NEW, "stop_tokens": (), "compiled": compiled}
            tokens.append(generate(model, [*map(list, PROMPTS)], cache=cache, **settings))
        equal = [np.cumprod(np.equal(a, b)).sum() for a, b in zip(*tokens, strict=True)]
        found[kind] = int(min(equal))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", action="store_true", help="transformers as well, at the end")
    parser.add_argument("--steps", type=int, default=96, help="per figure (default: 96)")
    args = parser.parse_args()
    cp = device_or_exit()
    results: dict[str, Any] = {"copy_bytes_per_s": copy_bandwidth(cp), "steps": []}
    models: dict[str, Any] = {}
    for name, batch, keys in CASES:
        if name not in models:
            models = {name: build(cp, name)}  # one at a time
        case = {"model": name, "batch": batch, "keys": keys}
        case |= ours(cp, models[name], batch, keys, args.steps)
        case["floor_us"] = case["bytes"] / results["copy_bytes_per_s"] * 1e6
        for run in case["runs"].values():
            run["share"] = case["floor_us"] / run["median_us"]
        results["steps"].append(case)
        print(f"{name}, batch {batch}, {keys} keys: {line(case['runs'])}", flush=True)
        save("gpu_step", results, cp)
        cp.get_default_memory_pool().free_all_blocks()
    models.clear()
    results["tokens"] = equal_tokens()
    print(f"of {NEW} tokens NumPy's: {results['tokens']}", flush=True)
    save("gpu_step", results, cp)
    torch = torch_or_none() if args.peers else None
    for i, (name, batch, keys) in enumerate(PEERS if torch is not None else ()):
        cp.get_default_memory_pool().free_all_blocks()
        runs = theirs(torch, name, batch, keys, args.steps)
        results["steps"][i]["runs"] |= runs
        print(f"{name}, batch {batch}, {keys} keys: {line(runs)}", flush=True)
        save("gpu_step", results, cp)


if __name__ == "__main__":
    main()
