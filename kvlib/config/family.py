"""What a family of models is: how its config.json is read, and what its tensors are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kvlib.config.keys import Keys
from kvlib.config.shape import Shape


class Names(NamedTuple):
    """How a checkpoint's names differ from Llama's, which `kvlib.model` states beside each weight.

    prefix      what every tensor's name but lm_head's starts with
    layers      what stands before a layer's number
    renamed     our weight ("qkv", "mlp_norm") → the tensor that holds it, whole
    transposed  our weights whose tensors are stored (in, out)
    buffers     a pattern of tensors that may be there and are not read, because they follow from
                the config: older versions of transformers saved them
    """

    prefix: str = "model."
    layers: str = "layers"
    renamed: Mapping[str, str] = MappingProxyType({})
    transposed: tuple[str, ...] = ()
    buffers: str = r"(.*\.)?rotary_emb\.inv_freq"


class Family(NamedTuple):
    """One `model_type` of Hugging Face.

    classes         what `architectures` may name; a class with another head is refused
    shape           reads what decides how large the model and its cache are: all that
                    `kvlib.costs` needs
    forward_fields  reads the fields of `kvlib.ModelConfig` that say how a forward pass computes;
                    None for a family that kvlib can count and cannot run
    lacks           what kvlib would need in order to run it
    names           how the checkpoint's names differ from Llama's
    """

    classes: tuple[str, ...]
    shape: Callable[[Keys], Shape]
    forward_fields: Callable[[Keys], dict[str, Any]] | None = None
    lacks: str = ""
    names: Names = Names()


def classes(name: str) -> tuple[str, ...]:
    """The two classes that hold a plain decoder: with its head, and bare."""
    return f"{name}ForCausalLM", f"{name}Model"
