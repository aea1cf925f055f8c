"""Guesses without a model: what followed the same words earlier in the text."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from kvlib.arguments import check_integer
from kvlib.speculation.draft import Draft, Drafter, Text

Ngram = tuple[int, ...]


class PromptLookup(Drafter):
    """Look up where the text's last tokens stood before, and guess what followed there.

    longest, shortest: how many of the last tokens must be the same, at most and at least; the
    longest match wins, and of several the latest. It works where a text repeats itself, as code
    and summaries do, and costs a few dictionary lookups per token (prompt lookup decoding, in
    transformers' ``generate`` since 4.37 and in vLLM as "ngram").

    >>> drafter = PromptLookup(longest=3, shortest=2)
    >>> drafter.draft([Text("a", [1, 2, 3, 4, 2, 3], most=4)])[0].tokens
    [4, 2, 3]
    """

    def __init__(self, longest: int = 5, shortest: int = 2) -> None:
        self.shortest = check_integer("shortest", shortest)
        self.longest = check_integer("longest", longest, self.shortest)
        self._seen: dict[Hashable, tuple[dict[Ngram, int], int]] = {}

    def draft(self, texts: Sequence[Text]) -> list[Draft]:
        return [Draft(self._guess(text)) for text in texts]

    def free(self, name: Hashable) -> None:
        self._seen.pop(name, None)

    def _guess(self, text: Text) -> list[int]:
        tokens, ends = text.tokens, self._noted(text)
        for n in range(min(self.longest, len(tokens) - 1), self.shortest - 1, -1):
            end = ends.get(tuple(tokens[-n:]))
            if end is not None:
                return list(tokens[end : end + text.most])
        return []

    def _noted(self, text: Text) -> dict[Ngram, int]:
        """Each run of tokens that has a token after it → where that token stands, the latest."""
        ends, known = self._seen.get(text.name, ({}, 0))
        if known > len(text.tokens):  # a text never gets shorter: this is another one
            ends, known = {}, 0
        for end in range(max(known, self.shortest), len(text.tokens)):
            for n in range(self.shortest, min(self.longest, end) + 1):
                ends[tuple(text.tokens[end - n : end])] = end
        self._seen[text.name] = ends, len(text.tokens)
        return ends

    def __repr__(self) -> str:
        return f"PromptLookup(longest={self.longest}, shortest={self.shortest})"
