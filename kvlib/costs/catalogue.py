"""Models, GPUs and codecs by name. The data files are read on first use, not on import."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvlib.costs.codecs import CODECS, Codec, codec
from kvlib.costs.gpus import Gpu, gpu_of
from kvlib.costs.rows import Catalogue, Row, UnknownName, Value, read_data, row_of

if TYPE_CHECKING:
    from kvlib.costs.spec import ModelSpec

__all__ = [
    "CODECS",
    "GPUS",
    "MODELS",
    "Catalogue",
    "Codec",
    "Gpu",
    "Row",
    "UnknownName",
    "Value",
    "codec",
]


def _models() -> dict[str, ModelSpec]:
    from kvlib.config.read import read_shape
    from kvlib.costs.spec import ModelSpec

    found = {}
    for key, entry in read_data("models.toml").items():
        shape = read_shape(entry["config"]).shape
        row = row_of(key, entry, {**entry["config"], **entry["published"]})
        found[key] = ModelSpec(key, entry["title"], shape, row=row)
    return found


MODELS: Catalogue[ModelSpec] = Catalogue("model", _models)
GPUS: Catalogue[Gpu] = Catalogue(
    "GPU", lambda: {key: gpu_of(key, entry) for key, entry in read_data("gpus.toml").items()}
)
