"""gpt-oss (arXiv:2508.10925): every second layer has a window, every head a learned sink."""

from __future__ import annotations

from kvlib.config.families import Family, classes
from kvlib.config.keys import Keys
from kvlib.config.parts import decoder, listed, routing, window
from kvlib.config.shape import Experts, Shape


def shape(keys: Keys) -> Shape:
    layers, width = keys.count("num_hidden_layers"), keys.count("intermediate_size")
    count, chosen = routing(keys, "num_local_experts")
    keys.only("experts_per_token", chosen, "as num_experts_per_tok says")
    bias = keys.flag("attention_bias", True)
    size = window(keys, 128)
    alternating = tuple(0 if i % 2 else size for i in range(layers))
    windows = listed(keys, size) or alternating
    keys.count("head_dim")
    return decoder(
        keys,
        windows=windows,
        bias=bias,
        sinks=True,
        experts=Experts(count, chosen, width, tuple(range(layers)), router_bias=True, bias=True),
    )


FAMILIES = {
    "gpt_oss": Family(
        classes("GptOss"), shape, lacks="a mixture of experts, and YaRN's scaling of RoPE"
    )
}
