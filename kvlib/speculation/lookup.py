"""Guesses without a model: from the text itself, and from known texts, for measurements."""

from collections.abc import Hashable, Mapping, Sequence
from itertools import product

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
