"""The files that hold a checkpoint's weights: one, or several with an index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from kvlib.config.keys import read_json
from kvlib.errors import CheckpointError
from kvlib.model.safetensors import SafetensorsFile

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def weights_file(folder: Path) -> Path:
    """model.safetensors or, where there is none, the index of the shards."""
    for name in (SINGLE, INDEX):
        if (folder / name).is_file():
            return folder / name
    raise CheckpointError(f"{folder}: no weights, needed: {SINGLE} or {INDEX}")


def weights_files(folder: Path) -> Iterator[tuple[SafetensorsFile, Iterable[str]]]:
    """The folder's safetensors files, each with the names of its tensors."""
    path = weights_file(folder)
    if path.name == SINGLE:
        file = SafetensorsFile(path)
        yield file, file.tensors
        return
    for shard, listed in _shards(path).items():
        file = SafetensorsFile(folder / shard)
        if absent := listed - file.tensors.keys():
            raise CheckpointError(
                f"{file.path}: tensor {min(absent)!r} is missing; {INDEX} says it is here"
            )
        if unlisted := file.tensors.keys() - listed:
            raise CheckpointError(
                f"{file.path}: tensor {min(unlisted)!r} is here, but {INDEX} does not list it here"
            )
        yield file, sorted(listed)


def _shards(index: Path) -> dict[str, set[str]]:
    """File name -> the tensors it holds, as the index says; every file is there."""
    where = read_json(index).get("weight_map")
    if not isinstance(where, dict) or not where:
        raise CheckpointError(f"{index}: weight_map is {where!r}, needed: tensor name -> file name")
    shards: dict[str, set[str]] = {}
    for name, shard in where.items():
        if not isinstance(shard, str) or not shard or Path(shard).name != shard:
            raise CheckpointError(
                f"{index}: tensor {name!r} is in {shard!r}, needed: a file of this folder"
            )
        if not (index.parent / shard).is_file():
            raise CheckpointError(
                f"{index.parent / shard}: no such file; {INDEX} says it holds tensor {name!r}"
            )
        shards.setdefault(shard, set()).add(name)
    return shards
