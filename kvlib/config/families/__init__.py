"""The families of models whose config.json kvlib reads.

A family is a file that makes a `Family` and one line that registers it: below, or `register_family`
from anywhere else. `llama` is the shortest example; `gpt` has all parts. Our names for weights are
the keys of ``kvlib.model.weight_shapes(config)``.
"""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

from kvlib.config.keys import Keys
from kvlib.config.parts import decoder, llama_fields, wrapped
from kvlib.config.shape import Shape
from kvlib.config.words import shown


class Conversion(NamedTuple):
    """A tensor of a checkpoint whose numbers are in another order than in our weight.

    tensor  its name, after the layer's number
    rows    the tensor, as NumPy reads it, and the `ModelConfig` → our weight
    shape   the shape of our weight and the `ModelConfig` → that of the tensor
    """

    tensor: str
    rows: Callable[[Any, Any], Any] = lambda values, config: values
    shape: Callable[[tuple[int, ...], Any], tuple[int, ...]] = lambda shape, config: shape


def transposed(tensor: str) -> Conversion:
    """Return a tensor that is stored (in, out)."""
    return Conversion(tensor, lambda values, config: values.T, lambda shape, config: shape[::-1])


class Names(NamedTuple):
    """How a checkpoint's names differ from Llama's, which `kvlib.model` states beside each weight.

    prefix     what every tensor's name but the head's starts with
    layers     what comes before a layer's number
    tensors    our weight → the tensor that holds it whole, or a `Conversion`. The key "qkv" means
               weight and bias, and ".weight" or ".bias" is added to the tensor's name; the key
               "qkv.bias" means the bias alone, by the tensor's whole name
    respelled  (part of our tensors' names, what the files write instead), in order
    reordered  a tensor's name as ours → its rows and the `ModelConfig` → them in our order
    aliases    (part of a tensor's name in the files, what it is read as), in order
    buffers    a pattern of tensors that may be there and are not read, because they follow from
               the config. LAYERS in it stands for the number of layers
    """

    prefix: str = "model."
    layers: str = "layers"
    tensors: Mapping[str, str | Conversion] = MappingProxyType({})
    respelled: tuple[tuple[str, str], ...] = ()
    reordered: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType({})
    aliases: tuple[tuple[str, str], ...] = ()
    buffers: str = r"(.*\.)?rotary_emb\.inv_freq"

    def respell(self, tensor: str) -> str:
        """Return one of our names for tensors as these files have it."""
        for old, new in self.respelled:
            tensor = tensor.replace(old, new)
        return tensor

    def whole(self, part: str, kind: str = "weight") -> Conversion | None:
        """Return the one tensor that holds our weight `part` ("qkv"); None if llama's names do."""
        tensor = self.tensors.get(f"{part}.{kind}")
        suffix = "" if tensor else f".{kind}"
        tensor = tensor or self.tensors.get(part)
        if tensor is None:
            return None
        conversion = Conversion(tensor) if isinstance(tensor, str) else tensor
        return conversion._replace(tensor=conversion.tensor + suffix)


# Mixtral's words for an expert's gate, up and down
NUMBERED = (("gate_proj", "w1"), ("up_proj", "w3"), ("down_proj", "w2"))
# names where a multimodal model wraps the decoder, in old and new files; towers aren't read
WRAPPED = Names(
    aliases=(("language_model.", ""),),
    buffers=r"(visual|vision_tower|multi_modal_projector)\..*|" + Names().buffers,
)


class Family(NamedTuple):
    """One `model_type` of Hugging Face. A key that neither of its functions reads is refused.

    classes         what `architectures` may name; a class with another head is refused
    shape           reads what decides how large the model and its cache are
    forward_fields  reads the other fields of `kvlib.ModelConfig`; None for a family that kvlib can
                    count and cannot run
    lacks           what kvlib would need in order to run it
    names           how the checkpoint's names differ from Llama's
    """

    classes: tuple[str, ...]
    shape: Callable[[Keys], Shape]
    forward_fields: Callable[[Keys], dict[str, Any]] | None = None
    lacks: str = ""
    names: Names = Names()


# a file of this folder → each model_type that it reads
_FILES = {
    "llama": "llama mistral ministral mixtral phi3 smollm3 granite mistral3 ministral3 exaone4"
    " olmo2 olmo3 llama4 llama4_text nemotron-nas",
    "qwen": "qwen2 qwen2_moe qwen3 qwen3_moe mimo qwen2_vl qwen2_vl_text qwen2_5_vl"
    " qwen2_5_vl_text qwen3_vl qwen3_vl_text qwen3_vl_moe qwen3_vl_moe_text"
    " qwen3_next qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text",
    "gemma": "gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text gemma4 gemma4_text",
    "deepseek": "deepseek_v2 deepseek_v3 deepseek_v32 glm_moe_dsa kimi_k2 kimi_k25"
    " deepseek_v4 deepseek_ref",
    "minimax": "minimax_m2 minimax_m3 minimax_m3_vl",
    "glm": "glm glm4 glm4_moe",
    "gpt_oss": "gpt_oss",
    "states": "nemotron_h bamba granitemoehybrid jamba kimi_linear kimi_k3",
    "heads": "step3p5 step3p7 mimo_v2_flash",
    "gpt": "gpt2 starcoder2 opt gpt_neox falcon bloom phi stablelm",
}
# model_type → the file that reads it, or the family itself
FAMILIES: dict[str, str | Family] = {
    name: file for file, names in _FILES.items() for name in names.split()
}


def register_family(model_type: str, family: Family) -> None:
    """Let kvlib read config.json and checkpoints of another `model_type`.

    >>> from kvlib.config import Family, Keys, classes, decoder, llama_fields
    >>> def shape(keys: Keys):  # biases of q, k and v, as in Qwen2
    ...     return decoder(keys, bias=True)
    >>> register_family("my_llama", Family(classes("MyLlama"), shape, llama_fields))

    Raises ValueError for a model_type that another family has, TypeError for what is no `Family`.
    """
    if not isinstance(family, Family):
        raise TypeError(f"family is {shown(family)}, needed: a Family")
    if FAMILIES.setdefault(model_type, family) != family:
        raise ValueError(f"model_type {model_type!r} is registered already, needed: another name")


def like_llama(
    name: str,
    forward_fields: Callable[[Keys], dict[str, Any]] = llama_fields,
    names: Names | None = None,
    **fields: Any,
) -> Family:
    """Return a family that `decoder` reads, by fields that differ from Llama's."""
    return Family(classes(name), partial(decoder, **fields), forward_fields, names=names or Names())


def wrapping(text: Family, inner_type: str, *names_of_classes: str, **fields: Any) -> Family:
    """Return the family of a multimodal model that wraps this text decoder."""
    shape = partial(wrapped, inner_type=inner_type, shape=text.shape)
    return text._replace(classes=names_of_classes, shape=shape, **fields)


def family(model_type: str) -> Family:
    """Return the family of that name; its file is imported when it is first needed."""
    entry = FAMILIES[model_type]
    if isinstance(entry, Family):
        return entry
    loaded: Family = import_module(f"{__name__}.{entry}").FAMILIES[model_type]
    return loaded


def classes(name: str) -> tuple[str, ...]:
    """Return the two classes that hold a plain decoder: with its head, and bare."""
    return f"{name}ForCausalLM", f"{name}Model"
