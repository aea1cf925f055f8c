"""Which tokens of a request a layer keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kvlib.arguments import LARGEST, check_integer
from kvlib.caches.spec import LayerSpec


class Retention:
    """Says which tokens a layer keeps. ``plan`` applies it, then makes room for the new tokens.

    Write `first` if the rule keeps all tokens from some position on, and `kept` otherwise; `room`,
    if the rows of a DenseCache can be shorter. Equal rules share block tables, so make them frozen
    dataclasses. What stays is copied to close the holes: a request waits until it can drop as many
    tokens as have to move, or ``every`` tokens where a rule sets it.

    >>> class EvenPositions(Retention):
    ...     def kept(self, positions, length):
    ...         return positions % 2 == 0
    >>> EvenPositions().kept(np.arange(5), length=5).tolist()
    [True, False, True, False, True]
    """

    holes = False  # whether tokens between others may go: True where a rule writes `kept`
    every: int | None = None  # how many tokens gather before they are dropped; None: see above
    per_layer = False  # whether every layer chooses for itself, and so has a table of its own

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "kept" in vars(cls) and "holes" not in vars(cls):
            cls.holes = True  # no cache would ask it otherwise

    def first(self, length: int) -> int:
        """The first position that must stay when the next token stands at position `length`."""
        return 0

    def kept(self, positions: np.ndarray, length: int) -> np.ndarray:
        """Which of the tokens at positions (n,) int64 stay, (n,) bool, before position `length`."""
        return positions >= self.first(length)

    def check(self, spec: LayerSpec) -> None:
        """Refuse a layer that does not go with the rule, when the cache is built."""

    def room(self, max_seq_len: int) -> int:
        """How long a DenseCache's rows are: what stays, what may gather, and one token more."""
        return max_seq_len


def first_kept(rule: Retention, length: int) -> int:
    """Return ``rule.first(length)`` as a position from 0 to `length`; ValueError for no integer."""
    first = rule.first(length)
    if type(first) is not int:
        first = check_integer(f"first of {rule!r}", first, -LARGEST)
    return min(max(first, 0), length)


def freed_by(rule: Retention, freed: int, kept: int, settled: int, unit: int) -> int:
    """How many first tokens a rule needs no longer, in whole units of the `settled` in pages."""
    first = first_kept(rule, kept)
    return freed if first <= freed else max(freed, min(first, settled) // unit * unit)


def spare_tokens(held: int) -> int:
    """Tokens that a row has room for beside the `held` that stay: a quarter more."""
    return max(1, held // 4)


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
        return min(max_seq_len, self.size - 1 + spare_tokens(self.size))


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
        held = self.first_tokens + self.recent - 1 + self.every - 1
        return min(max_seq_len, held + spare_tokens(held))
