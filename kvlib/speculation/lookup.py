"""Guesses without a model: what followed the same words earlier in the text."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import product

from kvlib.arguments import check_integer
from kvlib.speculation.draft import Draft, Drafter, Text, check_texts

Ngram = tuple[int, ...]


class PromptLookup(Drafter):
    """Look up where the text's last tokens occurred before, and guess what followed there.

    longest, shortest   how many of the last tokens must be the same, at most and at least. The
                        longest match wins, and of equally long ones the latest.
    places              how many matches to use. Where their continuations differ, the guesses are a
                        tree that offers all of them, level by level, up to `most` guesses.

    Prompt lookup decoding, in transformers' ``generate`` since 4.37 and in vLLM as "ngram".

    >>> drafter = PromptLookup(shortest=1, places=2)
    >>> draft = drafter.draft([Text("a", [1, 2, 3, 1, 2, 4, 1], most=4)])[0]
    >>> draft.tokens, draft.parents  # 2 4 1 or 2 3 1: after 2, both are tried
    ([2, 4, 3, 1], (-1, 0, 0, 1))
    """

    def __init__(self, longest: int = 5, shortest: int = 2, places: int = 1) -> None:
        self.shortest = check_integer("shortest", shortest)
        self.longest = check_integer("longest", longest, self.shortest)
        self.places = check_integer("places", places)
        self._seen: dict[Hashable, tuple[dict[Ngram, tuple[int, ...]], int]] = {}

    def draft(self, texts: Sequence[Text]) -> list[Draft]:
        return [self._guess(text) for text in check_texts(texts)]

    def free(self, name: Hashable) -> None:
        self._seen.pop(name, None)

    def _guess(self, text: Text) -> Draft:
        tokens, ends = text.tokens, self._ends(text)
        matches = dict[int, None]()
        for n in range(min(self.longest, len(tokens) - 1), self.shortest - 1, -1):
            matches.update(dict.fromkeys(ends.get(tuple(tokens[-n:]), ())))
            if len(matches) >= self.places:
                break
        texts = [list(tokens[end : end + text.most]) for end in list(matches)[: self.places]]
        if len(texts) < 2:
            return Draft(texts[0] if texts else [])
        return merged(texts, text.most)

    def _ends(self, text: Text) -> dict[Ngram, tuple[int, ...]]:
        """Return, by n-gram, the positions after its last occurrences, the latest first."""
        ends, known = self._seen.get(text.name, ({}, 0))
        if known > len(text.tokens):  # a text never gets shorter: this is another one
            ends, known = {}, 0
        for end in range(max(known, self.shortest), len(text.tokens)):
            for n in range(self.shortest, min(self.longest, end) + 1):
                ngram = tuple(text.tokens[end - n : end])
                ends[ngram] = (end, *ends.get(ngram, ())[: self.places - 1])
        self._seen[text.name] = ends, len(text.tokens)
        return ends

    def __repr__(self) -> str:
        places = f", places={self.places}" * (self.places > 1)
        return f"PromptLookup(longest={self.longest}, shortest={self.shortest}{places})"


def merged(texts: Sequence[Sequence[int]], most: int) -> Draft:
    """Merge continuations into one tree of at most so many guesses, level by level."""
    guesses: dict[tuple[int, int], int] = {}  # (parent, token) → number
    at = [-1] * len(texts)
    for depth, i in product(range(max(map(len, texts))), range(len(texts))):
        if depth < len(texts[i]):
            guess = at[i], texts[i][depth]
            if guess not in guesses and len(guesses) == most:
                break
            at[i] = guesses.setdefault(guess, len(guesses))
    return Draft([token for _, token in guesses], parents=tuple(parent for parent, _ in guesses))
