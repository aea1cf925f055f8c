"""What the parts of a decoder say of their weights: name, shape, and tensors of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Weight(NamedTuple):
    """One weight: an array of kvlib's, and the tensors of a checkpoint that it is made of.

    name     kvlib's name within its part of the model, such as "qkv.weight"
    shape    (out, in), as checkpoints store it, or (n,)
    tensors  Hugging Face's name for it, without ".weight" → its rows; several are stacked. A
             family whose checkpoints use another name says so in its file (`Names.renamed`)
    centre   the number that a vector of weights lies around: 1 for most norms, 0 for a bias
    """

    name: str
    shape: tuple[int, ...]
    tensors: Mapping[str, int]
    centre: float = 1.0


def linear_weights(name: str, tensors: Mapping[str, int], width: int, bias: bool) -> list[Weight]:
    """A matrix (sum of the tensors' rows, width), and its bias (sum of rows,) if it has one."""
    rows = sum(tensors.values())
    found = [Weight(f"{name}.weight", (rows, width), tensors)]
    return [*found, Weight(f"{name}.bias", (rows,), tensors, centre=0.0)] if bias else found
