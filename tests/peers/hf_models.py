"""Random models of Hugging Face transformers, and what that library computes with them."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()

TOWERS = {  # families that wrap a text decoder → their towers, as small as can be
    "Gemma3": {
        "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1,
        "image_size": 28, "patch_size": 14,
    },
    "Mistral3": {
        "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1,
        "head_dim": 8, "image_size": 28, "patch_size": 14,
    },
    "Qwen2VL": {"depth": 1, "embed_dim": 8, "num_heads": 1, "patch_size": 2, "hidden_size": 32},
    "Qwen2_5_VL": {
        "depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 1, "patch_size": 2,
        "out_hidden_size": 32,
    },
    "Qwen3VL": {
        "depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 1, "patch_size": 2,
        "out_hidden_size": 32, "num_position_embeddings": 4, "deepstack_visual_indexes": [],
    },
}
TOWERS["Qwen3VLMoe"] = TOWERS["Qwen3VL"]


@dataclass(frozen=True)
class Variant:
    """One checkpoint: a family, keys of its config, and how the folder is written."""

    name: str
    family: str
    keys: dict[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    shard: str | None = None
    model_type: str | None = None  # of a family that transformers knows by another name
    fp8: int | None = None  # rows and columns of a block with one scale; 0: one for a matrix
    mxfp4: bool = False  # experts of gpt-oss
    old_spelling: bool = False  # rope_theta and rope_scaling for rope_parameters, no layer_types


# of the checkpoints in tests/golden, and of the larger ones that test_live.py makes; Gemma 2's caps
# are far lower than in published files: logits of scale 1 would not notice a cap of 30
READ = json.loads(Path(__file__).with_name("variants.json").read_text(encoding="utf-8"))
VARIANTS, LIVE = ([Variant(**keys) for keys in READ[kind]] for kind in ("golden", "live"))


def sizes(family: str, hidden: int, layers: int, heads: int, vocab: int, limit: int) -> dict:
    """The sizes of a config, under the names its family gives them."""
    if family == "GPT2":
        return dict(
            n_embd=hidden, n_layer=layers, n_head=heads, vocab_size=vocab, n_positions=limit
        )
    inner = {"OPT": "ffn_dim", "Falcon": "ffn_hidden_size"}.get(family, "intermediate_size")
    single = family in ("GPTNeoX", "Falcon", "OPT")
    grouped = {} if single else {"num_key_value_heads": max(1, heads // 2)}
    return {
        **grouped, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        inner: 3 * hidden // 2, "vocab_size": vocab, "max_position_embeddings": limit,
    }


def random_model(variant: Variant, size: dict[str, Any], seed: int) -> Any:
    """A model with random weights, large enough that logits have a scale of about 1."""
    keys = {**size, **variant.keys, "bos_token_id": None, "eos_token_id": None}
    head = "LMHeadModel" if variant.family == "GPT2" else "ForCausalLM"
    if variant.family in TOWERS:
        inner = {"model_type": "mistral"} if variant.family == "Mistral3" else {}
        keys = {"text_config": {**keys, **inner}, "vision_config": TOWERS[variant.family]}
        keys["tie_word_embeddings"] = False
        head = "ForConditionalGeneration"
    config = getattr(transformers, f"{variant.family}Config")(**keys)
    model = getattr(transformers, variant.family.removesuffix("Text") + head)(config).float().eval()
    generator = torch.Generator().manual_seed(seed)
    gemma = variant.family.startswith("Gemma")
    normed_after = variant.family in ("Olmo2", "Olmo3", "Exaone4")
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
                # where what layers add is normed, tokens and scores need to be as large
                centre = 2.0 if normed_after and "q_norm" in name else centre
                values = centre + 0.2 * values
            else:
                transposed = variant.family == "GPT2" and ".h." in name  # stored (in, out)
                values = values / math.sqrt(weight.shape[0 if transposed else 1])
                if gemma and "embed_tokens" in name:
                    values = 0.25 * values
                if normed_after and "embed_tokens" in name:
                    values = 4.0 * values
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
    if variant.fp8 is not None:
        quantise(folder, variant.fp8)
    if variant.old_spelling:
        path = folder / "config.json"
        config = json.loads(path.read_text())
        if variant.family != "Olmo3":
            config.pop("layer_types", None)
        rope = config.pop("rope_parameters")
        if variant.family == "Gemma3Text":
            config["sliding_window_pattern"] = variant.keys["sliding_window_pattern"]
            config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope.get("full_attention", rope)
        neox = variant.family == "GPTNeoX"
        config["rotary_emb_base" if neox else "rope_theta"] = rope.pop("rope_theta")
        if "partial_rotary_factor" in rope:
            key = "rotary_pct" if neox else "partial_rotary_factor"
            config[key] = rope.pop("partial_rotary_factor")
        kind = rope.pop("rope_type")
        config["rope_scaling"] = None if kind == "default" else {"rope_type": kind, **rope}
        path.write_text(json.dumps(config, indent=2) + "\n")
    if variant.mxfp4:
        pack(folder)
    if variant.family == "Qwen3VLMoe":  # published files have experts as (E, in, out)
        stored = load_file(folder / "model.safetensors")
        for name in [name for name in stored if ".experts." in name]:
            stored[name] = stored[name].transpose(1, 2).contiguous()
        save_file(stored, folder / "model.safetensors", {"format": "pt"})
    model = read_back(folder)
    if variant.model_type is not None:
        path = folder / "config.json"
        config = json.loads(path.read_text()) | {"model_type": variant.model_type}
        config["architectures"] = config["architectures"] if variant.family != "Qwen2" else None
        path.write_text(json.dumps(config, indent=2) + "\n")
    return model


def quantise(folder: Path, block: int) -> None:
    """Store the layers' matrices in fp8, as DeepSeek-V3's and (block 0) Mistral's files do."""
    stored: dict[str, torch.Tensor] = {}
    for name, weight in load_file(folder / "model.safetensors").items():
        if not name.endswith("_proj.weight"):
            stored[name] = weight
            continue
        rows, columns = (min(n, block) or n for n in weight.shape)
        blocks = weight.float().reshape(weight.shape[0] // rows, rows, -1, columns)
        scale = blocks.abs().amax((1, 3)) / 448
        codes = (blocks / scale[:, None, :, None]).reshape(weight.shape).to(torch.float8_e4m3fn)
        stored |= {name: codes, f"{name}_scale_inv": scale if block else scale[0, 0].clone()}
    save_file(stored, folder / "model.safetensors", {"format": "pt"})
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] = {
        "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
        "weight_block_size": [block, block] if block else None,
    }
    path.write_text(json.dumps(config, indent=2) + "\n")


def pack(folder: Path) -> None:
    """Store experts as gpt-oss's files do: 32 numbers of 4 bits with one exponent."""
    stored = load_file(folder / "model.safetensors")
    levels = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    for name in [name for name in stored if name.endswith(("gate_up_proj", "down_proj"))]:
        weight = stored.pop(name).float().transpose(1, 2)
        groups = weight.reshape(*weight.shape[:2], -1, 32)
        exponent = (groups.abs().amax(-1) / 6).log2().ceil().clamp(-127)
        sizes = groups.abs() / 2.0 ** exponent[..., None]
        codes = (sizes[..., None] - levels).abs().argmin(-1) + 8 * (groups < 0)
        stored[f"{name}_blocks"] = (codes[..., ::2] + 16 * codes[..., 1::2]).to(torch.uint8)
        stored[f"{name}_scales"] = (exponent + 127).to(torch.uint8)
    save_file(stored, folder / "model.safetensors", {"format": "pt"})
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] = {
        "quant_method": "mxfp4",
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router"],
    }
    path.write_text(json.dumps(config, indent=2) + "\n")


def read_back(folder: Path) -> Any:
    """The folder as transformers reads it: float32, plain (eager) attention."""
    wrapper = "vision_config" in json.loads((folder / "config.json").read_text())
    kind = "AutoModelForImageTextToText" if wrapper else "AutoModelForCausalLM"
    model = getattr(transformers, kind).from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    return model.float().eval()  # of fp8 files, it reads the other tensors as they are


@torch.no_grad()
def logits_of(model: Any, tokens: list[int]) -> np.ndarray:
    """(T, V) float32, one pass, no cache."""
    return model(torch.tensor([tokens]), use_cache=False).logits[0].float().numpy()


@torch.no_grad()
def routing_lead(model: Any, tokens: list[int]) -> np.ndarray:
    """(T,): by how much a token's last chosen expert, or group, leads the next, at least."""
    chosen = getattr(model.config.get_text_config(), "num_experts_per_tok", None)
    if chosen is None:
        return np.full(len(tokens), math.inf)
    found = model(torch.tensor([tokens]), use_cache=False, output_router_logits=True)
    scores = [one.reshape(len(tokens), -1) for one in found.router_logits]
    leads = []
    names = [n for n in dict(model.named_buffers()) if n.endswith("e_score_correction_bias")]
    if names:
        biases = [model.get_buffer(name) for name in names]
        scores = [one.sigmoid() + bias for one, bias in zip(scores, biases, strict=True)]
    layers = torch.stack(scores)
    method = getattr(model.config, "topk_method", None)
    if method == "group_limited_greedy" or (names and getattr(model.config, "n_group", 1) > 1):
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
