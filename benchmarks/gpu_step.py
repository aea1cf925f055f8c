"""Time decode steps that run as one CUDA graph (kvlib.kernels.compile_step) on a GPU.

A Llama with the shapes of Llama-3.2-1B in bfloat16, and one of 100 M parameters in float32, with
random weights that are made on the device. `step` is a whole step by the host's clock: plan, launch
and read the tokens. `ahead` is a step whose tokens the host doesn't read, by CUDA events: the host
plans the next one while the device works. Shares are of the copy bandwidth, for the bytes of
weights, keys and values. With --peers, transformers runs the same shapes with a StaticCache and
torch.compile(mode="reduce-overhead"), which compiles for half a minute. Writes
results/gpu_step.json after each case. Without a device it says so and ends.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from on_device import alternate, copy_bandwidth, device_or_exit, save, torch_or_none

CASES = (("1B", 1, 128), ("1B", 8, 128), ("1B", 1, 4096), ("100M", 1, 128), ("100M", 8, 512))
ROOM = 512  # tokens that a request grows by before it's truncated
SIZES = {  # vocabulary, hidden, inner, layers, query and kv heads, head
    "1B": (128256, 2048, 8192, 16, 32, 8, 64),
    "100M": (32000, 768, 2048, 12, 12, 4, 64),
}


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
        if name == "1B":
            part = BFloat16().encode(part)["codes"]
        flat = xp.empty((shape[0] * shape[1],), dtype=part.dtype)
        for a in range(0, flat.size, part.size):
            flat[a : a + part.size] = part[: flat.size - a]
        weights[weight] = flat.reshape(shape)
    return Decoder(config, weights)


def ours(model: Any, batch: int, keys: int) -> tuple[Callable[[], int], Callable[[int], Any], int]:
    """A step that returns a token, one that reads none, and the bytes that each reads at least."""
    from kvlib import DenseCache
    from kvlib.kernels import compile_step, use_kernels

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

    def plan() -> Any:
        if cache.seq_len(0) == keys + ROOM:
            for name in names:
                cache.truncate(name, keys)
        return cache.plan(names, [1] * batch)

    def step() -> int:
        nonlocal tokens
        tokens = compiled.greedy(compiled.forward(tokens, cache, plan()))
        return tokens[0]

    def ahead(_: int) -> Any:
        return compiled.forward(None, cache, plan())

    read = sum(w.nbytes for w in model.weights.values())
    read += sum(x.nbytes for x in cache.storage()) * keys // (keys + ROOM)
    return step, ahead, read


def theirs(torch: Any, name: str, batch: int, keys: int) -> Callable[[], int]:
    """The same step by transformers, compiled."""
    from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

    vocabulary, hidden, inner, layers, heads, kv_heads, dim = SIZES[name]
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=inner, head_dim=dim,
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads,
        max_position_embeddings=8192, tie_word_embeddings=True,
    )  # fmt: skip
    dtype = torch.bfloat16 if name == "1B" else torch.float32
    model = LlamaForCausalLM(config).to("cuda", dtype).eval()
    cache = StaticCache(config=config, max_cache_len=keys + ROOM)
    compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True)
    state = {"ids": torch.ones((batch, 1), dtype=torch.long, device="cuda"), "at": keys}
    with torch.inference_mode():
        model(state["ids"].expand(batch, keys), past_key_values=cache, logits_to_keep=1)

    def step() -> int:
        at = torch.tensor([state["at"]], device="cuda")
        with torch.inference_mode():
            torch.compiler.cudagraph_mark_step_begin()
            out = compiled(state["ids"], past_key_values=cache, cache_position=at)
            state["ids"] = out.logits[:, -1:].argmax(-1)
        state["at"] += 1
        return int(state["ids"][0, 0])

    return step


def by_clock(step: Callable[[], int], steps: int) -> dict[str, float]:
    """Microseconds of a step by the host's clock, the first quarter dropped."""
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    low, mid, high = np.quantile(times[steps // 4 :], [0.25, 0.5, 0.75]) * 1e6
    return {"median_us": mid, "q1_us": low, "q3_us": high, "steps": steps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", action="store_true", help="transformers, compiled, as well")
    parser.add_argument("--steps", type=int, default=96, help="per figure (default: 96)")
    args = parser.parse_args()
    cp = device_or_exit()
    torch = torch_or_none() if args.peers else None
    results: dict[str, Any] = {"copy_bytes_per_s": copy_bandwidth(cp), "steps": []}
    models: dict[str, Any] = {}
    for name, batch, keys in CASES:
        if name not in models:
            models = {name: build(cp, name)}  # one at a time
        step, ahead, read = ours(models[name], batch, keys)
        runs = {"step": by_clock(step, args.steps)}
        runs |= alternate(cp, {"ahead": ahead}, rounds=args.steps // 16, burst=16)
        floor = read / results["copy_bytes_per_s"] * 1e6
        for run in runs.values():
            run["share"] = floor / run["median_us"]
        if torch is not None:
            runs["transformers"] = by_clock(theirs(torch, name, batch, keys), args.steps)
        results["steps"].append(
            {"model": name, "batch": batch, "keys": keys, "bytes": read, "runs": runs}
        )
        figures = "; ".join(f"{n} {run['median_us']:.0f} us" for n, run in runs.items())
        print(f"{name}, batch {batch}, {keys} keys: {figures}; floor {floor:.0f} us", flush=True)
        save("gpu_step", results, cp)
        cp.get_default_memory_pool().free_all_blocks()


if __name__ == "__main__":
    main()
