"""gpt-oss (arXiv:2508.10925): every second layer has a window, every head a learned sink."""

from typing import Any

from kvlib.config import rope
from kvlib.config.families import Conversion, Family, Names, classes, llama
from kvlib.config.keys import Keys
from kvlib.config.parts import common_fields, count, decoder, flag, sliding
from kvlib.config.shape import Shape


def shape(keys: Keys) -> Shape:
    mixed = llama.experts(keys, router_bias=True, bias=True)
    keys.only("experts_per_token", mixed.per_token, "as num_experts_per_tok says")
    return decoder(
        keys,
        head_dim=count("head_dim"),
        windows=sliding(keys, 128, 2),
        bias=flag("attention_bias", True),
        sinks=True,
        experts=mixed,
    )


def forward_fields(keys: Keys) -> dict[str, Any]:
    """The files state silu, and mean the gate of `kvlib.model.mlp` that has a limit."""
    keys.only("hidden_act", "silu", "the gate is made of it")
    rotation = rope.read_rope(keys, theta=150_000.0)
    if rotation.kind == "yarn":
        length = rotation.original_max_position_embeddings
        keys.only("initial_context_length", length, "as rope_scaling says")
    keys.seen.add("initial_context_length")  # without YaRN, nothing depends on it
    return {
        **common_fields(keys, eps=1e-5),
        "rope": rotation,
        "swiglu_limit": keys.number("swiglu_limit", 7.0),
        "swiglu_alpha": keys.number("swiglu_alpha", 1.702),
    }


def _gate_up(values: Any, config: Any) -> Any:
    """(E, hidden, 2 inner), gate and up by turns → (E · 2 inner, hidden), gate before up."""
    return _apart(values.transpose(0, 2, 1)).reshape(-1, values.shape[1])


def _apart(values: Any) -> Any:
    """(E, 2 inner, ...), gate and up by turns → the same, the gate's rows before up's."""
    experts, rows, *width = values.shape
    pairs = values.reshape(experts, rows // 2, 2, *width)
    return pairs.swapaxes(1, 2).reshape(values.shape)


def by_expert(shape: tuple[int, ...], config: Any) -> tuple[int, ...]:
    """(E · out, in) → (E, in, out), and (E · out,) → (E, out)"""
    count = config.experts.num_experts
    return count, *shape[1:], shape[0] // count


def stacked(values: Any, config: Any) -> Any:
    """(E, in, out) → (E · out, in)"""
    return values.transpose(0, 2, 1).reshape(-1, values.shape[1])


TENSORS: dict[str, str | Conversion] = {
    "sinks.weight": "self_attn.sinks",
    "router": "mlp.router",
    "experts_gate_up.weight": Conversion("mlp.experts.gate_up_proj", _gate_up, by_expert),
    "experts_gate_up.bias": Conversion(
        "mlp.experts.gate_up_proj_bias", lambda x, c: _apart(x).reshape(-1), by_expert
    ),
    "experts_down.weight": Conversion("mlp.experts.down_proj", stacked, by_expert),
    "experts_down.bias": Conversion(
        "mlp.experts.down_proj_bias", lambda x, c: x.reshape(-1), by_expert
    ),
}
FAMILIES = {
    "gpt_oss": Family(classes("GptOss"), shape, forward_fields, names=Names(tensors=TENSORS))
}
