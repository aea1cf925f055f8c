"""Hugging Face checkpoint folders -> Decoder.

Everything is checked from the config and the files' headers before the first number is copied: a
folder loads whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kvlib.arrays import has_views
from kvlib.errors import CheckpointError
from kvlib.model.config import ModelConfig
from kvlib.model.names import Source, may_be_ignored, prefix_of, sources, without_prefix
from kvlib.model.safetensors import FLOATS, SafetensorsFile
from kvlib.model.shards import weights_file, weights_files
from kvlib.model.tokenizer import load_tokenizer
from kvlib.model.weights import allocate, library, weight_shapes

if TYPE_CHECKING:
    from kvlib.model.decoder import Decoder

LONG = 500_000_000  # bytes to read from which a progress bar is worth its line

Tensors = dict[str, tuple[SafetensorsFile, str]]  # name without prefix -> file, name in the file


def load_model(
    folder: str | Path, dtype: Any = None, xp: Any = None, tokenizer: bool = True
) -> Decoder:
    """The decoder in a Hugging Face folder, of any family that `kvlib.config.families` can run.

    Reads config.json (and generation_config.json's end tokens), model.safetensors or its sharded
    index, and tokenizer.json (skipped with tokenizer=False). Weights become `dtype` (float32; or a
    name such as "float64") arrays of the library `xp` (`kvlib.arrays.default_namespace()`),
    whichever of F64, F32, F16 and BF16 the files hold.

    Raises CheckpointError naming file and key or tensor for anything unknown, missing, misshapen or
    truncated; TypeError for a dtype that is not a floating-point type of `xp`.

    >>> from importlib.resources import files
    >>> load_model(files("kvlib.reference")).num_parameters
    3508992
    """
    from kvlib.model.decoder import Decoder

    xp = library(xp)
    dtype = _floating(dtype, xp)
    try:
        folder = Path(folder)
    except TypeError:
        raise TypeError(f"folder must be a path, got {folder!r}") from None
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such folder")
    config = ModelConfig.from_folder(folder)
    tensors = open_tensors(folder, config)
    plan = assign(config, tensors, folder)
    text = load_tokenizer(folder, config.vocab_size) if tokenizer else None
    weights = copy_weights(config, plan, tensors, dtype, xp)
    return Decoder(config, weights, tokenizer=text)


def open_tensors(folder: Path, config: ModelConfig) -> Tensors:
    """Every tensor of the folder by its name without prefix: headers checked, no number read."""
    found: Tensors = {}
    for file, names in weights_files(folder):
        for name in names:
            short = without_prefix(config, name)
            if short in found:
                other, its_name = found[short]
                raise CheckpointError(
                    f"{file.path}: tensor {name!r} is {its_name!r} of {other.path.name} again"
                )
            found[short] = file, name
    return found


def assign(config: ModelConfig, tensors: Tensors, folder: Path) -> dict[str, list[Source]]:
    """Our weights' sources, each found in the files with its shape and a floating-point dtype.

    Raises CheckpointError naming file and tensor where one is missing, misshapen or has no use.
    """
    plan = sources(config)
    needed = {source.name: source for parts in plan.values() for source in parts}
    for name, source in needed.items():
        if name not in tensors:
            raise CheckpointError(
                f"{weights_file(folder)}: tensor {full_name(config, name, tensors)!r} is missing, "
                f"needed: {source.shape}"
            )
        file, in_file = tensors[name]
        info = file.tensors[in_file]
        if info.shape != source.shape:
            raise CheckpointError(
                f"{file.path}: tensor {in_file!r} has shape {info.shape}, needed: {source.shape}"
            )
        if info.dtype not in FLOATS:
            raise CheckpointError(
                f"{file.path}: tensor {in_file!r} is {info.dtype}, needed: {', '.join(FLOATS)}"
            )
    for name, (file, in_file) in tensors.items():
        if name not in needed and not may_be_ignored(config, name):
            raise CheckpointError(
                f"{file.path}: tensor {in_file!r} has no place in a {config.model_type} model as "
                "config.json describes it"
            )
    return plan


def full_name(config: ModelConfig, name: str, tensors: Tensors) -> str:
    """A tensor's name as these files would have it: with the prefix, unless they go without."""
    prefix = prefix_of(config)
    prefixed = any(in_file.startswith(prefix) for _, in_file in tensors.values())
    return prefix + name if prefixed and not name.startswith("lm_head.") else name


def copy_weights(
    config: ModelConfig, plan: Mapping[str, list[Source]], tensors: Tensors, dtype: Any, xp: Any
) -> dict[str, Any]:
    """The weights, copied tensor by tensor from the mapped files into one allocation."""
    weights = allocate(weight_shapes(config), dtype, xp)
    jobs = [(weights[ours], source) for ours, parts in plan.items() for source in parts]
    infos = [tensors[source.name] for _, source in jobs]
    total = sum(file.tensors[name].stop - file.tensors[name].start for file, name in infos)
    for weight, source in _progress(jobs, total):
        file, name = tensors[source.name]
        values = file.read(name)
        if source.transposed:
            values = values.T
        rows = weight[source.row : source.row + values.shape[0], ...]
        if has_views(xp):  # NumPy and CuPy convert as they assign, and know float16
            rows[...] = xp.asarray(values)
        else:
            wide = np.float64 if values.dtype.itemsize == 8 else np.float32
            rows[...] = xp.astype(xp.asarray(np.array(values, dtype=wide)), rows.dtype)
    return weights


def _floating(dtype: Any, xp: Any) -> Any:
    """`dtype` as one of the namespace's floating-point types."""
    known = {name: getattr(xp, name, None) for name in ("float32", "float64", "float16")}
    if dtype is None:
        return known["float32"]
    for name, candidate in known.items():
        wished = name if isinstance(dtype, str) else candidate
        if candidate is not None and dtype == wished:
            return candidate
    have = [name for name, candidate in known.items() if candidate is not None]
    raise TypeError(f"dtype is {dtype!r}, needed: one of {', '.join(have)} of {xp.__name__}")


def _progress(jobs: list[Any], total: int) -> Iterable[Any]:
    """The jobs, behind a progress bar if they are long and tqdm is installed."""
    if total < LONG:
        return jobs
    try:
        from tqdm import tqdm
    except ImportError:
        return jobs
    return tqdm(jobs, desc="reading weights", unit="tensor", disable=None)
