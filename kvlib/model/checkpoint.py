"""Hugging Face checkpoint folders -> Decoder.

Everything is checked from the config and the files' headers before the first number is copied: a
folder loads whole or not at all.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from kvlib.arrays import has_views
from kvlib.codecs import BFloat16, Fp8
from kvlib.config import words
from kvlib.config.families import family
from kvlib.config.json_files import read_json
from kvlib.config.weights import model_weights
from kvlib.errors import CheckpointError
from kvlib.model.config import ModelConfig
from kvlib.model.decoder import Decoder
from kvlib.model.safetensors import FLOATS, FP8, SafetensorsFile, widen_bfloat16
from kvlib.model.tokenizer import load_tokenizer
from kvlib.model.weights import allocate, library, weight_shapes
from kvlib.progress import bar

LONG = 500_000_000  # bytes to read from which a progress bar is shown
HEAD = "lm_head.weight"  # our weight; a file may call it something else
ROWS = 1024  # of two tensors that are compared at a time
SCALES, BLOCK = ("_scale_inv", "_scale"), 128  # names end in; rows and columns that share one
PACKED = "_blocks", "_scales"  # mxfp4: pairs of numbers, and an exponent for 32 of them
FP4 = np.array([s * x for s in (1, -1) for x in (0, 0.5, 1, 1.5, 2, 3, 4, 6)], np.float32)
OF_ACTIVATIONS = r".*[._](activation|input|k|v)_scale"  # scales of what is not in fp8 here

FETCH = (
    ". kvlib downloads nothing; if this is a model on Hugging Face's hub, fetch it first, with "
    "huggingface_hub.snapshot_download, and give the folder"
)

Tensors = dict[str, tuple[SafetensorsFile, str]]  # name without prefix -> file, name in the file


def load_model(
    folder: str | os.PathLike[str], dtype: Any = None, xp: Any = None, tokenizer: bool = True
) -> Decoder:
    """Load the decoder of a Hugging Face folder, of any family that `kvlib.config.families` runs.

    Reads config.json (and generation_config.json's end tokens), model.safetensors or its sharded
    index, and tokenizer.json (skipped with tokenizer=False). F64, F32, F16 or BF16 become arrays of
    `dtype` (float32, or a name such as "float64") in the library `xp`
    (`kvlib.arrays.default_namespace()`); "bfloat16" becomes its bits, uint16, which take half of
    the memory and are computed with in float32. So do matrices in F8_E4M3, times their scale (one,
    or one for each block of 128 x 128), and experts in mxfp4.

    Where config.json ties the output matrix to the embedding, and the files hold both with
    different values, the decoder uses both, as transformers 5.23.0 does:
    `config.tie_word_embeddings` is then False.

    Raises CheckpointError naming file and key or tensor for anything unknown, missing, misshapen or
    truncated; TypeError for a dtype that is not a floating-point type of `xp`.

    >>> from importlib.resources import files
    >>> load_model(files("kvlib.reference")).num_parameters
    3508992
    """
    xp = library(xp)
    dtype = _floating(dtype, xp)
    try:
        folder = os.fsdecode(folder)
    except TypeError:
        raise TypeError(f"folder must be a path, got {folder!r}") from None
    if not os.path.isdir(folder):
        on_hub = re.fullmatch(r"[\w.-]+/[\w.-]+", folder)
        raise CheckpointError(f"{words.path(folder)}: no such folder{FETCH if on_hub else ''}")
    config = ModelConfig.from_folder(folder)
    tensors = open_tensors(folder, config)
    config, plan = _heads(config, tensors, folder)
    text = load_tokenizer(folder, config.vocab_size) if tokenizer else None
    weights = copy_weights(config, plan, tensors, dtype, xp)
    return Decoder(config, weights, tokenizer=text)


class Source(NamedTuple):
    """A tensor of the file, its shape there, where its rows go, how they are converted or None."""

    name: str
    shape: tuple[int, ...]
    row: int
    convert: Callable[[np.ndarray, ModelConfig], np.ndarray] | None = None


def sources(config: ModelConfig) -> dict[str, list[Source]]:
    """Return our weight's name -> the tensors stacked in it: one or several (q, k, v; gate, up)."""
    names = family(config.model_type).names
    stacked: dict[str, list[Source]] = {}
    for ours, weight in model_weights(config).items():
        *path, part, kind = ours.split(".")
        place = f"{names.layers}.{path[1]}." if path else ""
        if (one := names.whole(part, kind)) is not None:
            in_file = one.shape(weight.shape, config)
            stacked[ours] = [Source(place + one.tensor, in_file, 0, one.rows)]
            continue
        row, stacked[ours] = 0, []
        for theirs, rows in weight.tensors.items():
            name = f"{place}{names.respell(theirs)}.{kind}"
            convert = names.reordered.get(theirs)
            stacked[ours].append(Source(name, (rows, *weight.shape[1:]), row, convert))
            row += rows
    return stacked


def open_tensors(folder: str, config: ModelConfig) -> Tensors:
    """Return every tensor of the folder by its name without prefix; only headers are read."""
    tensors: Tensors = {}
    spelling = family(config.model_type).names
    prefix = spelling.prefix  # checkpoints of the bare model leave it out
    for file, names in weights_files(folder):
        for name in names:
            short = name
            for theirs, ours in spelling.aliases:
                short = short.replace(theirs, ours)
            short = short.removeprefix(prefix)
            if short in tensors:
                other, its_name = tensors[short]
                where = words.path(os.path.basename(other.path))
                raise CheckpointError(
                    f"{file.shown}: tensor {words.shown(name)} is {words.shown(its_name)} of "
                    f"{where} again"
                )
            tensors[short] = file, name
    return tensors


def _heads(
    config: ModelConfig, tensors: Tensors, folder: str
) -> tuple[ModelConfig, dict[str, list[Source]]]:
    """Return the config and its plan, untied if the files' head differs from the embedding."""
    untied = replace(config, tie_word_embeddings=False)
    (head,) = sources(untied)[HEAD]
    if not config.tie_word_embeddings or head.name not in tensors:
        return config, assign(config, tensors, folder)
    plan = assign(untied, tensors, folder)
    (table,) = plan["embed.weight"]
    if not _same(tensors[head.name], tensors[table.name]):
        return untied, plan
    del plan[HEAD]
    return config, plan


def _same(one: tuple[SafetensorsFile, str], other: tuple[SafetensorsFile, str]) -> bool:
    """Whether two tensors of one shape hold the same numbers, whatever their types."""
    for start in range(0, one[0].tensors[one[1]].shape[0], ROWS):
        a, b = (
            widen_bfloat16(rows) if file.tensors[name].dtype == "BF16" else rows
            for file, name in (one, other)
            for rows in [file.stored(name)[start : start + ROWS]]
        )
        if not np.array_equal(a, b):
            return False
    return True


def assign(config: ModelConfig, tensors: Tensors, folder: str) -> dict[str, list[Source]]:
    """Return our weights' sources; CheckpointError for a tensor missing, misshapen or unused."""
    plan = sources(config)
    needed = {source.name: source for parts in plan.values() for source in parts}
    spelling, kinds = family(config.model_type).names, dict[str, str]()
    for name, source in [*needed.items()]:
        if len(source.shape) == 3 and name + PACKED[0] in tensors:
            count, width, rows = needed.pop(name).shape
            shape = (count, rows, width // 32)
            for end, sizes in zip(PACKED, ((*shape, 16), shape), strict=True):
                needed[name + end], kinds[name + end] = Source(name + end, sizes, 0), "U8"
            continue
        file, in_file = tensors.get(name, (None, ""))
        in_layer = name.startswith(f"{spelling.layers}.") and len(source.shape) == 2
        if file and file.tensors[in_file].dtype == FP8 and in_layer:
            scale = scale_of(source, tensors)
            kinds[name], needed[scale.name] = FP8, scale
    for name, source in needed.items():
        if name not in tensors:
            raise CheckpointError(
                f"{words.path(weights_file(folder))}: tensor "
                f"{full_name(config, name, tensors)!r} is missing, needed: {source.shape}"
            )
        file, in_file = tensors[name]
        info = file.tensors[in_file]
        if info.shape != source.shape:
            raise CheckpointError(
                f"{file.shown}: tensor {in_file!r} has shape {words.shown(info.shape)}, needed: "
                f"{source.shape}"
            )
        allowed = (kinds[name],) if name in kinds else FLOATS
        if info.dtype not in allowed:
            raise CheckpointError(
                f"{file.shown}: tensor {in_file!r} is {info.dtype}, needed: {', '.join(allowed)}"
            )
    layers = str(config.num_hidden_layers)
    buffers = spelling.buffers.replace("LAYERS", layers) + (f"|{OF_ACTIVATIONS}" if kinds else "")
    for name, (file, in_file) in tensors.items():
        if name not in needed and not re.fullmatch(buffers, name):
            raise CheckpointError(
                f"{file.shown}: tensor {words.shown(in_file)} has no place in a "
                f"{config.model_type} model as config.json describes it"
            )
    return plan


def full_name(config: ModelConfig, name: str, tensors: Tensors) -> str:
    """Return a tensor's name as these files would spell it: with the prefix, if others have it."""
    prefix = family(config.model_type).names.prefix
    prefixed = any(in_file.startswith(prefix) for _, in_file in tensors.values())
    (head,) = sources(replace(config, tie_word_embeddings=False))[HEAD]
    return prefix + name if prefixed and name != head.name else name


def copy_weights(
    config: ModelConfig, plan: Mapping[str, list[Source]], tensors: Tensors, dtype: Any, xp: Any
) -> dict[str, Any]:
    """Copy the weights, tensor by tensor, from the mapped files into one allocation."""
    weights = allocate(weight_shapes(config), dtype, xp)
    jobs = [(weights[ours], source) for ours, parts in plan.items() for source in parts]
    infos = [file.tensors[name] for file, name in tensors.values()]
    total = sum(info.stop - info.start for info in infos)
    shown = None if total >= LONG else False
    with bar(shown, len(jobs), unit="tensor", what="reading weights") as progress:
        for weight, source in jobs:
            values = read(source, tensors)
            if source.convert is not None:
                values = source.convert(values, config)
                if values.shape not in (weight.shape, source.shape):
                    raise ValueError(
                        f"the conversion of {source.name!r} in {config.model_type} gave shape "
                        f"{values.shape}, needed: {weight.shape}"
                    )
            rows = weight[source.row : source.row + values.shape[0], ...]
            if rows.dtype == xp.uint16:
                values = BFloat16().encode(values)["codes"]
            if has_views(xp):  # NumPy and CuPy convert as they assign, and know float16
                rows[...] = xp.asarray(values)
            else:
                wide = np.float64 if values.dtype.itemsize == 8 else np.float32
                rows[...] = xp.astype(xp.asarray(np.array(values, dtype=wide)), rows.dtype)
            progress.update()
    return weights


def read(source: Source, tensors: Tensors) -> np.ndarray:
    """Return the numbers of a source's tensor: float32 if they are in fewer than 16 bits."""
    if source.name not in tensors:
        blocks, exponents = (
            file.read(name) for file, name in (tensors[source.name + end] for end in PACKED)
        )
        return from_mxfp4(blocks, exponents)
    file, name = tensors[source.name]
    values = file.read(name)
    if file.tensors[name].dtype == FP8:
        scales, in_file = tensors[scale_of(source, tensors).name]
        return dequantised(values, scales.read(in_file))
    return values


def from_mxfp4(blocks: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """Codes (E, out, in / 32, 16), the lower half first, and exponents → (E, in, out), float32.

    The format: OCP Microscaling Formats (MX), version 1.0, 2023.
    """
    experts, rows, groups = exponents.shape
    values = np.empty((experts, rows, groups * 32), np.float32)
    for expert, codes, powers in zip(values, blocks, exponents, strict=True):
        numbers = FP4[np.stack([codes & 15, codes >> 4], axis=-1)].reshape(rows, groups, 32)
        scaled = np.ldexp(numbers, powers[..., None].astype(np.int32) - 127)
        expert[...] = scaled.reshape(rows, -1)
    return values.transpose(0, 2, 1)


def scale_of(source: Source, tensors: Tensors) -> Source:
    """Return what a matrix in fp8 is multiplied by: one number, or one for each of its blocks."""
    name = next((n for n in (source.name + end for end in SCALES) if n in tensors), None)
    shape = tuple(-(-n // BLOCK) for n in source.shape)
    if name is not None:
        file, in_file = tensors[name]
        stored = file.tensors[in_file].shape
        shape = stored if stored in ((), (1,)) else shape
    return Source(name or source.name + SCALES[0], shape, 0)


def dequantised(codes: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """e4m3 codes (out, in), and one scale or those of the blocks → float32"""
    values = np.empty(codes.shape, np.float32)
    rows = [scale] if scale.ndim < 2 else np.repeat(scale, BLOCK, axis=1)[:, : codes.shape[1]]
    for i in range(0, codes.shape[0], BLOCK):
        part = Fp8("e4m3").decode({"codes": codes[i : i + BLOCK]}, np.float32)
        values[i : i + BLOCK] = part * rows[i // BLOCK % len(rows)]
    return values


def _floating(dtype: Any, xp: Any) -> Any:
    """`dtype` as one of the namespace's floating-point types."""
    known = {n: getattr(xp, n) for n in ("float32", "float64", "float16") if hasattr(xp, n)}
    if isinstance(dtype, str) and dtype == "bfloat16":
        return xp.uint16
    for name, candidate in known.items():
        if dtype is None or dtype == (name if isinstance(dtype, str) else candidate):
            return candidate
    raise TypeError(
        f'dtype is {dtype!r}, needed: one of {", ".join(known)} of {xp.__name__}, or "bfloat16"'
    )


MOST_TENSORS, MOST_SHARDS = 120_000, 2_000  # DeepSeek-V3 (58 layers of 256 experts, fp8): 92,000
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def weights_file(folder: str) -> str:
    """model.safetensors or, where there is none, the index of the shards."""
    for name in (SINGLE, INDEX):
        if os.path.lexists(path := os.path.join(folder, name)):
            return path
    raise CheckpointError(f"{words.path(folder)}: no weights, needed: {SINGLE} or {INDEX}")


def weights_files(folder: str) -> Iterator[tuple[SafetensorsFile, Iterable[str]]]:
    """The folder's safetensors files, each with the names of its tensors."""
    path = weights_file(folder)
    if path.endswith(SINGLE):
        file = SafetensorsFile(path)
        yield file, file.tensors
        return
    for shard, listed in _shards(path).items():
        file = SafetensorsFile(os.path.join(folder, shard))
        if absent := listed - file.tensors.keys():
            name = words.shown(min(absent))
            raise CheckpointError(
                f"{file.shown}: tensor {name} is missing; {INDEX} says it is here"
            )
        if unlisted := file.tensors.keys() - listed:
            name = words.shown(min(unlisted))
            raise CheckpointError(
                f"{file.shown}: tensor {name} is here, but {INDEX} does not list it here"
            )
        yield file, sorted(listed)


def _shards(index: str) -> dict[str, set[str]]:
    """File name -> the tensors it holds, as the index says; every file is there."""
    where, folder = read_json(index).get("weight_map"), os.path.dirname(index)
    shown = words.path(index)
    if not isinstance(where, dict) or not where:
        raise CheckpointError(
            f"{shown}: weight_map is {words.stated(where)}, needed: tensor name -> file name"
        )
    if len(where) > MOST_TENSORS:
        raise CheckpointError(
            f"{shown}: weight_map has {len(where):,} tensors, needed: at most {MOST_TENSORS:,}"
        )
    if (count := len(set(map(str, where.values())))) > MOST_SHARDS:
        raise CheckpointError(
            f"{shown}: weight_map names {count:,} files, needed: at most {MOST_SHARDS:,}"
        )
    shards: dict[str, set[str]] = {}
    for name, shard in where.items():
        if not isinstance(shard, str) or not _is_name(shard):
            raise CheckpointError(
                f"{shown}: tensor {words.shown(name)} is in {words.stated(shard)}, needed: a file "
                "of this folder"
            )
        if shard not in shards and not os.path.exists(path := os.path.join(folder, shard)):
            raise CheckpointError(
                f"{words.path(path)}: no such file; {INDEX} says it holds tensor "
                f"{words.shown(name)}"
            )
        shards.setdefault(shard, set()).add(name)
    return shards


def _is_name(shard: str) -> bool:
    """Whether this can only be a file of the folder: a name, on any system, and no path."""
    outside = shard in ("", ".", "..") or any(mark in shard for mark in "/\\:")
    return not outside and shard.isprintable() and len(shard) <= 255
