"""A drafter that knows the text and errs on purpose, for measurements."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from kvlib.arguments import check_integer, check_seed, describe, number
from kvlib.speculation.draft import Draft, Drafter, Text


class Rehearsed(Drafter):
    """Guess what was written before, each token right with the same probability.

    texts        what a run without guesses gave: prompt and new tokens, by the request's name
    acceptance   the probability that a guess is right, whatever the others are
    vocabulary   wrong guesses are other ids from 0 ... vocabulary − 1

    Because you choose the acceptance, you can compare what guessing gains with the formulas of
    `expected_tokens` and `speed_up`.

    >>> drafter = Rehearsed({"a": [1, 2, 3, 4, 5]}, acceptance=1.0, vocabulary=10)
    >>> drafter.draft([Text("a", [1, 2, 3], most=2)])[0].tokens
    [4, 5]
    """

    def __init__(
        self,
        texts: Mapping[Hashable, Sequence[int]],
        acceptance: float,
        vocabulary: int,
        seed: int = 0,
    ) -> None:
        self.acceptance = number(acceptance)
        if not 0 <= self.acceptance <= 1:
            raise ValueError(f"acceptance must be 0 ... 1, got {describe(acceptance)}")
        self.texts, self.vocabulary = dict(texts), check_integer("vocabulary", vocabulary, 2)
        self._rng = np.random.default_rng(check_seed("seed", seed))

    def draft(self, texts: Sequence[Text]) -> list[Draft]:
        return [Draft(self._guess(text)) for text in texts]

    def _guess(self, text: Text) -> list[int]:
        at = len(text.tokens)
        right = self.texts.get(text.name, ())[at : at + text.most]
        wrong = self._rng.random(len(right)) >= self.acceptance
        shifts = self._rng.integers(1, self.vocabulary, len(right))
        return [
            int((t + s) % self.vocabulary) if w else int(t)
            for t, s, w in zip(right, shifts, wrong, strict=True)
        ]
