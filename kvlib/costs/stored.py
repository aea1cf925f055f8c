"""Bytes of weights as a checkpoint stores them, module by module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvlib.config import words
from kvlib.config.quantised import Format, Quantised
from kvlib.config.shape import Shape
from kvlib.costs.codecs import Codec
from kvlib.costs.parameters import Counts, modules
from kvlib.errors import CheckpointError

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
