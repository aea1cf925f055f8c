"""What layers with a window hold of a request: what they need, and what engines reserve.

Each rule turns `layers` (see `kvlib.costs.formulas`) into layers whose "window" is the most tokens
that one layer holds, 0 for all. Then the formulas for bytes apply. `step` is the new tokens of a
step: they are stored beside the window - 1 tokens before them that the first of them sees.

needed        a layer with a window holds these window - 1 + step tokens, which is the window while
              decoding; with blocks, all the blocks that they may be in
all           every layer holds every token: an engine without groups of layers, such as vLLM with
              --disable-hybrid-kv-cache-manager, or transformers' DynamicCache() without a config
vllm          vLLM's groups: equally many layers in each, with padding, and for each group with a
              window one block more than its tokens fill (_get_kv_cache_groups_uniform_page_size
              in vllm/v1/core/kv_cache_planning.py, read at 4253bd4; SlidingWindowSpec in
              vllm/v1/kv_cache_interface.py, read at 001cabc). Its `step` is all tokens in flight:
              batches at once times --max-num-batched-tokens
transformers  window - 1 tokens between steps (DynamicSlidingWindowLayer, transformers 5.23.0)

This file becomes JavaScript, as `kvlib.costs.formulas` does, and keeps to the same small language.
"""

from kvlib.costs.formulas import Layers, layers_on_one, whole


def most_blocks(tokens: float, block: float) -> float:
    """The most blocks that `tokens` neighbours are in; the first may be the last of its block."""
    return whole((tokens - 1) / block) + 1


def most_held(window: float, reserve: str, step: float, block: float) -> float:
    """The most tokens that a layer with this window holds of one request, 0 for all of them."""
    if window <= 0 or reserve == "all":
        return 0
    if reserve == "transformers":
        return window - 1
    tokens = window - 1 + step
    if reserve == "vllm":
        return (whole(tokens / block) + 1) * block
    return most_blocks(tokens, block) * block if block > 1 else tokens


def group_size(layers: Layers) -> float:
    """Layers in each of vLLM's groups: the smallest kind's, or the largest's if it pads less."""
    fewest, most = layers[0]["count"], layers[0]["count"]
    for g in layers:
        fewest, most = min(fewest, g["count"]), max(most, g["count"])
    return most if most < fewest * 1.5 else fewest  # type: ignore[no-any-return]


def layers_as_held(
    layers: Layers, reserve: str, step: float, block: float, budgets: list[float]
) -> Layers:
    """`layers` with the most tokens that each holds as its window, padded to vLLM's groups.

    budgets: tokens that eviction leaves in each group without a window, between steps; 0 for all.
    """
    held = layers_on_one(layers, 1)
    size = group_size(layers)
    for i in range(len(held)):
        g = held[i]
        if g["window"] <= 0 and budgets[i] > 0:
            g["window"] = budgets[i] + step
        else:
            g["window"] = most_held(g["window"], reserve, step, block)
        if reserve == "vllm":
            g["count"] = whole(g["count"] / size) * size
    return held
