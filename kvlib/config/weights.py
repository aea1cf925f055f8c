"""The weights of a decoder: one list, by which `kvlib.costs` counts and `kvlib.model` loads.

Every matrix is (out, in). The functions take a `Shape`, or a `ModelConfig`, which has its fields.
"""

from collections.abc import Mapping
from typing import Any

from kvlib.config.shape import Experts, Latent, Weight


def model_weights(c: Any) -> dict[str, Weight]:
    """Return every weight by its full name, in the order in which a forward pass reads them."""
    table = (c.vocab_size, c.hidden_size)
    weights = [Weight("embed.weight", table, {"embed_tokens": c.vocab_size})]
    if c.positions == "learned":
        rows = c.max_position_embeddings
        weights.append(Weight("pos_embed.weight", (rows, c.hidden_size), {"embed_positions": rows}))
    for i in range(c.num_hidden_layers):
        weights += [w._replace(name=f"layers.{i}.{w.name}") for w in layer_weights(c, i)]
    weights += [*c.others, *norm(c, "norm", "norm")]
    if not c.tie_word_embeddings:
        weights += linear("lm_head", {"lm_head": c.vocab_size}, c.hidden_size, c.head_bias)
    return {weight.name: weight for weight in weights}


def layer_weights(c: Any, layer: int) -> list[Weight]:
    """Return the weights of layer number `layer`."""
    if c.layers:
        return list(c.layers[layer].weights)
    if c.latent is not None:
        return block(c, layer, latent(c, c.latent))
    heads = (c.num_attention_heads, c.num_key_value_heads, c.head_dim)
    return block(c, layer, grouped_query(c, *heads))


def block(c: Any, layer: int, mixer: list[Weight]) -> list[Weight]:
    """Return a layer with this mixer, and the norms and MLP or experts that the fields of c say."""
    weights = [*(norm(c, "attn_norm", "input_layernorm") if c.pre_norms else []), *mixer]
    if c.post_norms:
        weights += norm(c, "attn_post_norm", "post_attention_layernorm")
    if c.pre_norms and not c.shared_norm:
        # Llama calls the norm before the MLP by the name that Gemma has for the one above
        name = "pre_feedforward_layernorm" if c.post_norms else "post_attention_layernorm"
        weights += norm(c, "mlp_norm", name)
    if c.experts is not None and layer in c.experts.layers:
        weights += experts(c.hidden_size, c.experts)
    else:
        weights += mlp(c, c.intermediate_size)
    if c.post_norms:
        weights += norm(c, "mlp_post_norm", "post_feedforward_layernorm")
    return weights


def linear(name: str, tensors: Mapping[str, int], width: int, bias: bool = False) -> list[Weight]:
    """Return a matrix (sum of the tensors' rows, width), and its bias (sum of rows,) if any."""
    rows = sum(tensors.values())
    weights = [Weight(f"{name}.weight", (rows, width), tensors)]
    return [*weights, Weight(f"{name}.bias", (rows,), tensors, centre=0.0)] if bias else weights


def convolution(tensors: Mapping[str, int], kernel: int, bias: bool = False) -> list[Weight]:
    """Return one of each channel alone, which no checkpoint quantises."""
    return [w._replace(linear=False) for w in linear("conv1d", tensors, kernel, bias)]


def vector(tensor: str, size: int) -> Weight:
    """Return a vector that a forward pass of kvlib doesn't use, by its name in the checkpoint."""
    return Weight(tensor, (size,), {tensor: size})


def norm(c: Any, name: str, tensor: str, size: int = 0) -> list[Weight]:
    """Return a norm over the hidden size; or over `size` numbers, which has no bias."""
    tensors, centre = {tensor: size or c.hidden_size}, 0.0 if c.norm == "rms_1p" else 1.0
    weights = [Weight(f"{name}.weight", (size or c.hidden_size,), tensors, centre)]
    if c.norm == "layer" and not size:
        weights.append(Weight(f"{name}.bias", (c.hidden_size,), tensors, centre=0.0))
    return weights


def grouped_query(
    c: Any, heads: int, kv_heads: int, head_dim: int, v_dim: int | None = None, gate: bool = False
) -> list[Weight]:
    """v_dim: numbers of a value if they aren't head_dim, 0 where values are the keys.

    gate: q_proj has, for each head, as many rows again, for the gate of its output.
    """
    q, width = heads * head_dim, head_dim if v_dim is None else v_dim
    qkv = {"self_attn.q_proj": q * (1 + gate), "self_attn.k_proj": kv_heads * head_dim}
    if width:
        qkv["self_attn.v_proj"] = kv_heads * width
    weights = linear("qkv", qkv, c.hidden_size, c.qkv_bias)
    for name, count in (("q_norm", heads), ("k_norm", kv_heads)) if c.qk_norm else ():
        size = head_dim * count if c.qk_norm_wide else head_dim
        weights += norm(c, name, f"self_attn.{name}", size)
    if c.sinks:
        weights.append(Weight("sinks.weight", (heads,), {"self_attn.sinks": heads}, centre=0.0))
    o = {"self_attn.o_proj": c.hidden_size}
    return weights + linear("o", o, heads * (width or head_dim), c.o_bias)


def latent(c: Any, sizes: Latent) -> list[Weight]:
    """`kv_up` has, for each head, the rows of its key and then those of its value."""
    hidden, heads, rank = c.hidden_size, c.num_attention_heads, sizes.q_lora_rank
    query = heads * sizes.qk_head_dim
    if rank is None:
        weights = linear("q", {"self_attn.q_proj": query}, hidden)
    else:
        weights = linear("q_down", {"self_attn.q_a_proj": rank}, hidden, c.qkv_bias)
        weights.append(Weight("q_norm.weight", (rank,), {"self_attn.q_a_layernorm": rank}))
        weights += linear("q_up", {"self_attn.q_b_proj": query}, rank)
    rank, up = sizes.kv_lora_rank, heads * (sizes.qk_nope_head_dim + sizes.v_head_dim)
    weights += linear("kv_down", {"self_attn.kv_a_proj_with_mqa": sizes.width}, hidden, c.qkv_bias)
    weights.append(Weight("kv_norm.weight", (rank,), {"self_attn.kv_a_layernorm": rank}))
    weights += linear("kv_up", {"self_attn.kv_b_proj": up}, rank)
    return weights + linear("o", {"self_attn.o_proj": hidden}, heads * sizes.v_head_dim, c.o_bias)


def mlp(c: Any, inner: int) -> list[Weight]:
    down, up = {"mlp.down_proj": c.hidden_size}, {"mlp.up_proj": inner}
    if c.gated_mlp:
        first = linear("gate_up", {"mlp.gate_proj": inner, **up}, c.hidden_size, c.mlp_bias)
    else:
        first = linear("up", up, c.hidden_size, c.mlp_bias)
    return first + linear("down", down, inner, c.mlp_bias)


def experts(hidden: int, e: Experts) -> list[Weight]:
    """Return the router, each expert's gate, up and down, and the MLP that all tokens share."""
    names = ("gate_proj", "up_proj") if e.gated else ("up_proj",)
    width, first, down = e.latent_width or hidden, dict[str, int](), dict[str, int]()
    for i in range(e.num_experts):
        first |= {f"mlp.experts.{i}.{name}": e.width for name in names}
        down[f"mlp.experts.{i}.down_proj"] = width
    router = linear("router", {"mlp.gate": e.num_experts}, hidden, e.router_bias)
    weights = [weight._replace(linear=False) for weight in router]
    weights += linear("experts_gate_up", first, width, e.bias)
    weights += linear("experts_down", down, e.width, e.bias)
    if e.latent_width:
        weights += linear("latent_in", {"mlp.fc1_latent_proj": width}, hidden)
        weights += linear("latent_out", {"mlp.fc2_latent_proj": hidden}, width)
    if e.shared_width:
        shared = "mlp.shared_expert"
        rows = {f"{shared}.{name}": e.shared_width for name in names}
        weights += linear("shared_gate_up", rows, hidden)
        weights += linear("shared_down", {f"{shared}.down_proj": hidden}, e.shared_width)
    if e.shared_gate:
        gate = linear("shared_gate", {"mlp.shared_expert_gate": 1}, hidden)
        weights += [weight._replace(linear=False) for weight in gate]
    return weights
