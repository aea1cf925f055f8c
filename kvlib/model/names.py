"""Which tensors of a Hugging Face checkpoint make up each of kvlib's weights.

A weight of ours is one tensor of the file, or several stacked by rows (q, k, v; gate, up). GPT-2
stores its matrices (in, out), a habit of its first code, and they are transposed on the way in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kvlib.model.config import ModelConfig
from kvlib.model.weights import weight_shapes

# buffers that older versions of transformers saved too: they follow from the config
_BUFFERS = re.compile(r"(.*\.)?rotary_emb\.inv_freq|h\.\d+\.attn\.(bias|masked_bias)")

_LLAMA_TOP = {"embed": "embed_tokens", "norm": "norm", "lm_head": "lm_head"}
_LLAMA_LAYER = {
    "attn_norm": ("input_layernorm",),
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "q_norm": ("self_attn.q_norm",),
    "k_norm": ("self_attn.k_norm",),
    "o": ("self_attn.o_proj",),
    "mlp_norm": ("post_attention_layernorm",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
_GPT2_TOP = {"embed": "wte", "pos_embed": "wpe", "norm": "ln_f", "lm_head": "lm_head"}
_GPT2_LAYER = {
    "attn_norm": ("ln_1",),
    "qkv": ("attn.c_attn",),
    "o": ("attn.c_proj",),
    "mlp_norm": ("ln_2",),
    "up": ("mlp.c_fc",),
    "down": ("mlp.c_proj",),
}
_GPT2_TRANSPOSED = ("qkv", "o", "up", "down")


@dataclass(frozen=True)
class Source:
    """A tensor of the file: name without prefix, shape there, where its rows go in our weight."""

    name: str
    shape: tuple[int, ...]
    row: int
    transposed: bool


def sources(config: ModelConfig) -> dict[str, list[Source]]:
    """Our weight's name -> the tensors stacked to make it."""
    gpt2 = config.model_type == "gpt2"
    top, layer = (_GPT2_TOP, _GPT2_LAYER) if gpt2 else (_LLAMA_TOP, _LLAMA_LAYER)
    kv_rows = config.num_key_value_heads * config.head_dim
    rows_of = {
        "self_attn.q_proj": config.num_attention_heads * config.head_dim,
        "self_attn.k_proj": kv_rows,
        "self_attn.v_proj": kv_rows,
        "mlp.gate_proj": config.intermediate_size,
        "mlp.up_proj": config.intermediate_size,
    }
    found: dict[str, list[Source]] = {}
    for ours, shape in weight_shapes(config).items():
        *path, kind = ours.split(".")
        if len(path) == 1:
            found[ours] = [Source(f"{top[path[0]]}.{kind}", shape, 0, False)]
            continue
        _, index, part = path
        transposed = gpt2 and kind == "weight" and part in _GPT2_TRANSPOSED
        row, found[ours] = 0, []
        for theirs in layer[part]:
            rows = rows_of.get(theirs, shape[0])
            in_file = (rows, *shape[1:])[::-1] if transposed else (rows, *shape[1:])
            name = f"{'h' if gpt2 else 'layers'}.{index}.{theirs}.{kind}"
            found[ours].append(Source(name, in_file, row, transposed))
            row += rows
    return found


def prefix_of(config: ModelConfig) -> str:
    """What every tensor's name but lm_head's starts with, unless the bare model was saved."""
    return "transformer." if config.model_type == "gpt2" else "model."


def without_prefix(config: ModelConfig, name: str) -> str:
    """A tensor's name as `sources` has it: checkpoints of the bare model leave the prefix out."""
    return name.removeprefix(prefix_of(config))


def may_be_ignored(config: ModelConfig, name: str) -> bool:
    """Whether a tensor we have no use for may be in the file: a buffer, or a tied lm_head."""
    if name == "lm_head.weight":
        return config.tie_word_embeddings
    return _BUFFERS.fullmatch(name) is not None
