"""GPT-NeoX (arXiv:2204.06745) and Pythia: biases everywhere, attention and MLP in parallel.

A quarter of each head is rotated. Checkpoints hold q, k and v of one head after the other.
"""

from typing import Any

from kvlib.config import (
    Conversion,
    Family,
    Keys,
    Names,
    Shape,
    classes,
    common_fields,
    decoder,
    read_rope,
)


def shape(keys: Keys) -> Shape:
    keys.seen.update(("rotary_emb_base", "rotary_pct"))  # no size depends on them
    return decoder(
        keys,
        num_key_value_heads=keys.count("num_attention_heads"),
        norm="layer",
        gated_mlp=False,
        parallel_residual=keys.flag("use_parallel_residual", True),
        bias=keys.flag("attention_bias", True),
        mlp_bias=True,
    )


def forward_fields(keys: Keys) -> dict[str, Any]:
    theta, partial = keys.number("rotary_emb_base", 10000.0), keys.number("rotary_pct", 0.25)
    fields = common_fields(keys, "hidden_act", "gelu", "layer_norm_eps", 1e-5)
    return {**fields, "rope": read_rope(keys, theta, partial)}


def by_kind(values: Any, config: Any) -> Any:
    """(H · 3 · D, ...), q, k and v of each head → the queries of all heads, their keys, values."""
    heads = values.reshape(config.num_attention_heads, 3, config.head_dim, *values.shape[1:])
    return heads.swapaxes(0, 1).reshape(values.shape)


NAMES = Names(
    prefix="gpt_neox.",
    tensors={
        "embed": "embed_in",
        "qkv": Conversion("attention.query_key_value", by_kind),
        "o": "attention.dense",
        "up": "mlp.dense_h_to_4h",
        "down": "mlp.dense_4h_to_h",
        "norm": "final_layer_norm",
        "lm_head": "embed_out",
    },
    buffers=r"layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)",
)
GPT_NEOX = Family(classes("GPTNeoX"), shape, forward_fields, names=NAMES)
