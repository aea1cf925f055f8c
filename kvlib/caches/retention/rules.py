"""The rules that keep tokens by position: all, a window, or the first ones and a window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvlib.arguments import check_integer
from kvlib.caches.retention.base import Retention, with_spare_room


@dataclass(frozen=True)
class KeepAll(Retention):
    """Every token stays until its request is truncated or freed.

    >>> KeepAll().first(length=1000)
    0
    """


@dataclass(frozen=True)
class Window(Retention):
    """Keep the newest `size` tokens, the query's own included: a sliding window (arXiv:2310.06825).

    >>> Window(4).first(length=10)  # the token at 10 sees 7, 8, 9 and itself
    7
    """

    size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", check_integer("size", self.size))

    def first(self, length: int) -> int:
        return max(0, length - self.size + 1)

    def room(self, max_seq_len: int) -> int:
        # So that a row's tokens move to its front once in size / 4 steps.
        return min(max_seq_len, with_spare_room(self.size) - 1)


@dataclass(frozen=True)
class Sinks(Retention):
    """Keep the first `first_tokens` tokens and the newest `recent`, the query's own included.

    Models put much attention on the first tokens of a text, whatever these say (StreamingLLM,
    arXiv:2309.17453). Tokens keep their positions. every: how many old tokens gather first.

    >>> Sinks(2, 3).kept(np.arange(9), length=9).nonzero()[0].tolist()  # the query is at 9
    [0, 1, 7, 8]
    """

    first_tokens: int
    recent: int
    every: int = 1

    def __post_init__(self) -> None:
        for name, least in (("first_tokens", 0), ("recent", 1), ("every", 1)):
            object.__setattr__(self, name, check_integer(name, getattr(self, name), least))

    def kept(self, positions: np.ndarray, length: int) -> np.ndarray:
        return (positions < self.first_tokens) | (positions > length - self.recent)

    def room(self, max_seq_len: int) -> int:
        kept = self.first_tokens + self.recent - 1 + self.every - 1
        return min(max_seq_len, with_spare_room(kept))
