"""Weights of a decoder, counted to the unit from its shape.

Every matrix is (out, in); a layer holds attention, an MLP or a mixture of experts, and norms.
Families differ in biases, norms and gates, which `Shape` states one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvlib.config.shape import Experts, Shape


@dataclass(frozen=True)
class Counts:
    """Numbers in the weights of a whole model, by how a token uses them.

    products        matrices that every token is multiplied with: attention, MLPs, routers, shared
                    experts; neither the output head nor routed experts
    vectors         biases, norms and sinks that every token meets
    embedding       the table of input embeddings; `positions` that of learned positions
    head            the output product: vocabulary x hidden, whether it shares the table or not
    expert          one routed expert of every layer that has them; `expert_vectors` its biases
    """

    products: int
    vectors: int
    embedding: int
    positions: int
    head: int
    tied: bool
    expert: int = 0
    expert_vectors: int = 0
    experts: int = 0
    experts_per_token: int = 0

    @property
    def total(self) -> int:
        """All numbers in the weights, a tied table counted once."""
        routed = self.experts * (self.expert + self.expert_vectors)
        tables = self.embedding + self.positions + (0 if self.tied else self.head)
        return self.products + self.vectors + tables + routed

    @property
    def active(self) -> int:
        """Numbers that a token is multiplied with or that are added to it on its way."""
        routed = self.experts_per_token * (self.expert + self.expert_vectors)
        return self.products + self.vectors + self.head + routed


def count(shape: Shape) -> Counts:
    """The weights of a decoder of this shape."""
    layers, hidden = shape.num_hidden_layers, shape.hidden_size
    experts = shape.experts
    mixed = len(experts.layers) if experts else 0
    dense = layers - mixed
    products = layers * _attention(shape) + dense * _mlp(shape, shape.intermediate_size)
    vectors = layers * _attention_vectors(shape)
    norms = layers * (4 if shape.post_norms else 2) + 1
    vectors += norms * hidden * (2 if shape.norm_bias else 1)
    if shape.mlp_bias:
        inner = shape.intermediate_size * (2 if shape.gated_mlp else 1)
        vectors += dense * (inner + hidden)
    table = shape.vocab_size * hidden
    counts = Counts(
        products=products,
        vectors=vectors,
        embedding=table,
        positions=shape.max_position_embeddings * hidden if shape.learned_positions else 0,
        head=table,
        tied=shape.tie_word_embeddings,
    )
    return _with_experts(counts, shape, experts) if experts else counts


def _with_experts(counts: Counts, shape: Shape, experts: Experts) -> Counts:
    mixed, hidden = len(experts.layers), shape.hidden_size
    router = experts.num_experts * hidden + (hidden if experts.shared_gate else 0)
    always = router + _mlp(shape, experts.shared_width)
    return Counts(
        products=counts.products + mixed * always,
        vectors=counts.vectors + mixed * (experts.num_experts if experts.router_bias else 0),
        embedding=counts.embedding,
        positions=counts.positions,
        head=counts.head,
        tied=counts.tied,
        expert=mixed * _mlp(shape, experts.width),
        expert_vectors=mixed * (2 * experts.width + hidden) if experts.bias else 0,
        experts=experts.num_experts,
        experts_per_token=experts.per_token,
    )


def _mlp(shape: Shape, inner: int) -> int:
    """Up, down and, in a gated MLP, the gate."""
    return (3 if shape.gated_mlp else 2) * shape.hidden_size * inner


def _attention(shape: Shape) -> int:
    """The projections of one layer: query, key, value and output, or the latent ones of MLA."""
    hidden, heads, latent = shape.hidden_size, shape.num_attention_heads, shape.latent
    if latent is None:
        query = heads * shape.head_dim
        return hidden * (2 * query + 2 * shape.num_key_value_heads * shape.head_dim)
    query = heads * latent.qk_head_dim
    if latent.q_lora_rank is None:
        q = hidden * query
    else:
        q = latent.q_lora_rank * (hidden + query)
    down = hidden * latent.width
    up = latent.kv_lora_rank * heads * (latent.qk_nope_head_dim + latent.v_head_dim)
    return q + down + up + heads * latent.v_head_dim * hidden


def _attention_vectors(shape: Shape) -> int:
    """Biases, norms and sinks of one layer's attention."""
    hidden, heads, latent = shape.hidden_size, shape.num_attention_heads, shape.latent
    total = hidden if shape.o_bias else 0
    total += heads if shape.sinks else 0
    if latent is None:
        total += 2 * shape.head_dim if shape.qk_norm else 0
        both = heads + 2 * shape.num_key_value_heads
        return total + (both * shape.head_dim if shape.qkv_bias else 0)
    rank = latent.q_lora_rank or 0
    total += rank + latent.kv_lora_rank  # the norms of the two latent vectors
    return total + (rank + latent.width if shape.qkv_bias else 0)
