"""A Hugging Face config.json as a Shape, and as what a forward pass needs beside it.

What a family's file does not understand is refused by name, never ignored.
"""

import difflib
import os
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from kvlib.config import quantisers, words
from kvlib.config.families import FAMILIES, Family, family
from kvlib.config.json_files import check_parts, read_json
from kvlib.config.keys import Keys
from kvlib.config.quantised import Quantised
from kvlib.config.shape import Shape
from kvlib.errors import CheckpointError


class Counted(NamedTuple):
    """A config.json to be counted: `source` names it in errors."""

    shape: Shape
    source: str
    quantised: Quantised | None


def read_shape(
    config: Mapping[str, Any] | str | os.PathLike[str],
    without: Collection[str] = (),
    read_by: type[Keys] = Keys,
) -> Counted:
    """Return the Shape of a config.json, and how the files beside it quantise its weights.

    config   the parsed object, or the path of the file or of the folder that holds it
    without  keys to leave out although they say something, such as ``quantization_config`` (count
             the weights before quantisation)

    Raises CheckpointError (a ValueError) that names the file, the key, what it holds and what is
    understood, also for a key to leave out that the file lacks or that the family reads; TypeError
    where config is neither a mapping nor a path.
    """
    if isinstance(without, str):
        raise TypeError(f"without is the string {without!r}, needed: a collection of keys")
    if isinstance(config, (str, os.PathLike)):
        source = os.path.join(config, "config.json") if os.path.isdir(config) else str(config)
        folder: str | None = os.path.dirname(source)
        data = read_json(source, check=False)
    elif isinstance(config, Mapping):
        data, source, folder = dict(config), "config", None
    else:
        needed = "a mapping of keys to values, or a path"
        raise TypeError(f"config is a {type(config).__name__}, needed: {needed}")
    shown = words.path(source)
    family_of(_kept(data, shown, without, read_by))  # before the other keys: it is the first reason
    check_parts(data, shown)
    left_out = _in_file(data, without, shown, folder)
    keys = _kept(data, shown, left_out, read_by)
    plain = any(key in quantisers.KEYS for key in left_out)
    model_family = family_of(keys)
    stored = quantisers.read(keys, None if plain else folder, to_run=False)
    shape = model_family.shape(keys)
    keys.refuse_others(shape)
    return Counted(shape, source, stored)


def read_model(
    data: Mapping[str, Any], source: str, folder: str | None = None
) -> tuple[Shape, dict[str, Any]]:
    """Return the Shape of a model that kvlib can run, and the other fields of its `ModelConfig`.

    folder: with files on quantised weights. CheckpointError as `read_shape`, or if it can't run.
    """
    source = words.path(source)
    keys = Keys(data, source)
    model_family = family_of(keys, to_run=True)
    check_parts(data, source)
    if model_family.forward_fields is None:
        raise CheckpointError(
            f"{source}: model_type is {keys.model_type!r}. kvlib can count this model's bytes "
            f"(kvlib.costs) but cannot run it: it would need {model_family.lacks}. "
            f"It can run {', '.join(runnable())}"
        )
    quantisers.read(keys, folder, to_run=True)
    shape = model_family.shape(keys)._replace(model_type=keys.model_type)
    others = model_family.forward_fields(keys.text)
    if others.get("rope") and others["rope"].kind == "dynamic":
        # Beyond that limit, keys rotated earlier would have to be rotated again.
        shape = shape._replace(max_position_embeddings=keys.text.count("max_position_embeddings"))
    keys.text.refuse_others(shape, to_run=True)
    keys.refuse_others(shape, to_run=True)
    return shape, others


def family_of(keys: Keys, to_run: bool = False) -> Family:
    """Return the family by `model_type` or, where a file has none, by its class in `architectures`.

    CheckpointError if it is unknown, cannot be run though `to_run`, or has another head.
    """
    names: list[Any] = []
    if "architectures" not in keys.left_out:
        names = keys.read("architectures", list, "a list of class names", [])
    keys.not_left_out("model_type")
    model_type = keys.data.get("model_type")
    if model_type is None and names:
        by_class = {name: kind for kind in FAMILIES for name in family(kind).classes}
        model_type = next((by_class[n] for n in names if isinstance(n, str) and n in by_class), "")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise keys.error("model_type", f"one of {', '.join(runnable() if to_run else FAMILIES)}")
    keys.model_type = model_type
    keys.seen.add("model_type")
    model_family = family(model_type)
    if any(name not in model_family.classes for name in names):
        raise keys.error("architectures", f"[{' or '.join(map(repr, model_family.classes))}]")
    return model_family


def runnable() -> list[str]:
    """Return the families that kvlib can run."""
    return [name for name in FAMILIES if family(name).forward_fields is not None]


def _in_file(
    data: Mapping[str, Any], without: Collection[str], source: str, folder: str | None
) -> frozenset[str]:
    """Check that the file has the keys to leave out; a key of quantised weights adds the others."""
    text = data.get("text_config")
    known = {*data, *(text if isinstance(text, Mapping) else ())}
    files = [] if folder is None else [os.path.join(folder, file) for file in quantisers.FILES]
    if known & {*quantisers.KEYS} or any(map(os.path.lexists, files)):
        known.update(quantisers.KEYS)
    for key in without:
        if key not in known:
            near = difflib.get_close_matches(str(key)[:100], map(str, known), n=3)
            names = " or ".join(map(words.shown, near))
            hint = f"did you mean {names}?" if near else "see the file"
            raise CheckpointError(f"{source}: has no key {words.shown(key)} to leave out; {hint}")
    more = quantisers.KEYS if any(key in quantisers.KEYS for key in without) else ()
    return frozenset((*without, *more))


def _kept(
    data: Mapping[str, Any], source: str, without: Collection[str], read_by: type[Keys]
) -> Keys:
    """Return the keys, also those of the text decoder's object, that are not in `without`."""
    kept = {key: value for key, value in data.items() if key not in without}
    text = kept.get("text_config")
    if isinstance(text, Mapping):
        kept["text_config"] = {key: value for key, value in text.items() if key not in without}
    return read_by(kept, source, left_out=without)
