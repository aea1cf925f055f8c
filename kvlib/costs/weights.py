"""The weights of a decoder, counted from its shape, and their bytes as a checkpoint stores them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kvlib.config import words
from kvlib.config.families import family
from kvlib.config.quantised import Format, Quantised
from kvlib.config.shape import Shape
from kvlib.config.weights import layer_weights
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
    numbers = Counter[str]()
    for first, *others in _alike(shape):
        for weight in layer_weights(shape, first):
            part = "expert" if weight.name.startswith("experts_") else "products"
            if len(weight.shape) == 1:
                part = "expert_vectors" if part == "expert" else "vectors"
            numbers[part] += math.prod(weight.shape) * (1 + len(others))
    hidden, experts = shape.hidden_size, shape.experts
    numbers["vectors"] += hidden * (2 if shape.norm == "layer" else 1)  # the last norm
    table, number = shape.vocab_size * hidden, experts.num_experts if experts else 0
    return Counts(
        products=numbers["products"],
        vectors=numbers["vectors"],
        embedding=table,
        positions=shape.max_position_embeddings * hidden * (shape.positions == "learned"),
        head=table,
        tied=shape.tie_word_embeddings,
        expert=numbers["expert"] // max(1, number),
        expert_vectors=numbers["expert_vectors"] // max(1, number),
        experts=number,
        experts_per_token=experts.per_token if experts else 0,
    )


def _alike(shape: Shape) -> list[list[int]]:
    """Return the layers in groups that have the same weights."""
    mixed = set(shape.experts.layers if shape.experts else ())
    layers = range(shape.num_hidden_layers)
    groups = ([i for i in layers if i in mixed], [i for i in layers if i not in mixed])
    return [group for group in groups if group]


class Module(NamedTuple):
    """A matrix by its name in the checkpoint, without ".weight"; the first of `copies` alike.

    part: its field of `Counts`. linear: quantised by default (not routers, gates and tables).
    """

    name: str
    numbers: int
    part: str = "products"
    linear: bool = True
    copies: int = 1


def modules(shape: Shape, apart: Callable[[int], bool] = lambda layer: True) -> Iterator[Module]:
    """Yield every matrix of the model. apart: whether to list a layer's experts one by one."""
    names, table = family(shape.model_type).names, shape.vocab_size * shape.hidden_size
    count = shape.experts.num_experts if shape.experts else 1

    def tensor(ours: str, usual: str) -> str:
        whole = names.whole(ours)
        return whole.tensor.removesuffix(".weight") if whole else names.respell(usual)

    yield Module(names.prefix + tensor("embed", "embed_tokens"), table, "embedding", linear=False)
    for group in _alike(shape):
        matrices = [weight for weight in layer_weights(shape, group[0]) if len(weight.shape) == 2]
        for i in group:
            for weight in matrices:
                ours, copies = weight.name.removesuffix(".weight"), 1
                tensors, part = list(weight.tensors.items()), "products"
                if ours.startswith("experts_"):
                    part, copies = "expert", 1 if apart(i) else count
                    tensors = tensors[: len(tensors) // copies]
                elif names.whole(ours):
                    tensors = [(ours, weight.shape[0])]
                linear = ours not in ("router", "shared_gate")
                for theirs, rows in tensors:
                    name = names.respell(theirs) if part == "expert" else tensor(ours, theirs)
                    name = f"{names.prefix}{names.layers}.{i}.{name}"
                    yield Module(name, rows * weight.shape[1], part, linear, copies)
    if not shape.tie_word_embeddings:
        yield Module(tensor("lm_head", "lm_head"), table, "head")


PLAIN = Format("bfloat16", "bfloat16", 16)


@dataclass(frozen=True)
class Stored:
    """The bytes of quantised weights, scales included, in `total` and by fields of `Counts`.

    codec: the narrowest format, by its quant_algo. source: the file that says how.
    """

    codec: Format
    total: int
    products: int
    head: int
    experts: int
    source: str

    @classmethod
    def of(cls, shape: Shape, counts: Counts, quantised: Quantised) -> Stored | None:
        """Return the bytes, None if not quantised; CheckpointError for an unknown module."""
        if quantised.name is None:
            return None
        sizes = {"products": 0, "head": 0, "expert": 0, "embedding": 0}
        numbers, formats = 0, set[Format | None]()
        matrices = list(modules(shape, quantised.tells_experts_apart))
        for module in matrices:
            kind = quantised.format_of(module.name, module.linear)
            formats.add(kind)
            numbers += module.copies * module.numbers
            sizes[module.part] += module.copies * _bytes(module.numbers, kind)
        names = {module.name for module in matrices}
        unknown = quantised.first_unknown(names, shape.num_hidden_layers)
        if unknown is not None:
            raise CheckpointError(
                f"{quantised.source}: quantized_layers names {words.shown(unknown)}, needed: "
                f"modules of a {shape.model_type} model, such as {min(names)}"
            )
        total = sum(sizes.values()) + 2 * (counts.total - numbers)
        if shape.tie_word_embeddings:
            sizes["head"] = sizes["embedding"]
        least = min((kind for kind in formats if kind), key=lambda kind: kind.bits, default=PLAIN)
        codec = replace(least, name=quantised.name, title=quantised.name)
        parts = (sizes["products"], sizes["head"], sizes["expert"])
        return cls(codec, total, *parts, source=quantised.source)

    def read_instead(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Return the facts of a model with bytes instead of numbers of weights."""
        return {
            **facts,
            "product_weights": self.products,
            "head_weights": self.head,
            "expert_weights": self.experts / max(1, facts["experts"]),
        }


def _bytes(numbers: int, kind: Format | None) -> int:
    """Return the bytes of a matrix and of the scales of its groups."""
    if kind is None:
        return 2 * numbers
    groups = -(-numbers // kind.group) if kind.group else 0
    return int(-(-numbers * kind.bits // 8) + groups * kind.scale_bits // 8)
