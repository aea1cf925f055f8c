"""What one model allows: positions, and how its heads can be shared out."""

from __future__ import annotations

from typing import Any

from kvlib.costs import formulas
from kvlib.costs.spec import ModelSpec


def within(model: ModelSpec, name: str, tokens: int) -> int:
    """`tokens`, which must not be past the model's own limit. Raises ValueError."""
    limit = int(model.max_context)
    if tokens > limit:
        raise ValueError(
            f"{name} is {tokens:,} tokens, needed: at most {limit:,}, where {model.title} ends"
        )
    return tokens


def shared_out(model: ModelSpec, gpus: int) -> list[dict[str, Any]]:
    """The layers as one of `gpus` devices holds them under tensor parallelism (arXiv:1909.08053).

    Each device takes an equal share of the query heads and the key/value heads that they read. With
    more devices than key/value heads, a head is held by several; MLA's one latent vector by all.
    Raises ValueError if the heads cannot be shared out evenly.
    """
    layers: list[dict[str, Any]] = model.facts["layers"]
    for g in layers:
        latent = g["vectors"] == 1
        kv_heads = 1 if latent else g["vectors"] // 2
        if g["num_qo_heads"] % gpus or (kv_heads % gpus and gpus % kv_heads):
            heads = f"{g['num_qo_heads']} query heads"
            heads += "" if latent else f" and {kv_heads} key/value heads"
            raise ValueError(
                f"gpus is {gpus}, needed: a number that shares out the {heads} of {model.title} "
                "evenly"
            )
    return formulas.layers_on_one(layers, gpus)
