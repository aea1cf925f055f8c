"""Which safetensors files a folder has: one, or several shards that an index names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from kvlib.config import words
from kvlib.config.door import read_json
from kvlib.errors import CheckpointError
from kvlib.model.safetensors import SafetensorsFile

MOST_TENSORS, MOST_SHARDS = 60_000, 2_000  # 58 layers of 256 experts (DeepSeek-V3) have 46,000
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
