"""The training text: the running Python's standard library, some modules held out."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

SEPARATOR = b"\0"

# Well known, diverse, and without a sibling in the library that is nearly the same text
# (gzip/bz2/lzma or wave/aifc/sunau would be such siblings).
HELD_OUT = (
    "bisect.py",
    "colorsys.py",
    "configparser.py",
    "csv.py",
    "fractions.py",
    "graphlib.py",
    "heapq.py",
    "html/parser.py",
    "json/decoder.py",
    "queue.py",
    "shlex.py",
    "textwrap.py",
)

# Not source a person wrote for reading: packages of others, tests, tables, generated text.
_SKIP_FOLDERS = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__", "encodings"}
)
_SKIP_PREFIXES = ("_sysconfigdata", "__phello__")
_SKIP_FILES = frozenset({"pydoc_data/topics.py"})


def is_corpus_file(relative: PurePosixPath) -> bool:
    """Whether a path below the library's folder belongs to the corpus (held-out ones do too)."""
    folders = relative.parts[:-1]
    return (
        relative.suffix == ".py"
        and not _SKIP_FOLDERS.intersection(folders)
        and not any(part.startswith("config-") for part in folders)
        and not any(part.startswith(_SKIP_PREFIXES) for part in relative.parts)
        and relative.as_posix() not in _SKIP_FILES
    )


def read_corpus(root: Path | None = None) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Training and held-out modules, ``name -> source``, each in order of name.

    Raises:
        ValueError: a held-out module is missing from ``root``.
    """
    folder = Path(sysconfig.get_path("stdlib")) if root is None else root
    train: dict[str, bytes] = {}
    held: dict[str, bytes] = {}
    for path in sorted(_python_files(folder)):
        relative = PurePosixPath(path.relative_to(folder).as_posix())
        if not is_corpus_file(relative):
            continue
        text = path.read_bytes().replace(b"\r\n", b"\n").replace(SEPARATOR, b"")
        if text.strip():
            (held if relative.as_posix() in HELD_OUT else train)[relative.as_posix()] = text
    missing = [name for name in HELD_OUT if name not in held]
    if missing:
        raise ValueError(f"held-out modules {missing} are missing in {folder}")
    return train, held


def _python_files(folder: Path) -> Iterator[Path]:
    """Python files below ``folder``, without a look into folders that are skipped."""
    for here, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _SKIP_FOLDERS]
        yield from (Path(here, name) for name in files if name.endswith(".py"))


def join(modules: dict[str, bytes]) -> bytes:
    """All modules in one text, byte 0 before each."""
    return b"".join(SEPARATOR + text for text in modules.values())


def shared_line_share(train: dict[str, bytes], text: bytes, least: int = 25) -> float:
    """Share of ``text``'s longer lines that are also, word for word, in a training module."""
    seen = {line.strip() for module in train.values() for line in module.splitlines()}
    lines = [s for line in text.splitlines() if len(s := line.strip()) >= least]
    return sum(line in seen for line in lines) / len(lines) if lines else 0.0
