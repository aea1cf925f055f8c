"""A drafter that knows the text and errs on purpose, for measurements."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from kvlib.arguments import check_integer, check_seed, describe, number
from kvlib.caches.trees import Parents
from kvlib.serve.prompts import token_ids
from kvlib.speculation.draft import (
    Draft,
    Drafter,
    Text,
    check_texts,
    check_tree,
    children,
    ranks,
    renumbered,
)
from kvlib.speculation.gain import check_chances


class Rehearsed(Drafter):
    """Guess from texts that are known beforehand, and be right with a chosen probability.

    texts        what a run without guesses gave: prompt and new tokens, by the request's name
    acceptance   the probability that a guess is right, whatever the others are. For a tree, a list:
                 the probabilities that the first sibling is right, that the second is, and so on
    vocabulary   wrong guesses are other ids from 0 ... vocabulary − 1
    tree         the parents of a tree of guesses; a chain unless given

    >>> drafter = Rehearsed({"a": [1, 2, 3, 4, 5]}, acceptance=1.0, vocabulary=10)
    >>> drafter.draft([Text("a", [1, 2, 3], most=2)])[0].tokens
    [4, 5]
    """

    def __init__(
        self,
        texts: Mapping[Hashable, Sequence[int]],
        acceptance: float | Sequence[float],
        vocabulary: int,
        seed: int = 0,
        *,
        tree: Sequence[int] | None = None,
    ) -> None:
        if not isinstance(acceptance, float | int | np.number):
            self._chances = check_chances(acceptance)
        elif 0 <= number(acceptance) <= 1:
            self._chances = [number(acceptance)]
        else:
            raise ValueError(f"acceptance must be 0 ... 1, got {describe(acceptance)}")
        if tree is None and len(self._chances) > 1:
            raise ValueError(
                "acceptance must be one probability for a chain, and a list for a tree; got "
                f"{describe(acceptance)} and no tree"
            )
        self.tree = None if tree is None else check_tree("tree", tree)
        widest = max(ranks(self.tree or ()), default=0) + 1
        if not isinstance(texts, Mapping):
            raise TypeError(
                f"texts must be a mapping from names to token ids, got {describe(texts)}"
            )
        self.texts = {n: token_ids(f"text {describe(n)}", t) for n, t in texts.items()}
        self.vocabulary = check_integer("vocabulary", vocabulary, widest + 1)
        self._rng = np.random.default_rng(check_seed("seed", seed))

    def draft(self, texts: Sequence[Text]) -> list[Draft]:
        check_texts(texts)
        if self.tree is None:
            return [self._chain(text) for text in texts]
        return [self._tree(text, self.tree[: text.most]) for text in texts]

    def _right(self, text: Text) -> Sequence[int]:
        at = len(text.tokens)
        return self.texts.get(text.name, ())[at : at + text.most]

    def _chain(self, text: Text) -> Draft:
        right = self._right(text)
        wrong = self._rng.random(len(right)) >= self._chances[0]
        shifts = self._rng.integers(1, self.vocabulary, len(right))
        guesses = [
            int((t + s) % self.vocabulary) if w else int(t)
            for t, s, w in zip(right, shifts, wrong, strict=True)
        ]
        return Draft(guesses)

    def _tree(self, text: Text, tree: Parents) -> Draft:
        """Along the right path, one sibling is right or none; other guesses are any tokens."""
        after, made = children(tree), dict[int, int]()
        level, path = [-1], [-1]
        for token in self._right(text):
            below = [after.get(at, []) for at in level]
            for siblings in below:
                shifts = 1 + self._rng.permutation(self.vocabulary - 1)
                made.update(zip(siblings, ((token + shifts) % self.vocabulary).tolist()))
            if path[-1] in level:
                siblings = below[level.index(path[-1])]
                sums = np.cumsum(self._chances)
                rank = int(np.searchsorted(sums, self._rng.random(), side="right"))
                if rank < min(len(siblings), len(sums)):
                    made[siblings[rank]] = int(token)
                    path.append(siblings[rank])
            level = [j for siblings in below for j in siblings]
        numbers = sorted(made)
        return Draft([made[j] for j in numbers], parents=renumbered(tree, numbers))
