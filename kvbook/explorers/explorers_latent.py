"""The explorer of latent attention, beside those of `kvbook.explorers.catalogue`."""

from __future__ import annotations

from functools import cache
from typing import Any

from kvbook.explorers.controls import Choice, Slider
from kvbook.explorers.explorer import Explorer
from kvbook.explorers.scenes.latent import latent_scene

LATENT_MODELS = ("deepseek-v2-lite", "deepseek-v2", "deepseek-v3")
# DeepSeek-V2 is not in the catalogue of `kvlib.costs`. Its sizes: arXiv:2405.04434, section 3.1.2.
DEEPSEEK_V2 = {
    "title": "DeepSeek-V2",
    "heads": 128,
    "latent": 512,
    "nope": 128,
    "rope": 64,
    "value": 128,
}


def latent_explorer(**settings: Any) -> Explorer:
    """The operations of latent attention with expanded latents and with absorbed matrices.

    Settings: model, new (tokens of the step), context (tokens in the cache after the step, the new
    ones included). ValueError for one that is not offered, naming the nearest. If `new` is more
    than `context`, the scene is that of a prompt of `context` tokens from scratch.

    >>> explorer = latent_explorer(model="deepseek-v3", context=4096)
    >>> [explorer.scene(new=new)["numbers"][2]["text"] for new in (1, 128, 256)]
    ['117 times', '1.2 times', '0.743 times']
    """
    titles = {key: sizes["title"] for key, sizes in latent_sizes().items()}
    controls: list[Choice | Slider] = [
        Choice("model", "Model", titles, "deepseek-v3"),
        Slider.powers("new", "New tokens in the step", 1, 8192, value=1, unit="tokens"),
        Slider.powers("context", "Cached after the step", 16, 131072, value=4096, unit="tokens"),
    ]
    made = Explorer(
        "latent", "Expand the latents, or absorb the matrices?", controls, latent_scene,
        {"latents": latent_sizes()}, anchor="latent-explorer",
    )  # fmt: skip
    return made.set(**settings)


@cache
def latent_sizes() -> dict[str, dict[str, Any]]:
    """Return the sizes of a layer's attention by model, named as in `scenes.latent`."""
    from kvlib.costs import MODELS

    found: dict[str, dict[str, Any]] = {}
    for key in LATENT_MODELS:
        if key == "deepseek-v2":
            found[key] = DEEPSEEK_V2
            continue
        (group,) = MODELS[key].layers
        rope = group.head_dim - group.v_dim
        found[key] = {
            "title": MODELS[key].title,
            "heads": group.num_qo_heads,
            "latent": group.v_dim,
            "nope": group.full_qk_dim - rope,
            "rope": rope,
            "value": group.full_v_dim,
        }
    return found
