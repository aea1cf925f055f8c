"""Which tensors of a Hugging Face checkpoint make up each of kvlib's weights.

A weight of ours is one tensor of the file, or several stacked by rows (q, k, v; gate, up). Each
part of the model states the names that most checkpoints use; a family's file says what differs
(`kvlib.config.family.Names`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kvlib.config.families import family
from kvlib.config.family import Names
from kvlib.model.config import ModelConfig
from kvlib.model.weights import model_weights


@dataclass(frozen=True)
class Source:
    """A tensor of the file: name without prefix, shape there, where its rows go in our weight."""

    name: str
    shape: tuple[int, ...]
    row: int
    transposed: bool


def sources(config: ModelConfig) -> dict[str, list[Source]]:
    """Our weight's name -> the tensors stacked to make it."""
    names = names_of(config)
    found: dict[str, list[Source]] = {}
    for ours, weight in model_weights(config).items():
        *path, part, kind = ours.split(".")
        place = f"{names.layers}.{path[1]}." if path else ""
        renamed = names.renamed.get(part)
        tensors = weight.tensors if renamed is None else {renamed: weight.shape[0]}
        transposed = kind == "weight" and part in names.transposed
        row, found[ours] = 0, []
        for theirs, rows in tensors.items():
            shape = (rows, *weight.shape[1:])
            in_file = shape[::-1] if transposed else shape
            found[ours].append(Source(f"{place}{theirs}.{kind}", in_file, row, transposed))
            row += rows
    return found


def names_of(config: ModelConfig) -> Names:
    """How the names in this family's checkpoints differ from Llama's."""
    return family(config.model_type).names


def prefix_of(config: ModelConfig) -> str:
    """What every tensor's name but lm_head's starts with, unless the bare model was saved."""
    return names_of(config).prefix


def without_prefix(config: ModelConfig, name: str) -> str:
    """A tensor's name as `sources` has it: checkpoints of the bare model leave the prefix out."""
    return name.removeprefix(prefix_of(config))


def may_be_ignored(config: ModelConfig, name: str) -> bool:
    """Whether a tensor we have no use for may be in the file: a buffer, or a tied lm_head."""
    if name == "lm_head.weight":
        return config.tie_word_embeddings
    return re.fullmatch(names_of(config).buffers, name) is not None
