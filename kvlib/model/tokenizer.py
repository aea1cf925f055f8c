"""Text to token ids and back: UTF-8 bytes, or a tokenizer.json."""

import operator
import os
from collections.abc import Sequence
from typing import Any, Protocol

from kvlib.config import words
from kvlib.config.json_files import open_file, read_json
from kvlib.errors import CheckpointError

MOST_BYTES = 200_000_000  # of a tokenizer.json, which another package reads
UNFINISHED = "\ufffd"  # what decoding puts where a character's bytes are incomplete or wrong


class Tokenizer(Protocol):
    """What generation and the chapters need of a tokenizer."""

    def encode(self, text: str) -> list[int]: ...
    def decode(self, ids: Sequence[int]) -> str: ...
    def stream(self) -> "TextStream":
        return TextStream(self)


class ByteTokenizer(Tokenizer):
    """Token id = value of the UTF-8 byte; 256 ids. Nothing is added at either end."""

    vocab_size = 256

    def encode(self, text: str) -> list[int]:
        """Any text -> its bytes. A lone surrogate, which UTF-8 cannot hold, becomes "?"."""
        return list(_text(text).encode("utf-8", errors="replace"))

    def decode(self, ids: Sequence[int]) -> str:
        """Bytes -> text; U+FFFD for what is no UTF-8 or not yet complete. ValueError beyond 255."""
        values = [operator.index(one) for one in ids]
        for place, value in enumerate(values):
            if not 0 <= value < 256:
                raise ValueError(f"token {place} is {value}, needed: a byte, 0 to 255")
        return bytes(values).decode("utf-8", errors="replace")


class JsonTokenizer(Tokenizer):
    """A ``tokenizer.json``, read by `tokenizers` on first use, with its special tokens."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._loaded: Any = None

    @property
    def _tokenizer(self) -> Any:
        if self._loaded is None:
            try:
                from tokenizers import Tokenizer as Loader
            except ImportError as error:
                raise ImportError(
                    f"reading {self.path} needs the package tokenizers: "
                    'pip install "kvlib[checkpoints]" (token ids work without it)'
                ) from error
            try:
                self._loaded = Loader.from_file(self.path)
            except Exception as error:  # the package raises bare Exception
                raise self._error("not a tokenizer", error) from None
        return self._loaded

    def encode(self, text: str) -> list[int]:
        tokenizer, text = self._tokenizer, _text(text)
        try:
            return list(tokenizer.encode(text).ids)
        except Exception as error:  # a file that names an unknown token which it has not
            raise self._error("cannot encode", error) from None

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode([operator.index(one) for one in ids])

    def _error(self, what: str, error: Exception) -> CheckpointError:
        return CheckpointError(f"{words.path(self.path)}: {what} ({words.fault(error)})")


class TextStream:
    """Tokens in, text out as soon as it is certain: not while it ends in U+FFFD.

    `push` returns the new text (often empty), `finish` the rest. Each push decodes the last piece
    again, because some tokenizers treat the first token of a text apart.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []  # the last piece told, and what came after it
        self._told = 0  # how many of them have been told

    def push(self, token: int) -> str:
        """The text that is certain now and was not before."""
        self._ids.append(operator.index(token))
        return self._tell(certain=False)

    def finish(self) -> str:
        """Return the text that was still held back."""
        return self._tell(certain=True)

    def _tell(self, certain: bool) -> str:
        before = self._tokenizer.decode(self._ids[: self._told])
        text = self._tokenizer.decode(self._ids)
        if len(text) == len(before) or (text.endswith(UNFINISHED) and not certain):
            return ""
        self._ids = self._ids[self._told :]
        self._told = len(self._ids)
        return text[len(before) :]


def load_tokenizer(
    folder: str | os.PathLike[str], vocab_size: int | None = None
) -> Tokenizer | None:
    """The folder's tokenizer, the byte tokenizer before tokenizer.json; None where it has none."""
    stated = os.path.join(folder, "tokenizer_config.json")
    if os.path.lexists(stated) and read_json(stated).get("tokenizer_class") == "ByteTokenizer":
        if vocab_size is not None and vocab_size < ByteTokenizer.vocab_size:
            raise CheckpointError(
                f"{words.path(stated)}: tokenizer_class is 'ByteTokenizer', which needs "
                f"vocab_size 256 in config.json; it is {vocab_size}"
            )
        return ByteTokenizer()
    path = os.path.join(folder, "tokenizer.json")
    if not os.path.lexists(path):
        return None
    with open_file(path) as file:  # refuses a pipe or a broken link now, not when text is asked for
        size = os.fstat(file.fileno()).st_size
    if size > MOST_BYTES:
        raise CheckpointError(f"{words.path(path)}: {size:,} bytes, needed: at most {MOST_BYTES:,}")
    return JsonTokenizer(path)


def _text(text: object) -> str:
    if not isinstance(text, str):
        raise TypeError(f"text is a {type(text).__name__}, needed: a string")
    return text
