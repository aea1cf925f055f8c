"""JSON files, and where a config.json is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kvlib.errors import CheckpointError


def read_json(path: str | Path) -> dict[str, Any]:
    """The object in a JSON file. Raises CheckpointError where there is none to read."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError(f"{path}: no such file") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not JSON in UTF-8 ({error})") from None
    if not isinstance(data, dict):
        raise CheckpointError(f"{path}: holds a {type(data).__name__}, needed: a JSON object")
    return data


def config_file(path: Path) -> Path:
    """The file itself, or config.json in the folder."""
    try:
        return path / "config.json" if path.is_dir() else path
    except OSError as error:  # a name that no file can have
        shown = str(path) if len(str(path)) <= 60 else f"{str(path)[:57]}..."
        raise CheckpointError(f"{shown}: cannot be read ({error.strerror})") from None
