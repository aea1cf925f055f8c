"""A Hugging Face config.json as a Shape: what each family states, what it takes for granted.

The defaults are those of transformers' configuration classes where published files rely on them.
What is not understood is refused by name, never ignored: a cache that is nearly right in size is a
machine that fails at night.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from kvlib.costs.families import FAMILIES
from kvlib.costs.keys import Keys, read_json
from kvlib.costs.parts import HARMLESS
from kvlib.costs.shape import Shape


def read_shape(
    config: Mapping[str, Any] | str | Path, without: Collection[str] = ()
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
    if isinstance(config, (str, Path)):
        path = Path(config)
        path = path / "config.json" if path.is_dir() else path
        data, source = read_json(path), str(path)
    elif isinstance(config, Mapping):
        data, source = dict(config), "config"
    else:
        raise TypeError(
            f"config is a {type(config).__name__}, needed: a mapping of keys to values, or a path"
        )
    return shape_of(Keys({k: v for k, v in data.items() if k not in without}, source)), source


def shape_of(keys: Keys) -> Shape:
    """The Shape that one object of a config.json describes."""
    family = keys.data.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        raise keys.error("model_type", f"one of {', '.join(FAMILIES)}")
    keys.seen.add("model_type")
    keys.only("is_encoder_decoder", False, "decoders only")
    keys.only("add_cross_attention", False, "decoders only")
    why = "widths of weights then differ; without=['quantization_config'] counts the plain model"
    keys.only("quantization_config", None, why)
    shape = FAMILIES[family](keys)
    keys.refuse_others(HARMLESS, family)
    return shape
