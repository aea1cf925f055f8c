"""Random models of Hugging Face transformers, and what that library computes with them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()

LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0}
YARN |= {"original_max_position_embeddings": 32}
BY_LAYER = {  # Gemma 3's larger models: one rope for layers that see all, one for windows
    "full_attention": {"rope_type": "linear", "rope_theta": 1000.0, "factor": 8.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
}
GPT_OSS = {
    "head_dim": 16,
    "num_local_experts": 5,
    "num_experts_per_tok": 2,
    "rope_parameters": {**YARN, "beta_fast": 4.0, "beta_slow": 1.0, "truncate": False},
}
QWEN_MOE = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 20}
LATENT = {
    "num_key_value_heads": 4, "q_lora_rank": 12, "kv_lora_rank": 20, "qk_nope_head_dim": 10,
    "qk_rope_head_dim": 6, "v_head_dim": 14, "n_routed_experts": 8, "n_shared_experts": 2,
    "num_experts_per_tok": 3, "moe_intermediate_size": 20, "first_k_dense_replace": 1, "n_group": 4,
    "topk_group": 2, "routed_scaling_factor": 1.7,
}
DEEPSEEK_YARN = {**YARN, "beta_fast": 4.0, "beta_slow": 1.0, "mscale": 0.9, "mscale_all_dim": 0.9}
# far lower than in published files: logits of scale 1 would not notice a cap of 30
CAPPED = {
    "query_pre_attn_scalar": 24, "attn_logit_softcapping": 1.5, "final_logit_softcapping": 5.0,
}


@dataclass(frozen=True)
class Variant:
    """One checkpoint: a family, keys of its config, and how the folder is written."""

    name: str
    family: str
    keys: dict[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    shard: str | None = None
    old_spelling: bool = False  # rope_theta and rope_scaling for rope_parameters, no layer_types


VARIANTS = [
    Variant("llama", "Llama", {"num_key_value_heads": 4}),
    Variant("llama-3", "Llama", {"rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    Variant("llama-3-old", "Llama", {"rope_parameters": LLAMA3}, shard="20KB", old_spelling=True),
    Variant(
        "llama-linear-bias", "Llama",
        {
            "rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0},
            "attention_bias": True, "mlp_bias": True, "head_dim": 12, "num_key_value_heads": 1,
        }, dtype="bfloat16",
    ),
    Variant("mistral", "Mistral", {"sliding_window": 8}),
    Variant("mistral-full", "Mistral", {"sliding_window": None}, "float16", old_spelling=True),
    Variant("qwen2", "Qwen2", {"tie_word_embeddings": True}, old_spelling=True),
    Variant(
        "qwen2-windows", "Qwen2",
        {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}, "bfloat16",
        old_spelling=True,
    ),
    Variant("qwen3", "Qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
    Variant(
        "qwen3-windows", "Qwen3",
        {
            "head_dim": 12, "attention_bias": True, "use_sliding_window": True, "sliding_window": 8,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    Variant("gemma", "Gemma", {"head_dim": 12, "num_key_value_heads": 1}, "bfloat16"),
    Variant("gemma2", "Gemma2", {**CAPPED, "head_dim": 16, "sliding_window": 8}),
    Variant(
        "gemma2-old", "Gemma2",
        {**CAPPED, "head_dim": 8, "sliding_window": 8, "attn_logit_softcapping": None}, "bfloat16",
        old_spelling=True,
    ),
    Variant(
        "gemma3", "Gemma3Text",
        {
            "head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 24,
            "layer_types": ["sliding_attention", "full_attention"], "rope_parameters": BY_LAYER,
        },
    ),
    Variant(
        "gemma3-old", "Gemma3Text",
        {
            "head_dim": 8, "sliding_window": 8, "final_logit_softcapping": 5.0,
            "sliding_window_pattern": 2, "rope_parameters": BY_LAYER,
        }, "bfloat16", old_spelling=True,
    ),
    Variant("gpt-oss", "GptOss", {**GPT_OSS, "sliding_window": 8}, "bfloat16"),
    Variant("mixtral", "Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}, "float16"),
    Variant(
        "qwen2-moe", "Qwen2Moe", {**QWEN_MOE, "shared_expert_intermediate_size": 28}, "bfloat16",
    ),
    Variant(
        "qwen3-moe", "Qwen3Moe",
        {**QWEN_MOE, "head_dim": 16, "norm_topk_prob": True, "decoder_sparse_step": 2}, "bfloat16",
        old_spelling=True,
    ),
    Variant(
        "deepseek-v2-lite", "DeepseekV2",
        {
            **LATENT, "q_lora_rank": None, "n_group": 1, "topk_group": 1,
            "routed_scaling_factor": 1.0, "rope_parameters": DEEPSEEK_YARN,
        }, old_spelling=True,
    ),
    Variant(
        "deepseek-v2", "DeepseekV2",
        {**LATENT, "topk_method": "group_limited_greedy", "attention_bias": True}, "bfloat16",
    ),
    Variant("deepseek-v3", "DeepseekV3", {**LATENT, "rope_parameters": DEEPSEEK_YARN}, "float16"),
    Variant("llama-yarn", "Llama", {"rope_parameters": YARN}),
    Variant(
        "qwen3-yarn-old", "Qwen3",
        {"head_dim": 16, "rope_parameters": {**YARN, "attention_factor": 1.3}}, old_spelling=True,
    ),
    Variant(
        "llama-dynamic", "Llama",
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 500.0, "factor": 2.0}},
    ),
    Variant("phi3", "Phi3", {"sliding_window": 8, "pad_token_id": None}),
    Variant(
        "phi3-old", "Phi3",
        {"num_key_value_heads": 4, "tie_word_embeddings": True, "pad_token_id": None}, "bfloat16",
        old_spelling=True,
    ),
    Variant("starcoder2", "Starcoder2", {"sliding_window": 8}),
    Variant(
        "starcoder2-untied", "Starcoder2",
        {"tie_word_embeddings": False, "use_bias": False, "hidden_act": "gelu"}, "bfloat16",
        old_spelling=True,
    ),
    Variant("gpt2", "GPT2"),
    Variant("gpt2-inner", "GPT2", {"n_inner": 40, "activation_function": "gelu"}, "float16"),
]
# Families that tests/outside adds to kvlib
OUTSIDE = [
    Variant("stablelm", "StableLm", {"use_qkv_bias": True}),
    Variant(
        "stablelm-parallel", "StableLm",
        {"use_parallel_residual": True, "partial_rotary_factor": 0.5}, "bfloat16",
        old_spelling=True,
    ),
    Variant("gpt-neox", "GPTNeoX"),
    Variant(
        "gpt-neox-sequential", "GPTNeoX",
        {"use_parallel_residual": False, "rotary_pct": 0.5, "attention_bias": False}, "float16",
        old_spelling=True,
    ),
]


def sizes(family: str, hidden: int, layers: int, heads: int, vocab: int, limit: int) -> dict:
    """The sizes of a config, under the names its family gives them."""
    if family == "GPT2":
        return dict(
            n_embd=hidden, n_layer=layers, n_head=heads, vocab_size=vocab, n_positions=limit
        )
    grouped = {} if family == "GPTNeoX" else {"num_key_value_heads": max(1, heads // 2)}
    return dict(
        **grouped,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=3 * hidden // 2,
        vocab_size=vocab,
        max_position_embeddings=limit,
    )


def random_model(variant: Variant, size: dict[str, Any], seed: int) -> Any:
    """A model with random weights, large enough that logits have a scale of about 1."""
    keys = {**size, **variant.keys, "bos_token_id": None, "eos_token_id": None}
    config = getattr(transformers, f"{variant.family}Config")(**keys)
    head = "LMHeadModel" if variant.family == "GPT2" else "ForCausalLM"
    model = getattr(transformers, variant.family.removesuffix("Text") + head)(config).float().eval()
    generator = torch.Generator().manual_seed(seed)
    gemma = variant.family.startswith("Gemma")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            values = torch.randn(weight.shape, generator=generator)
            if name.endswith("bias"):
                values = 0.1 * values
            elif name.endswith("sinks"):
                pass
            elif weight.ndim == 3:  # experts: gpt-oss stores (E, in, out), others (E, out, in)
                inner = weight.shape[1 if variant.family == "GptOss" else 2]
                values = values / math.sqrt(inner)
            elif weight.ndim == 1:
                # Gemma stores a norm's weight as its distance from 1. Its table is scaled up on
                # the way in, so it is small here, and the last norm makes good for that.
                centre = (3.0 if name == "model.norm.weight" else 0.0) if gemma else 1.0
                values = centre + 0.2 * values
            else:
                transposed = variant.family == "GPT2" and ".h." in name  # stored (in, out)
                values = values / math.sqrt(weight.shape[0 if transposed else 1])
                if gemma and "embed_tokens" in name:
                    values = 0.25 * values
                if any(part in name for part in ("q_proj", "k_proj", "query_key_value")):
                    # sharper attention; YaRN multiplies the scores of gpt-oss by 1.8 itself
                    values = (1.1 if variant.family == "GptOss" else 1.5) * values
            weight.copy_(values)
        for name, values in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                values.copy_(0.1 * torch.randn(values.shape, generator=generator))
    return model


def save(model: Any, variant: Variant, folder: Path) -> Any:
    """Write the folder, and return the model as the library reads it back, in float32."""
    more = {} if variant.shard is None else {"max_shard_size": variant.shard}
    model.to(getattr(torch, variant.dtype)).save_pretrained(folder, **more)
    if variant.old_spelling:
        path = folder / "config.json"
        config = json.loads(path.read_text())
        config.pop("layer_types", None)
        rope = config.pop("rope_parameters")
        if variant.family == "Gemma3Text":
            config["sliding_window_pattern"] = variant.keys["sliding_window_pattern"]
            config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
            rope = rope["full_attention"]
        neox = variant.family == "GPTNeoX"
        config["rotary_emb_base" if neox else "rope_theta"] = rope.pop("rope_theta")
        if "partial_rotary_factor" in rope:
            key = "rotary_pct" if neox else "partial_rotary_factor"
            config[key] = rope.pop("partial_rotary_factor")
        kind = rope.pop("rope_type")
        config["rope_scaling"] = None if kind == "default" else {"rope_type": kind, **rope}
        path.write_text(json.dumps(config, indent=2) + "\n")
    return read_back(folder)


def read_back(folder: Path) -> Any:
    """The folder as transformers reads it: float32, plain (eager) attention."""
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()


@torch.no_grad()
def logits_of(model: Any, tokens: list[int]) -> np.ndarray:
    """(T, V) float32, one pass, no cache."""
    return model(torch.tensor([tokens]), use_cache=False).logits[0].float().numpy()


@torch.no_grad()
def routing_lead(model: Any, tokens: list[int]) -> np.ndarray:
    """(T,): by how much a token's last chosen expert, or group, leads the next, at least."""
    chosen = getattr(model.config, "num_experts_per_tok", None)
    if chosen is None:
        return np.full(len(tokens), math.inf)
    found = model(torch.tensor([tokens]), use_cache=False, output_router_logits=True)
    scores = [one.reshape(len(tokens), -1) for one in found.router_logits]
    leads = []
    if model.config.model_type == "deepseek_v3":
        names = [n for n in dict(model.named_buffers()) if n.endswith("e_score_correction_bias")]
        biases = [model.get_buffer(name) for name in names]
        scores = [one.sigmoid() + bias for one, bias in zip(scores, biases, strict=True)]
    layers = torch.stack(scores)
    method = getattr(model.config, "topk_method", None)
    if method == "group_limited_greedy" or model.config.model_type == "deepseek_v3":
        size = model.config.n_routed_experts // model.config.n_group
        grouped = layers.reshape(*layers.shape[:2], -1, size)
        best = grouped.sort(dim=-1, descending=True).values
        of_group = best[..., 0] if method else best[..., :2].sum(dim=-1)
        ranked = of_group.sort(dim=-1, descending=True)
        kept = ranked.indices[..., : model.config.topk_group]
        leads.append(_lead(of_group, model.config.topk_group))
        mask = torch.zeros_like(of_group).scatter_(-1, kept, 1.0)
        layers = grouped.masked_fill(mask[..., None] == 0, -math.inf).reshape(layers.shape)
    leads.append(_lead(layers, chosen))
    return torch.stack(leads).amin(dim=0).min(dim=0).values.float().numpy()


def _lead(scores: Any, chosen: int) -> Any:
    ranked = scores.sort(dim=-1, descending=True).values
    return ranked[..., chosen - 1] - ranked[..., chosen]


def clear_tokens(model: Any, tokens: list[int], lead: float = 3e-4) -> int:
    """How many tokens come before the first whose choice of experts is close."""
    close = np.flatnonzero(routing_lead(model, tokens) < lead)
    return int(close[0]) if close.size else len(tokens)


def greedy(model: Any, prompt: list[int], new_tokens: int) -> tuple[list[int], float]:
    """New tokens by recomputing everything for each, and the least lead of a winner."""
    tokens, lead = list(prompt), math.inf
    for _ in range(new_tokens):
        last = logits_of(model, tokens)[-1]
        second, first = np.sort(last)[-2:]
        lead = min(lead, float(first - second))
        tokens.append(int(last.argmax()))
    return tokens[len(prompt) :], lead
