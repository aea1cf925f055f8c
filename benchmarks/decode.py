"""Compare decode and prefill of a 100 M-parameter Llama in kvlib and Hugging Face transformers.

Random weights, the same in both; float32; blocks of steps take turns. Needs torch and
transformers (pip install 'kvlib[dev]'); without them kvlib's own figures are measured alone.

    python benchmarks/decode.py [--threads 2] [--steps 48] [--json FILE]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import harness

PROMPTS = (128, 512, 1024)


def build() -> Any:
    """12 layers, hidden 768, 12/4 heads of 64, vocabulary 32000: 100 M weights and an embedding."""
    from kvlib.model import Decoder, ModelConfig, random_weights

    config = ModelConfig(
        "llama", 32000, 768, 2048, 12, 12, 4, 64, 2048, norm_eps=1e-5, tie_word_embeddings=True
    )
    return Decoder(config, random_weights(config, seed=0))


def build_peer(model: Any) -> Any:
    """The same weights in transformers' LlamaForCausalLM, or None where it is not installed."""
    try:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError:
        return None
    c = model.config
    config = LlamaConfig(
        vocab_size=c.vocab_size,
        hidden_size=c.hidden_size,
        intermediate_size=c.intermediate_size,
        num_hidden_layers=c.num_hidden_layers,
        num_attention_heads=c.num_attention_heads,
        num_key_value_heads=c.num_key_value_heads,
        head_dim=c.head_dim,
        max_position_embeddings=c.max_position_embeddings,
        rms_norm_eps=c.norm_eps,
        tie_word_embeddings=True,
    )
    peer = LlamaForCausalLM(config).eval()
    w, state = model.weights, {}
    state["model.embed_tokens.weight"] = w["embed.weight"]
    state["lm_head.weight"] = w["embed.weight"]
    state["model.norm.weight"] = w["norm.weight"]
    heads, kv = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    for i in range(c.num_hidden_layers):
        ours, theirs = f"layers.{i}.", f"model.layers.{i}."
        qkv, both = w[ours + "qkv.weight"], w[ours + "gate_up.weight"]
        state[theirs + "self_attn.q_proj.weight"] = qkv[:heads]
        state[theirs + "self_attn.k_proj.weight"] = qkv[heads : heads + kv]
        state[theirs + "self_attn.v_proj.weight"] = qkv[heads + kv :]
        state[theirs + "self_attn.o_proj.weight"] = w[ours + "o.weight"]
        state[theirs + "mlp.gate_proj.weight"] = both[: c.intermediate_size]
        state[theirs + "mlp.up_proj.weight"] = both[c.intermediate_size :]
        state[theirs + "mlp.down_proj.weight"] = w[ours + "down.weight"]
        state[theirs + "input_layernorm.weight"] = w[ours + "attn_norm.weight"]
        state[theirs + "post_attention_layernorm.weight"] = w[ours + "mlp_norm.weight"]
    peer.load_state_dict({n: torch.tensor(x) for n, x in state.items()}, strict=True)
    return peer


def bare_products(model: Any, rows: int) -> Callable[[], None]:
    """The weight products of one step and nothing else: the floor of a decode step."""
    import numpy as np

    from kvlib.model.layers import linear

    w = [x for n, x in model.weights.items() if x.ndim == 2 and n != "embed.weight"]
    w.append(model.weights["embed.weight"])  # tied: read once more, as the last product
    inputs = {n: np.full((rows, n), 0.01, np.float32) for n in {x.shape[1] for x in w}}

    def run() -> None:
        for x in w:
            linear(inputs[x.shape[1]], x)

    return run


def ours(
    model: Any, prompt: Any, room: int, wrap: Callable[[Any], Any] = lambda cache: cache
) -> Callable[[], int]:
    """One greedy decode step of all rows after a prompt (B, P), in a cache that `wrap` returns."""
    batch, length = prompt.shape
    cache = wrap(model.new_cache(batch, length + room))
    ids = list(range(batch))
    for i in ids:
        cache.add(i)
    tokens = model.xp.asarray(prompt.reshape(-1))
    logits = model.forward(tokens, cache, cache.plan(ids, [length] * batch))
    state = {"next": logits.argmax(axis=1)}

    def run() -> int:
        logits = model.forward(state["next"], cache, cache.plan(ids, [1] * batch))
        state["next"] = logits.argmax(axis=1)
        return int(state["next"][0])

    return run


def theirs(peer: Any, prompt: Any) -> Callable[[], int]:
    """The same step by transformers with its DynamicCache."""
    import torch
    from transformers import DynamicCache

    cache = DynamicCache(config=peer.config)
    with torch.inference_mode():
        tokens = torch.tensor(prompt, device=peer.device)
        out = peer(tokens, past_key_values=cache, use_cache=True, logits_to_keep=1)
    state = {"next": out.logits[:, -1].argmax(-1, keepdim=True)}

    def run() -> int:
        with torch.inference_mode():
            out = peer(state["next"], past_key_values=cache, use_cache=True)
            state["next"] = out.logits[:, -1].argmax(-1, keepdim=True)
        return int(state["next"][0, 0])

    return run


def measure(steps: int, batches: list[int], prompts: list[int], bar: Any) -> dict[str, Any]:
    """All figures; the ratio of medians beside each pair."""
    import numpy as np

    model = build()
    peer = build_peer(model)
    rng = np.random.default_rng(0)
    out: dict[str, Any] = {"parameters": model.num_parameters, "decode": [], "prefill": []}
    for batch in batches:
        for length in prompts:
            prompt = rng.integers(0, model.config.vocab_size, (batch, length))
            runs: dict[str, Callable[[], Any]] = {
                "kvlib": ours(model, prompt, steps + 16),
                "products": bare_products(model, batch),
            }
            if peer is not None:
                runs["transformers"] = theirs(peer, prompt)
            row = {"batch": batch, "prompt": length}
            row |= harness.alternate(runs, steps=steps, tick=lambda: bar.update())
            step = row["kvlib"]["median_ms"]
            row["share_in_products"] = row["products"]["median_ms"] / step
            if peer is not None:
                row["times_transformers"] = row["transformers"]["median_ms"] / step
            out["decode"].append(row)
            bar.write(line(row))
    for length in prompts:
        prompt = rng.integers(0, model.config.vocab_size, (1, length))
        runs = {"kvlib": lambda p=prompt: ours(model, p, 1)}
        if peer is not None:
            runs["transformers"] = lambda p=prompt: theirs(peer, p)
        row = {"batch": 1, "prompt": length}
        row |= harness.alternate(runs, steps=12, rounds=3, tick=lambda: bar.update())
        if peer is not None:
            row["times_transformers"] = row["transformers"]["median_ms"] / row["kvlib"]["median_ms"]
        out["prefill"].append(row)
        bar.write(line(row))
    out["uncached"] = uncached(model, rng, bar)
    return out


def uncached(model: Any, rng: Any, bar: Any) -> dict[str, Any]:
    """The 513th token with a cache, and by running all 513 tokens again."""
    prompt = rng.integers(0, model.config.vocab_size, (1, 512))
    longer = rng.integers(0, model.config.vocab_size, (1, 513))
    runs: dict[str, Callable[[], Any]] = {
        "cached": ours(model, prompt, 64),
        "recomputed": lambda: ours(model, longer, 1),
    }
    row: dict[str, Any] = {"prompt": 512}
    row |= harness.alternate(runs, steps=16, rounds=2, tick=lambda: bar.update())
    row["times_faster"] = row["recomputed"]["median_ms"] / row["cached"]["median_ms"]
    bar.write(f"cached against recomputed at 512: {row['times_faster']:.1f} times")
    return row


def line(row: dict[str, Any]) -> str:
    """One row for a reader."""
    text = f"batch {row['batch']:2d}  prompt {row['prompt']:4d}"
    for name in ("kvlib", "products", "transformers"):
        if name in row:
            text += f"  {name} {row[name]['median_ms']:.2f} ms"
    if "share_in_products" in row:
        text += f"  share {row['share_in_products']:.0%}"
    if "times_transformers" in row:
        text += f"  {row['times_transformers']:.2f} times transformers"
    return text


def main() -> None:
    parser = harness.parser(__doc__, "decode", threads=2, steps=48)
    parser.add_argument(
        "--batches", type=int, nargs="+", default=[1, 8], help="batch sizes (default: 1 8)"
    )
    parser.add_argument(
        "--prompts", type=int, nargs="+", default=list(PROMPTS), help="prompt lengths"
    )
    args = parser.parse_args()
    harness.limit_threads(args.threads)
    from tqdm import tqdm

    pairs = len(args.batches) * len(args.prompts)
    with tqdm(total=pairs * 12 + len(args.prompts) * 6 + 4, unit="block") as bar:
        results = measure(args.steps, args.batches, args.prompts, bar)
    harness.save("decode", {"threads": args.threads, **results}, args.json)


if __name__ == "__main__":
    main()
