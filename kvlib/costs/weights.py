"""The weights of a decoder, counted from its shape, and their bytes as a checkpoint stores them."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from kvlib.config import words
from kvlib.config.families import family
from kvlib.config.quantised import Format, Packing, Quantised, plain
from kvlib.config.shape import Shape
from kvlib.config.weights import layer_weights, norm
from kvlib.errors import CheckpointError


@dataclass(frozen=True)
class Counts:
    """Numbers in the weights of a whole model, by how a token uses them.

    products are the matrices that every token is multiplied with, vectors the biases, norms and
    sinks, embedding and positions the input tables, head the output product, even if it shares the
    table. expert is one routed expert of every layer that has them; expert_vectors its biases.
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
    """Return the weights of a decoder of this shape."""
    numbers, hidden, experts = Counter[str](), shape.hidden_size, shape.experts
    weights = [(w, len(group)) for group in alike(shape) for w in layer_weights(shape, group[0])]
    weights += [(weight, 1) for weight in (*shape.others, *norm(shape, "norm", "norm"))]
    for weight, times in weights:
        part = "expert" if weight.name.startswith("experts_") else "products"
        if len(weight.shape) == 1:
            part = "expert_vectors" if part == "expert" else "vectors"
        part = "embedding" if weight.name.startswith("embed_") else part
        numbers[part] += math.prod(weight.shape) * times
    table, number = shape.vocab_size * hidden, experts.num_experts if experts else 0
    return Counts(
        products=numbers["products"],
        vectors=numbers["vectors"] + shape.vocab_size * shape.head_bias,
        embedding=table + numbers["embedding"],
        positions=shape.max_position_embeddings * hidden * (shape.positions == "learned"),
        head=table,
        tied=shape.tie_word_embeddings,
        expert=numbers["expert"] // max(1, number),
        expert_vectors=numbers["expert_vectors"] // max(1, number),
        experts=number,
        experts_per_token=experts.per_token if experts else 0,
    )


def alike(shape: Shape) -> list[list[int]]:
    """Return the layers in groups that have the same weights."""
    if shape.layers:  # a family makes one `Layer` for all that are alike
        by_weights: dict[int, list[int]] = {}
        for i, layer in enumerate(shape.layers):
            by_weights.setdefault(id(layer.weights), []).append(i)
        return list(by_weights.values())
    mixed = set(shape.experts.layers if shape.experts else ())
    layers = range(shape.num_hidden_layers)
    groups = ([i for i in layers if i in mixed], [i for i in layers if i not in mixed])
    return [group for group in groups if group]


class Module(NamedTuple):
    """A matrix by its name in the checkpoint, without ".weight"; the first of `copies` alike.

    kind: "linear", "expert", "head", "embedding"; "router", also of a shared expert; or "other",
    which no program quantises.
    """

    name: str
    rows: int
    columns: int
    kind: str = "linear"
    copies: int = 1

    @property
    def numbers(self) -> int:
        return self.rows * self.columns

    @property
    def part(self) -> str:
        """The field of `Counts` that has its numbers."""
        return self.kind if self.kind in ("expert", "head", "embedding") else "products"


def modules(shape: Shape, apart: Collection[int | None] = (None,)) -> Iterator[Module]:
    """Yield every matrix of the model. apart: layers whose experts are listed; None: all."""
    names, table = family(shape.model_type).names, (shape.vocab_size, shape.hidden_size)
    count = shape.experts.num_experts if shape.experts else 1

    def tensor(ours: str, usual: str) -> str:
        whole = names.whole(ours)
        return whole.tensor.removesuffix(".weight") if whole else names.respell(usual)

    yield Module(names.prefix + tensor("embed", "embed_tokens"), *table, "embedding")
    for group in alike(shape):
        matrices = [weight for weight in layer_weights(shape, group[0]) if len(weight.shape) == 2]
        for i in group:
            for weight in matrices:
                ours, copies = weight.name.removesuffix(".weight"), 1
                tensors, kind = list(weight.tensors.items()), "linear" if weight.linear else "other"
                if ours.startswith("experts_"):
                    kind, copies = "expert", 1 if i in apart or None in apart else count
                    tensors = tensors[: len(tensors) // copies]
                elif ours.startswith("embed_"):
                    kind = "embedding"
                elif names.whole(ours):
                    tensors = [(ours, weight.shape[0])]
                if ours in ("router", "shared_gate"):
                    kind = "router"
                for theirs, rows in tensors:
                    name = names.respell(theirs) if kind == "expert" else tensor(ours, theirs)
                    named = shape.layers[i].name if shape.layers else ""
                    name = f"{named or f'{names.prefix}{names.layers}.{i}'}.{name}"
                    yield Module(name, rows, weight.shape[1], kind, copies)
    if not shape.tie_word_embeddings:
        yield Module(tensor("lm_head", "lm_head"), *table, "head")


PLAIN = Packing(16)


@dataclass(frozen=True)
class Stored:
    """The bytes of quantised weights, scales included.

    codec: the narrowest format, by the name that the file gives. source: the file that says how.
    facts: bytes where `ModelSpec.facts` has numbers.
    """

    codec: Format
    total: int
    source: str
    facts: Mapping[str, float]

    @classmethod
    def of(cls, shape: Shape, counts: Counts, quantised: Quantised) -> Self | None:
        """Return the bytes, None if not quantised; CheckpointError for an unknown module."""
        if quantised.name is None:
            return None
        sizes, numbers, bits = Counter[str](), 0, 16
        found = modules(shape, quantised.layers_apart)
        matrices = [module._replace(name=plain(module.name)) for module in found]
        for module in matrices:
            packing = quantised.packing_of(module.name, module.kind) or PLAIN
            bits = min(bits, packing.bits)
            numbers += module.copies * module.numbers
            size = module.copies * packing.bytes(module.rows, module.columns)
            sizes[module.part] += size
        codec = Format(quantised.name, quantised.name, bits)
        names = {module.name for module in matrices}
        unknown = quantised.first_unknown(names, shape.num_hidden_layers)
        if unknown is not None or bits == PLAIN.bits:
            said = f"names {words.shown(unknown)}" if unknown else f"covers nothing as {codec.name}"
            needed = f"modules of a {shape.model_type} model, such as {min(names)}"
            raise CheckpointError(f"{quantised.source}: {said}, needed: {needed}")
        total = sum(sizes.values()) + 2 * (counts.total - numbers)
        head = sizes["embedding" if shape.tie_word_embeddings else "head"]
        facts = {"product_weights": sizes["products"], "head_weights": head}
        expert = sizes["expert"] / max(1, counts.experts)
        return cls(codec, total, quantised.source, {**facts, "expert_weights": expert})
