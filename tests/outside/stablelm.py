"""StableLM (arXiv:2402.17834): a quarter of each head is rotated, norms have biases.

Attention and MLP may be computed in parallel, from one norm.
"""

from typing import Any

from kvlib.config import Family, Keys, Shape, classes, common_fields, decoder, read_rope


def shape(keys: Keys) -> Shape:
    keys.only("qk_layernorm", False, "heads are not normed here")
    parallel = keys.flag("use_parallel_residual")
    return decoder(
        keys,
        norm="layer",
        parallel_residual=parallel,
        shared_norm=parallel,
        qkv_bias=keys.flag("use_qkv_bias"),
    )


def forward_fields(keys: Keys) -> dict[str, Any]:
    fields = common_fields(keys, eps_key="layer_norm_eps", eps=1e-5)
    return {**fields, "rope": read_rope(keys, partial=0.25)}


STABLELM = Family(classes("StableLm"), shape, forward_fields)
