"""The weights of a decoder: one list, by which `kvlib.costs` counts and `kvlib.model` loads.

Every matrix is (out, in). The functions take a `Shape`, or a `ModelConfig`, which has its fields.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from kvlib.config.shape import Experts, Latent


class Weight(NamedTuple):
    """One weight: an array of kvlib's, and the tensors of a checkpoint that it is made of.

    name     kvlib's name within its layer, such as "qkv.weight"; shape: (out, in), or (n,)
    tensors  Llama's name, without ".weight" (others: `kvlib.config.families.Names`) → its rows
    centre   the number that a vector of weights varies around: 1 for most norms, 0 for a bias
    """

    name: str
    shape: tuple[int, ...]
    tensors: Mapping[str, int]
    centre: float = 1.0


def model_weights(c: Any) -> dict[str, Weight]:
    """Return every weight by its full name, in the order in which a forward pass reads them."""
    table = (c.vocab_size, c.hidden_size)
    weights = [Weight("embed.weight", table, {"embed_tokens": c.vocab_size})]
    if c.positions == "learned":
        rows = c.max_position_embeddings
        weights.append(Weight("pos_embed.weight", (rows, c.hidden_size), {"embed_positions": rows}))
    for i in range(c.num_hidden_layers):
        weights += [w._replace(name=f"layers.{i}.{w.name}") for w in layer_weights(c, i)]
    weights += _norm(c, "norm", "norm")
    if not c.tie_word_embeddings:
        weights.append(Weight("lm_head.weight", table, {"lm_head": c.vocab_size}))
    return {weight.name: weight for weight in weights}


def layer_weights(c: Any, layer: int) -> list[Weight]:
    """Return the weights of layer number `layer`."""
    weights = _norm(c, "attn_norm", "input_layernorm")
    weights += _grouped_query(c) if c.latent is None else _latent(c, c.latent)
    if c.post_norms:
        weights += _norm(c, "attn_post_norm", "post_attention_layernorm")
    if not c.shared_norm:
        # Llama calls the norm before the MLP by the name that Gemma has for the one above
        name = "pre_feedforward_layernorm" if c.post_norms else "post_attention_layernorm"
        weights += _norm(c, "mlp_norm", name)
    if c.experts is not None and layer in c.experts.layers:
        weights += _experts(c, c.experts)
    else:
        weights += _mlp(c)
    if c.post_norms:
        weights += _norm(c, "mlp_post_norm", "post_feedforward_layernorm")
    return weights


def _linear(name: str, tensors: Mapping[str, int], width: int, bias: bool = False) -> list[Weight]:
    """Return a matrix (sum of the tensors' rows, width), and its bias (sum of rows,) if any."""
    rows = sum(tensors.values())
    weights = [Weight(f"{name}.weight", (rows, width), tensors)]
    return [*weights, Weight(f"{name}.bias", (rows,), tensors, centre=0.0)] if bias else weights


def _norm(c: Any, name: str, tensor: str, size: int = 0) -> list[Weight]:
    """Return a norm over the hidden size; or over `size` numbers, which has no bias."""
    tensors, centre = {tensor: size or c.hidden_size}, 0.0 if c.norm == "rms_1p" else 1.0
    weights = [Weight(f"{name}.weight", (size or c.hidden_size,), tensors, centre)]
    if c.norm == "layer" and not size:
        weights.append(Weight(f"{name}.bias", (c.hidden_size,), tensors, centre=0.0))
    return weights


def _grouped_query(c: Any) -> list[Weight]:
    q, kv = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    qkv = {"self_attn.q_proj": q, "self_attn.k_proj": kv, "self_attn.v_proj": kv}
    weights = _linear("qkv", qkv, c.hidden_size, c.qkv_bias)
    for name in ("q_norm", "k_norm") if c.qk_norm else ():
        weights += _norm(c, name, f"self_attn.{name}", c.head_dim)
    if c.sinks:
        heads = c.num_attention_heads
        weights.append(Weight("sinks.weight", (heads,), {"self_attn.sinks": heads}, centre=0.0))
    return weights + _linear("o", {"self_attn.o_proj": c.hidden_size}, q, c.o_bias)


def _latent(c: Any, sizes: Latent) -> list[Weight]:
    """`kv_up` has, for each head, the rows of its key and then those of its value."""
    hidden, heads, rank = c.hidden_size, c.num_attention_heads, sizes.q_lora_rank
    query = heads * sizes.qk_head_dim
    if rank is None:
        weights = _linear("q", {"self_attn.q_proj": query}, hidden)
    else:
        weights = _linear("q_down", {"self_attn.q_a_proj": rank}, hidden, c.qkv_bias)
        weights.append(Weight("q_norm.weight", (rank,), {"self_attn.q_a_layernorm": rank}))
        weights += _linear("q_up", {"self_attn.q_b_proj": query}, rank)
    rank, up = sizes.kv_lora_rank, heads * (sizes.qk_nope_head_dim + sizes.v_head_dim)
    weights += _linear("kv_down", {"self_attn.kv_a_proj_with_mqa": sizes.width}, hidden, c.qkv_bias)
    weights.append(Weight("kv_norm.weight", (rank,), {"self_attn.kv_a_layernorm": rank}))
    weights += _linear("kv_up", {"self_attn.kv_b_proj": up}, rank)
    return weights + _linear("o", {"self_attn.o_proj": hidden}, heads * sizes.v_head_dim, c.o_bias)


def _mlp(c: Any) -> list[Weight]:
    inner, down = c.intermediate_size, {"mlp.down_proj": c.hidden_size}
    up = {"mlp.up_proj": inner}
    if c.gated_mlp:
        first = _linear("gate_up", {"mlp.gate_proj": inner, **up}, c.hidden_size, c.mlp_bias)
    else:
        first = _linear("up", up, c.hidden_size, c.mlp_bias)
    return first + _linear("down", down, inner, c.mlp_bias)


def _experts(c: Any, e: Experts) -> list[Weight]:
    """Return the router, each expert's gate, up and down, and the MLP that all tokens share."""
    hidden, gate_up, down = c.hidden_size, dict[str, int](), dict[str, int]()
    for i in range(e.num_experts):
        gate_up |= {f"mlp.experts.{i}.{name}": e.width for name in ("gate_proj", "up_proj")}
        down[f"mlp.experts.{i}.down_proj"] = hidden
    weights = [
        *_linear("router", {"mlp.gate": e.num_experts}, hidden, e.router_bias),
        *_linear("experts_gate_up", gate_up, hidden, e.bias),
        *_linear("experts_down", down, e.width, e.bias),
    ]
    if e.shared_width:
        shared = "mlp.shared_expert"
        rows = {f"{shared}.gate_proj": e.shared_width, f"{shared}.up_proj": e.shared_width}
        weights += _linear("shared_gate_up", rows, hidden)
        weights += _linear("shared_down", {f"{shared}.down_proj": hidden}, e.shared_width)
    if e.shared_gate:
        weights += _linear("shared_gate", {"mlp.shared_expert_gate": 1}, hidden)
    return weights
