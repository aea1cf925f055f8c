"""A Hugging Face config.json as a Shape, and as what a forward pass needs beside it.

What a family's file does not understand is refused by name, never ignored: a model that is nearly
right prints fluent nonsense, and a bill that is nearly right is wrong.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from kvlib.config import words
from kvlib.config.door import check_parts, read_json
from kvlib.config.families import FAMILIES, Family, family
from kvlib.config.keys import Keys
from kvlib.config.shape import Shape
from kvlib.errors import CheckpointError

COUNTED = "widths of weights then differ; without=['quantization_config'] counts the plain model"
LOADED = "quantised weights are not read"


def read_shape(
    config: Mapping[str, Any] | str | os.PathLike[str], without: Collection[str] = ()
) -> tuple[Shape, str]:
    """The Shape that a config.json describes, and what it is called (for errors).

    config   the parsed object, or the path of the file or of the folder that holds it
    without  keys to leave out although they say something, such as ``quantization_config`` (count
             the weights before quantisation) or ``vision_config`` (count the text decoder alone)

    Raises CheckpointError (a ValueError) that names the file, the key, what it holds and what is
    understood; TypeError where config is neither a mapping nor a path.
    """
    if isinstance(without, str):
        raise TypeError(f"without is the string {without!r}, needed: a collection of keys")
    if isinstance(config, (str, os.PathLike)):
        source = os.path.join(config, "config.json") if os.path.isdir(config) else str(config)
        data = read_json(source)
    elif isinstance(config, Mapping):
        data, source = dict(config), "config"
        check_parts(data, source)
    else:
        raise TypeError(
            f"config is a {type(config).__name__}, needed: a mapping of keys to values, or a path"
        )
    keys = Keys(_leave_out(data, without), words.path(source))
    shape = _shape_of(keys, family_of(keys), COUNTED)
    keys.refuse_others()
    return shape, source


def read_model(data: Mapping[str, Any], source: str) -> tuple[Shape, dict[str, Any]]:
    """The Shape of a model that kvlib can run, and the other fields of its `ModelConfig`.

    Raises CheckpointError as `read_shape`, for a family that kvlib can count but not run, and for a
    key that could change what a forward pass computes and that the family's file does not read.
    """
    source = words.path(source)
    check_parts(data, source)
    keys = Keys(data, source)
    found = family_of(keys, to_run=True)
    if found.forward_fields is None:
        raise CheckpointError(
            f"{source}: model_type is {keys.model_type!r}. kvlib can count this model's bytes "
            f"(kvlib.costs) but cannot run it: it would need {found.lacks}. "
            f"It can run {', '.join(runnable())}"
        )
    shape, others = _shape_of(keys, found, LOADED), found.forward_fields(keys)
    keys.refuse_others(to_run=True)
    return shape, others


def family_of(keys: Keys, to_run: bool = False) -> Family:
    """The family by `model_type` or, where a file has none, by its class in `architectures`.

    Raises CheckpointError for a family that kvlib does not know, naming those it can count or, if
    the model is `to_run`, run; and for a class with another head than the language model's.
    """
    names = keys.read("architectures", list, "a list of class names", [])
    model_type = keys.data.get("model_type")
    if model_type is None and names:
        by_class = {name: one for one in FAMILIES for name in family(one).classes}
        model_type = next((by_class[n] for n in names if isinstance(n, str) and n in by_class), "")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise keys.error("model_type", f"one of {', '.join(runnable() if to_run else FAMILIES)}")
    keys.model_type = model_type
    keys.seen.add("model_type")
    found = family(model_type)
    if any(name not in found.classes for name in names):
        raise keys.error("architectures", f"[{' or '.join(map(repr, found.classes))}]")
    return found


def runnable() -> list[str]:
    """The families that kvlib can run."""
    return [name for name in FAMILIES if family(name).forward_fields is not None]


def _shape_of(keys: Keys, found: Family, quantised: str) -> Shape:
    keys.only("is_encoder_decoder", False, "decoders only")
    keys.only("add_cross_attention", False, "decoders only")
    keys.only("quantization_config", None, quantised)
    return found.shape(keys)


def _leave_out(data: Mapping[str, Any], without: Collection[str]) -> dict[str, Any]:
    """The object, and the text decoder's object inside it, without those keys."""
    kept = {key: value for key, value in data.items() if key not in without}
    if isinstance(kept.get("text_config"), Mapping):
        kept["text_config"] = _leave_out(kept["text_config"], without)
    return kept
