"""What a retention rule is: it says which tokens of a request a layer keeps."""

from typing import Any

import numpy as np

from kvlib.arguments import LARGEST, check_integer
from kvlib.caches.spec import LayerSpec


class Retention:
    """Says which tokens a layer keeps. ``plan`` applies it, then makes room for the new tokens.

    Write `first` if the rule keeps all tokens from some position on, and `kept` otherwise; `room`,
    if the rows of a DenseCache can be shorter. Equal rules share block tables, so make them frozen
    dataclasses. Closing holes copies tokens that stay. So dropped tokens wait until they are at
    least as many as have to be copied, or ``every`` tokens if the rule sets it.

    >>> class EvenPositions(Retention):
    ...     def kept(self, positions, length):
    ...         return positions % 2 == 0
    >>> EvenPositions().kept(np.arange(5), length=5).tolist()
    [True, False, True, False, True]
    """

    holes = False  # whether tokens between others may be freed: True where a rule writes `kept`
    every: int | None = None  # how many tokens gather before they are freed; None: see above
    per_layer = False  # whether each layer chooses its own tokens, and so has its own table

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "kept" in vars(cls) and "holes" not in vars(cls):
            cls.holes = True  # a cache calls `kept` only if this is set

    def first(self, length: int) -> int:
        """Return the first position that must stay when the next token is at `length`."""
        return 0

    def kept(self, positions: np.ndarray, length: int) -> np.ndarray:
        """Return which tokens at positions (n,) int64 stay, (n,) bool, before position `length`."""
        return positions >= self.first(length)

    def check(self, spec: LayerSpec) -> None:
        """Refuse a layer that the rule doesn't fit, when the cache is built."""

    def room(self, max_seq_len: int) -> int:
        """Return how long a DenseCache's rows are: what stays, what gathers, and one token more."""
        return max_seq_len


def first_kept(rule: Retention, length: int) -> int:
    """Return ``rule.first(length)`` as a position from 0 to `length`; ValueError for no integer."""
    first = rule.first(length)
    if type(first) is not int:
        first = check_integer(f"first of {rule!r}", first, -LARGEST)
    return min(max(first, 0), length)


def freed_by(rule: Retention, freed: int, final_length: int, num_paged: int, multiple: int) -> int:
    """Return how many first tokens a rule frees, of which `freed` are no longer stored; of those in
    pages a multiple of `multiple`. final_length, num_paged: as in `Ask`."""
    if rule.holes:  # its tokens are freed one by one
        return freed
    first = first_kept(rule, final_length)
    return freed if first <= freed else max(freed, min(first, num_paged) // multiple * multiple)


def with_spare_room(kept: int) -> int:
    """Return the length of a row for `kept` tokens: a quarter longer, and at least one token."""
    return kept + max(1, kept // 4)
