"""The guesses of a draft model for one text, while it makes them level by level."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvlib.arrays import Array, to_numpy
from kvlib.caches.trees import Parents, depths
from kvlib.serve.distribution import greedy, probabilities
from kvlib.serve.sampling import rng_at
from kvlib.speculation.acceptance import DRAFTED, inverse
from kvlib.speculation.draft import Draft, Text
from kvlib.speculation.tree import followers


class Writing:
    """The guesses for one text.

    tree     the parents of the guesses to make, of which the first ``text.most`` are made
    made     number of a guess in the tree → its token; some are missing if the small model gives
             only few tokens a probability
    level    the guesses after which the next ones stand, −1 for the text
    """

    def __init__(self, text: Text, tree: Parents) -> None:
        self.text, self.tree = text, tree[: text.most]
        self.made: dict[int, int] = {}
        self.level = [-1] if self.tree else []
        self._q: dict[int, np.ndarray] = {}
        self._after = followers(self.tree)
        self._depths = depths(self.tree)

    def fed(self) -> tuple[list[int], Parents, list[int]]:
        """What the small model has to read before the next level: guesses, and their parents.

        The third list says how far from the end of its rows those of this level are: 1 the last.
        """
        read = [j for j in sorted(self.made) if j in self._after]
        place = {j: len(read) - i for i, j in enumerate(read)}
        behind = [place.get(j, 1) for j in self.level]
        return [self.made[j] for j in read], renumbered(self.tree, read), behind

    def draw(self, logits: Array) -> None:
        """Add the next level, from logits (guesses of this level, V)."""
        text = self.text
        after = [self._after[at] for at in self.level]
        if text.temperature:
            q = probabilities(logits, text.temperature, text.top_k, text.top_p)
            numbers = self._numbers(after)
        else:
            likely = likeliest(logits, max(map(len, after)))
        self.level = []
        for row, siblings in enumerate(after):
            if text.temperature:
                tokens = without_replacement(q[row], [numbers[j] for j in siblings])
                self._q.update(dict.fromkeys(siblings[: len(tokens)], q[row]))
            else:
                tokens = likely[row]
            for j, token in zip(siblings, tokens):  # maybe fewer tokens than places
                self.made[j] = token
                if j in self._after:
                    self.level.append(j)

    def _numbers(self, after: Sequence[Sequence[int]]) -> dict[int, float]:
        """Guess → its random number. Each guess of a level has a stream of its own."""
        depth = self._depths[after[0][0]]
        level = [j for j, other in enumerate(self._depths) if other == depth]
        at = len(self.text.tokens) + depth
        wanted = {j for siblings in after for j in siblings}
        return {
            j: rng_at(self.text.seed, at, DRAFTED + 2 * k).random()
            for k, j in enumerate(level)
            if j in wanted
        }

    def draft(self) -> Draft:
        """The guesses made so far."""
        numbers = sorted(self.made)
        tokens = [self.made[j] for j in numbers]
        q = np.stack([self._q[j] for j in numbers]) if self._q else None
        return Draft(tokens, q, renumbered(self.tree, numbers))


def renumbered(tree: Parents, numbers: Sequence[int]) -> Parents:
    """The parents of some guesses, numbered anew; with a guess, its parent must be among them."""
    new = {j: i for i, j in enumerate(numbers)}
    return tuple(new[tree[j]] if tree[j] >= 0 else -1 for j in numbers)


def without_replacement(q: np.ndarray, numbers: Sequence[float]) -> list[int]:
    """Tokens drawn from q (V,) one after the other, each different: fewer if q has no more."""
    left, found = q, list[int]()
    for number in numbers:
        if found:
            left = left.copy() if left is q else left
            left[found[-1]] = 0
            if not left.any():
                break
        found.append(inverse(left, number))
    return found


def likeliest(logits: Array, n: int) -> list[list[int]]:
    """The n likeliest tokens of each row of logits (B, V), the lowest id first among equals."""
    found = [[token] for token in greedy(logits)]
    if n > 1:
        x = to_numpy(logits).astype(np.float64)
        for _ in range(n - 1):
            for row, tokens in zip(x, found):
                row[tokens[-1]] = -np.inf
                best = int(row.argmax())
                tokens += [best] if row[best] > -np.inf else []
    return found
