"""The weights of a decoder, counted from its shape, and their bytes as a checkpoint stores them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kvlib.config import words
from kvlib.config.families import family
from kvlib.config.quantised import Format, Quantised
from kvlib.config.shape import Experts, Shape
from kvlib.costs.catalogue import Codec
from kvlib.errors import CheckpointError


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


def count_weights(shape: Shape) -> Counts:
    """The weights of a decoder of this shape."""
    layers, hidden = shape.num_hidden_layers, shape.hidden_size
    experts = shape.experts
    mixed = len(experts.layers) if experts else 0
    dense = layers - mixed
    products = layers * sum(_attention(shape).values())
    products += dense * sum(_mlp(shape, shape.intermediate_size).values())
    vectors = layers * _attention_vectors(shape)
    norms = layers * ((4 if shape.post_norms else 2) - shape.shared_norm) + 1
    vectors += norms * hidden * (2 if shape.norm == "layer" else 1)
    if shape.mlp_bias:
        inner = shape.intermediate_size * (2 if shape.gated_mlp else 1)
        vectors += dense * (inner + hidden)
    table = shape.vocab_size * hidden
    counts = Counts(
        products=products,
        vectors=vectors,
        embedding=table,
        positions=shape.max_position_embeddings * hidden * (shape.positions == "learned"),
        head=table,
        tied=shape.tie_word_embeddings,
    )
    return _with_experts(counts, shape, experts) if experts else counts


def _with_experts(counts: Counts, shape: Shape, experts: Experts) -> Counts:
    mixed, hidden = len(experts.layers), shape.hidden_size
    router = experts.num_experts * hidden + (hidden if experts.shared_gate else 0)
    always = router + sum(_mlp(shape, experts.shared_width).values())
    return Counts(
        products=counts.products + mixed * always,
        vectors=counts.vectors + mixed * (experts.num_experts if experts.router_bias else 0),
        embedding=counts.embedding,
        positions=counts.positions,
        head=counts.head,
        tied=counts.tied,
        expert=mixed * sum(_mlp(shape, experts.width).values()),
        expert_vectors=mixed * (2 * experts.width + hidden) if experts.bias else 0,
        experts=experts.num_experts,
        experts_per_token=experts.per_token,
    )


def _mlp(shape: Shape, inner: int) -> dict[str, int]:
    """Numbers in up, down and, in a gated MLP, the gate."""
    names = ("gate_proj", "up_proj", "down_proj") if shape.gated_mlp else ("up_proj", "down_proj")
    return dict.fromkeys(names, shape.hidden_size * inner)


def _attention(shape: Shape) -> dict[str, int]:
    """Numbers in one layer's projections: q, k, v and output, or the latent ones of MLA."""
    hidden, heads, latent = shape.hidden_size, shape.num_attention_heads, shape.latent
    if latent is None:
        query, key = heads * shape.head_dim, shape.num_key_value_heads * shape.head_dim
        sizes = {"q_proj": query, "k_proj": key, "v_proj": key, "o_proj": query}
        return {name: hidden * size for name, size in sizes.items()}
    query, rank = heads * latent.qk_head_dim, latent.q_lora_rank
    found = {"q_proj": hidden * query}
    if rank is not None:
        found = {"q_a_proj": hidden * rank, "q_b_proj": rank * query}
    up = heads * (latent.qk_nope_head_dim + latent.v_head_dim)
    return {
        **found,
        "kv_a_proj_with_mqa": hidden * latent.width,
        "kv_b_proj": latent.kv_lora_rank * up,
        "o_proj": heads * latent.v_head_dim * hidden,
    }


class Module(NamedTuple):
    """A matrix by its name in the checkpoint, without ".weight".

    part    "products", "head", "expert" or "embedding": which field of `Counts` has its numbers
    linear  whether programs that quantise take it unless told otherwise: they leave out routers,
            gates of shared experts and tables
    copies  how many of them there are, of which this is the first
    """

    name: str
    numbers: int
    part: str = "products"
    linear: bool = True
    copies: int = 1


def modules(shape: Shape, apart: Callable[[int], bool] = lambda layer: True) -> Iterator[Module]:
    """Every matrix of the model. apart: whether to list the experts of a layer one by one."""
    names, mixture, hidden = family(shape.model_type).names, shape.experts, shape.hidden_size
    up = "gate_up" if shape.gated_mlp else "up"
    ours = {**dict.fromkeys(("q_proj", "k_proj", "v_proj"), "qkv"), "o_proj": "o"}
    ours |= {"gate_proj": up, "up_proj": up, "down_proj": "down"}

    def tensor(ours: str, usual: str) -> str:
        """The name of the one tensor that holds our weight."""
        whole = names.whole(ours)
        return whole.tensor.removesuffix(".weight") if whole else names.respell(usual)

    def named(inside: str, sizes: Mapping[str, int], **fields: Any) -> Iterator[Module]:
        """The matrices inside a part of a layer, by the family's own names; some are one there."""
        found: dict[str, int] = {}
        for theirs, numbers in sizes.items():
            name = tensor(ours.get(theirs, ""), inside + theirs)
            found[name] = found.get(name, 0) + numbers
        for name, numbers in found.items():
            yield Module(f"{names.prefix}{names.layers}.{i}.{name}", numbers, **fields)

    table = shape.vocab_size * hidden
    yield Module(names.prefix + tensor("embed", "embed_tokens"), table, "embedding", linear=False)
    for i in range(shape.num_hidden_layers):
        yield from named("self_attn.", _attention(shape))
        if mixture is None or i not in mixture.layers:
            yield from named("mlp.", _mlp(shape, shape.intermediate_size))
            continue
        router = tensor("router", "mlp.gate")
        yield from named("", {router: mixture.num_experts * hidden}, linear=False)
        if mixture.shared_width:
            yield from named("mlp.shared_expert.", _mlp(shape, mixture.shared_width))
        if mixture.shared_gate:
            yield from named("mlp.", {"shared_expert_gate": hidden}, linear=False)
        count, expert = mixture.num_experts, _mlp(shape, mixture.width)
        listed, copies = (count, 1) if apart(i) else (1, count)
        for e in range(listed):
            yield from named(f"mlp.experts.{e}.", expert, part="expert", copies=copies)
    if not shape.tie_word_embeddings:
        yield Module(tensor("lm_head", "lm_head"), table, "head")


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


PLAIN = Format("bfloat16", 16)


@dataclass(frozen=True)
class Stored:
    """The bytes of quantised weights, their scales included.

    codec     the narrowest format in use; its name is quant_algo
    total     of all weights; norms, biases and tables take 16 bits a number
    products, head, experts      of the matrices that `Counts` has under these names
    source    the file that says how
    """

    codec: Codec
    total: int
    products: int
    head: int
    experts: int
    source: str

    @classmethod
    def of(cls, shape: Shape, counts: Counts, quantised: Quantised) -> Stored | None:
        """The bytes of a model of this shape; None if its weights are not quantised.

        Raises CheckpointError if the file lists a module that the model does not have.
        """
        if quantised.name is None:
            return None
        sizes = {"products": 0, "head": 0, "expert": 0, "embedding": 0}
        numbers, formats = 0, set[Format | None]()
        found = list(modules(shape, quantised.tells_experts_apart))
        for module in found:
            one = quantised.format_of(module.name, module.linear)
            formats.add(one)
            numbers += module.copies * module.numbers
            sizes[module.part] += module.copies * _bytes(module.numbers, one)
        names = {module.name for module in found}
        unknown = quantised.first_unknown(names, shape.num_hidden_layers)
        if unknown is not None:
            raise CheckpointError(
                f"{quantised.source}: quantized_layers names {words.shown(unknown)}, needed: "
                f"modules of a {shape.model_type} model, such as {min(names)}"
            )
        total = sum(sizes.values()) + 2 * (counts.total - numbers)
        if shape.tie_word_embeddings:
            sizes["head"] = sizes["embedding"]
        least = min((one for one in formats if one), key=lambda one: one.bits, default=PLAIN)
        codec = Codec(quantised.name, quantised.name, least.bits, least.scale_bits, least.group)
        parts = (sizes["products"], sizes["head"], sizes["expert"])
        return cls(codec, total, *parts, source=quantised.source)

    def read_instead(self, facts: dict[str, Any]) -> dict[str, Any]:
        """The facts of a model with bytes in the places of numbers of weights."""
        return {
            **facts,
            "product_weights": self.products,
            "head_weights": self.head,
            "expert_weights": self.experts / max(1, facts["experts"]),
        }


def _bytes(numbers: int, one: Format | None) -> int:
    """Bytes of a matrix and of the scales of its groups."""
    if one is None:
        return 2 * numbers
    return -(-numbers * one.bits // 8) + -(-numbers // one.group) * one.scale_bits // 8
