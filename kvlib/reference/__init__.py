"""The small model the book runs on: Llama format, byte level, trained on Python source code.

The folder holds config.json, model.safetensors (float16), MODEL_CARD.md and the frozen sample of
Python that the chapters feed to it. It loads with NumPy alone.
"""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvlib.model.decoder import Decoder

SAMPLE = "sample.py.txt"


def load_reference_model(dtype: Any = None, xp: Any = None) -> Decoder:
    """The reference model, its weights as `dtype` (float32) arrays of the library `xp`.

    xp None means `kvlib.arrays.default_namespace()`: NumPy, or CuPy where there is a device. Every
    call reads the files anew (a few hundredths of a second), so changes to one model never reach
    another. Raises CheckpointError if the installed files are damaged.

    >>> load_reference_model().config.hidden_size
    256
    """
    from kvlib.model.checkpoint import load_model

    with as_file(files(__name__)) as folder:
        return load_model(folder, dtype=dtype, xp=xp)


def sample_text() -> str:
    """The frozen sample: Python source written for the book, the same on every machine.

    >>> len(sample_text()) > 10_000
    True
    """
    return files(__name__).joinpath(SAMPLE).read_text(encoding="utf-8")
