"""What a notebook prints: counted, its beginning kept, the rest dropped."""

from __future__ import annotations

import sys
from typing import Any


class Printed:
    """Stands in for sys.stdout and sys.stderr inside `with`; keeps the first `most` characters."""

    encoding, errors = "utf-8", "replace"

    def __init__(self, most: int) -> None:
        self.most, self.count, self._kept = most, 0, ""

    @property
    def text(self) -> str:
        """The characters that were kept."""
        return self._kept

    def write(self, text: str) -> int:
        self._kept += text[: max(0, self.most - len(self._kept))]
        self.count += len(text)
        return len(text)

    def flush(self) -> None:
        """Nothing waits."""

    def isatty(self) -> bool:
        return False

    def __enter__(self) -> Printed:
        self._before = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = self  # type: ignore[assignment]
        return self

    def __exit__(self, *error: Any) -> None:
        sys.stdout, sys.stderr = self._before
