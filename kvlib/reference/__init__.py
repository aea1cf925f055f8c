"""The small model the book runs on: Llama format, byte level, trained on Python source code.

The folder holds config.json, model.safetensors (float16), MODEL_CARD.md and the frozen sample of
Python that the chapters feed to it. It loads with NumPy alone. The folder draft holds a second
model, an eighth of its size, which guesses what the first one writes.
"""

from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvlib.model.decoder import Decoder

SAMPLE = "sample.py.txt"


def load_reference_model(dtype: Any = None, xp: Any = None) -> "Decoder":
    """The reference model, its weights as `dtype` (float32) arrays of the library `xp`.

    xp None means `kvlib.arrays.default_namespace()`. Every call reads the files anew. Raises
    CheckpointError if the installed files are damaged.

    >>> load_reference_model().config.hidden_size
    256
    """
    from kvlib.model.checkpoint import load_model

    with as_file(files(__name__)) as folder:
        return load_model(folder, dtype=dtype, xp=xp)


def load_draft_model(dtype: Any = None, xp: Any = None) -> "Decoder":
    """A small model that guesses what the reference model writes, for speculative decoding.

    It has an eighth of the reference model's parameters and the same vocabulary, bytes. Arguments
    and errors as in `load_reference_model`.

    >>> load_draft_model().config.vocab_size
    256
    """
    from kvlib.model.checkpoint import load_model

    with as_file(files(__name__)) as folder:
        return load_model(folder / "draft", dtype=dtype, xp=xp)


def sample_text() -> str:
    """The frozen sample: Python source written for the book, the same on every machine.

    >>> len(sample_text()) > 10_000
    True
    """
    return files(__name__).joinpath(SAMPLE).read_text(encoding="utf-8")
