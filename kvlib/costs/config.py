"""A Hugging Face config.json as a Shape: what each family states, what it takes for granted.

The defaults are those of transformers' configuration classes where published files rely on them.
What is not understood is refused by name, never ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from kvlib.costs.families import FAMILIES
from kvlib.costs.keys import Keys, read_json
from kvlib.costs.known import CLASSES
from kvlib.costs.shape import Shape
from kvlib.errors import CheckpointError

MOST_LAYERS = 10_000  # a slip of the pen should not fill the memory of this machine


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
        path = _file(Path(config))
        data, source = read_json(path), str(path)
    elif isinstance(config, Mapping):
        data, source = dict(config), "config"
    else:
        raise TypeError(
            f"config is a {type(config).__name__}, needed: a mapping of keys to values, or a path"
        )
    return shape_of(Keys(_leave_out(data, without), source)), source


def _file(path: Path) -> Path:
    try:
        return path / "config.json" if path.is_dir() else path
    except OSError as error:  # a name that no file can have
        shown = str(path) if len(str(path)) <= 60 else f"{str(path)[:57]}..."
        raise CheckpointError(f"{shown}: cannot be read ({error.strerror})") from None


def _leave_out(data: Mapping[str, Any], without: Collection[str]) -> dict[str, Any]:
    """The object, and the text decoder's object inside it, without those keys."""
    kept = {str(key): value for key, value in data.items() if key not in without}
    if isinstance(kept.get("text_config"), Mapping):
        kept["text_config"] = _leave_out(kept["text_config"], without)
    return kept


def shape_of(keys: Keys) -> Shape:
    """The Shape that one object of a config.json describes."""
    family = keys.data.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        raise keys.error("model_type", f"one of {', '.join(FAMILIES)}")
    keys.seen.add("model_type")
    _check_class(keys, family)
    keys.only("is_encoder_decoder", False, "decoders only")
    keys.only("add_cross_attention", False, "decoders only")
    why = "widths of weights then differ; without=['quantization_config'] counts the plain model"
    keys.only("quantization_config", None, why)
    layers = keys.data.get("num_hidden_layers")
    if isinstance(layers, int) and layers > MOST_LAYERS:
        raise keys.error("num_hidden_layers", f"at most {MOST_LAYERS}")
    shape = FAMILIES[family](keys)
    keys.refuse_others(family)
    return shape


def _check_class(keys: Keys, family: str) -> None:
    """Refuse a class that has another head, or other layers, than the family's language model."""
    names = keys.read("architectures", list, "a list of class names", [])
    kinds = ["ForConditionalGeneration"] if family == "gemma3" else []
    kinds = ["LMHeadModel", "Model"] if family == "gpt2" else [*kinds, "ForCausalLM", "Model"]
    known = [CLASSES[family] + kind for kind in kinds]
    known += ["Gemma3TextModel"] if family == "gemma3_text" else []
    if any(name not in known for name in names):
        raise keys.error("architectures", f"[{' or '.join(map(repr, known))}]")
