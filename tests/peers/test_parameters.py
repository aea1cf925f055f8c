"""Every model of the catalogue against the class that transformers builds from the same config.

On PyTorch's meta device a model has shapes and no numbers. The cache is that of a small model with
a layer of each kind, and the heads and head sizes of the large one.
"""

from collections import Counter
from typing import Any

import pytest

from kvlib.costs.catalogue import read_data
from kvlib.costs.spec import MODELS, catalogued

reason = "needs torch and transformers: make test-peers"
torch = pytest.importorskip("torch", reason=reason)
transformers = pytest.importorskip("transformers", reason=reason)

pytestmark = pytest.mark.peers

CONFIGS = {key: catalogued(entry) for key, entry in read_data("models.toml").items()}
TOKENS = 5
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
SMALL = dict(
    vocab_size=64, intermediate_size=32, moe_intermediate_size=16, num_experts_per_tok=2,
    shared_expert_intermediate_size=16, moe_shared_expert_intermediate_size=16, top_k_experts=2,
    first_k_dense_replace=1, n_layer=2, **dict.fromkeys(EXPERTS, 4),
)
BUFFER = "e_score_correction_bias"
V4 = "deepseek_v4"  # which keeps entries for many tokens
# Kimi K2's files name DeepSeek's class
CLASSES = {"kimi_k2": "deepseek_v3", "minimax_m3": "minimax_m3_vl_text"}
ALWAYS = dict(pad_token_id=None, n_group=1, topk_group=1)


def theirs(config: dict[str, Any], **changed: Any) -> Any:
    others = {**config, **changed}
    kind = others.pop("model_type")
    return transformers.AutoConfig.for_model(CLASSES.get(kind, kind), **others)


def built(config: Any) -> Any:
    """Return the class with a head, or the bare text decoder of a model that has a tower."""
    try:
        return transformers.AutoModelForCausalLM.from_config(config)
    except ValueError:
        return transformers.AutoModel.from_config(config)


@pytest.mark.parametrize("key", CONFIGS)
def test_parameters_to_the_unit(key: str) -> None:
    """Biases by which routers choose are weights of a checkpoint, and buffers of PyTorch's."""
    with torch.device("meta"):
        model = built(theirs(CONFIGS[key]))
    numbers = sum(weight.numel() for weight in model.parameters())
    numbers += sum(x.numel() for name, x in model.named_buffers() if name.endswith(BUFFER))
    shape = MODELS[key].shape
    if not hasattr(model, "lm_head") and not shape.tie_word_embeddings:
        numbers += shape.vocab_size * shape.hidden_size
    assert MODELS[key].num_parameters == numbers


def stored(layer: Any) -> tuple[int, int, int]:
    """Return the numbers that a layer of their cache has for a token, its window and its state.

    Their states keep as many inputs of a convolution as it has taps; the next step needs one less.
    """
    if hasattr(layer, "recurrent_states"):
        (rows,), (state,) = layer.conv_states.values(), layer.recurrent_states.values()
        return 0, 0, 4 * state.numel() + 2 * rows.numel() // rows.shape[-1] * (rows.shape[-1] - 1)
    assert layer.keys.shape[-2] == layer.values.shape[-2] == TOKENS
    names = ("keys", "values", "indexer_keys", "idx_keys")  # the last two: what an indexer reads
    held = [tensor for name in names if (tensor := getattr(layer, name, None)) is not None]
    numbers = sum(tensor.numel() for tensor in held)
    return numbers // TOKENS, getattr(layer, "sliding_window", 0), 0


@pytest.mark.parametrize("key", [key for key, c in CONFIGS.items() if c["model_type"] != V4])
def test_what_a_layer_keeps(key: str) -> None:
    config, groups = CONFIGS[key], MODELS[key].layers
    kinds = Counter(getattr(theirs(config), "layer_types", None) or ["all"])
    keeping = [kind for kind in kinds if kind not in ("mlp", "moe")]
    if len(keeping) > 1:
        assert [kinds[kind] for kind in keeping] == [group.count for group in groups]
    layers = list(kinds) if len(keeping) > 1 else [*kinds] * 2
    small = {name: value for name, value in SMALL.items() if name in config} | ALWAYS
    small |= {} if "n_layer" in config else {"num_hidden_layers": len(layers)}
    firsts = [group.indices[0] for group in groups]
    each = firsts if len(firsts) == len(layers) else range(len(layers))
    listed = {name: value for name, value in config.items() if isinstance(value, list) and value}
    small |= {name: [value[i] for i in each] for name, value in listed.items()}
    small |= {} if "all" in kinds else {"layer_types": layers}
    stated = any("head_dim" in name for name in config)  # else the hidden size says it
    small |= {"hidden_size": 2 * config["num_attention_heads"]} if stated else {}
    with torch.device("cpu" if stated or "intermediate_size" in small else "meta"):
        model, tokens = built(theirs(config, **small)).eval(), torch.arange(3, 3 + TOKENS)[None]
    with torch.no_grad():
        cache = model(tokens, use_cache=True).past_key_values
    found = zip(layers, cache.layers, strict=False)
    kept = [stored(layer) for kind, layer in found if kind in keeping]
    expected = [(group.values, group.window, group.state) for group in groups]
    assert kept and kept == expected * (len(kept) // len(groups))


@pytest.mark.parametrize("key", [key for key, c in CONFIGS.items() if c["model_type"] == V4])
def test_what_a_layer_of_deepseek_v4_keeps(key: str) -> None:
    """A window, entries, and the tokens that are not in an entry yet: at 255, as many as can be."""
    config, (window, *compressed) = dict(CONFIGS[key]), MODELS[key].layers
    kinds = Counter(theirs(config).layer_types)
    config.pop("compress_ratios")  # layer_types says the same
    small = {name: value for name, value in SMALL.items() if name in config} | ALWAYS
    small |= dict(num_hidden_layers=len(kinds), layer_types=[*kinds], num_hash_layers=0)
    model = built(theirs(config, **small, hidden_size=128)).eval()
    with torch.no_grad():
        cache = model(torch.arange(255)[None] % 60 + 3, use_cache=True).past_key_values
    kept, counts = [], []
    for layer, (kind, count) in zip(cache.layers, kinds.items(), strict=True):
        assert layer.keys.shape[-2:] == (window.window - 1, window.values)
        if kind == "sliding_attention":
            continue
        entries, waiting = layer.compressed_kv, [layer.buffer_kv, layer.buffer_gate]
        waiting += [getattr(layer, "overlap_kv", {}), getattr(layer, "overlap_gate", {})]
        (length,) = {x.shape[1] for x in entries.values()}
        state = 2 * sum(x.numel() for tensors in waiting for x in tensors.values())
        kept.append((sum(x.shape[-1] for x in entries.values()), length, state))
        counts += [count, count]
    pairs = zip(compressed[::2], compressed[1::2], strict=True)
    assert kept == [(entry.values, 255 // entry.every, rest.state) for entry, rest in pairs]
    assert counts == [group.count for group in compressed] and window.count == kinds.total()
