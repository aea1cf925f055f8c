"""The families of models whose config.json kvlib reads: one line below for each.

To add a family, write a file in this folder whose FAMILIES maps the model_type to a `Family`, and
add a line with both names below. Close relatives share a file. It says four things of a family:

1. which classes a config may name in `architectures`;
2. `shape(keys)`: what decides how large the model and its cache are. `kvlib.config.parts` reads
   what families share; every key that is read is checked, and `kvlib.costs` refuses a config with
   keys that have not been read;
3. `forward_fields(keys)`: the fields of `kvlib.ModelConfig` that say how a forward pass computes.
   A key that neither this nor `shape` reads is refused, unless `kvlib.config.table`
   says that it decides nothing. A family without `forward_fields` is counted and not run, and
   `lacks` says what is missing;
4. `names`: how tensors of the checkpoint differ from Llama's.

`llama` is the shortest example, `starcoder2` one of all four. Our names for weights are the
keys of ``kvlib.model.weights.weight_shapes(config)``.

The tests ask for three things more: the family's name in README.md; a line or two in VARIANTS of
``tests/peers/hf_models.py``, from which ``tools/make_golden.py <variant>`` writes a tiny checkpoint
and transformers' logits of it (that needs torch and transformers); and what a config must not say,
in REFUSED of ``tests/test_config.py``.

A computation that no layer of kvlib has yet, such as a recurrent state, is a new file beside
`kvlib.model.grouped_query` and `kvlib.model.latent`, or beside `kvlib.model.gated_mlp`. A block
that adds its parts in another order (attention and MLP in parallel) is a new field of
`kvlib.ModelConfig`, which `forward_fields` sets, and a branch in `mix` and `feed` of
`kvlib.model.block`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

from kvlib.config.keys import Keys
from kvlib.config.shape import Shape

# model_type -> the file that reads it
FAMILIES = {
    "llama": "llama",
    "mistral": "mistral",
    "mixtral": "mistral",
    "phi3": "llama",
    "qwen2": "qwen",
    "qwen2_moe": "qwen",
    "qwen3": "qwen",
    "qwen3_moe": "qwen",
    "gemma": "gemma",
    "gemma2": "gemma",
    "gemma3": "gemma",
    "gemma3_text": "gemma",
    "gpt2": "gpt2",
    "starcoder2": "starcoder2",
    "deepseek_v2": "deepseek",
    "deepseek_v3": "deepseek",
    "gpt_oss": "gpt_oss",
}


class Stored(NamedTuple):
    """A tensor that no other family's files have in this form.

    tensor  its whole name, after the layer's number
    shape   the `ModelConfig` → the tensor's shape in the file; None: that of our weight
    rows    the tensor, as NumPy reads it, and the `ModelConfig` → our weight
    """

    tensor: str
    shape: Callable[[Any], tuple[int, ...]] | None
    rows: Callable[[Any, Any], Any]


class Names(NamedTuple):
    """How a checkpoint's names differ from Llama's, which `kvlib.model` states beside each weight.

    prefix      what every tensor's name but lm_head's starts with
    layers      what stands before a layer's number
    renamed     our weight ("qkv", "mlp_norm") → the tensor that holds it, whole
    transposed  our weights whose tensors are stored (in, out)
    respelled   (part of our tensors' names, what stands there in the files), in order
    stored      our weight with its kind ("qkv.bias") → the one tensor that holds it in an order of
                its own
    buffers     a pattern of tensors that may be there and are not read, because they follow from
                the config: older versions of transformers saved them. LAYERS in it stands for the
                number of layers
    """

    prefix: str = "model."
    layers: str = "layers"
    renamed: Mapping[str, str] = MappingProxyType({})
    transposed: tuple[str, ...] = ()
    respelled: tuple[tuple[str, str], ...] = ()
    stored: Mapping[str, Stored] = MappingProxyType({})
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


@cache
def family(model_type: str) -> Family:
    """The family of that name; its file is imported when it is first asked for."""
    file = import_module(f"{__name__}.{FAMILIES[model_type]}")
    found: Family = file.FAMILIES[model_type]
    return found
