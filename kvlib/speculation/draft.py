"""What a drafter is asked for, and what it answers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kvlib.arguments import describe, is_integer


class Text(NamedTuple):
    """A text to be continued.

    name                                that of its request
    tokens                              prompt and new tokens; from call to call it only grows
    most                                guess at most so many tokens
    temperature, top_k, top_p, seed     how the request draws its tokens

    >>> Text("a", [1, 2, 3], most=4).temperature
    0.0
    """

    name: Hashable
    tokens: Sequence[int]
    most: int
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Draft:
    """Guesses for the next tokens of a text.

    tokens   n ids
    q        (n, V) float64: the distribution from which each of them was drawn. None if they were
             not drawn, as by a lookup or a model that takes the likeliest token.

    >>> Draft([7, 8]).q is None
    True
    """

    tokens: Sequence[int] = ()
    q: np.ndarray | None = None

    def first(self, n: int) -> Draft:
        """Its first n guesses."""
        return Draft(self.tokens[:n], None if self.q is None else self.q[:n])


class Drafter:
    """Guesses how texts go on. A drafter of your own needs `draft`, and `free` if it keeps notes.

    A wrong guess costs time and changes no token.

    >>> class Repeat(Drafter):
    ...     def draft(self, texts):
    ...         return [Draft([text.tokens[-1]] * text.most) for text in texts]
    >>> Repeat().draft([Text("a", [1, 2], most=3)])[0].tokens
    [2, 2, 2]
    """

    def draft(self, texts: Sequence[Text]) -> list[Draft]:
        """Guess how each of the texts goes on; one Draft per text, of 0 to ``most`` tokens."""
        raise TypeError(f"{type(self).__name__} has no method draft(texts)")

    def free(self, name: Hashable) -> None:
        """Forget a text: its request has ended, or begins again."""


def asked(drafter: Any, texts: Sequence[Text], vocabulary: int) -> list[Draft]:
    """The drafts of a drafter, after refusing what is no draft of these texts."""
    drafts = drafter.draft(list(texts))
    who = type(drafter).__name__
    if not isinstance(drafts, list | tuple) or len(drafts) != len(texts):
        raise ValueError(
            f"{who}.draft must return a list of {len(texts)} Drafts, one per text, "
            f"got {describe(drafts)}"
        )
    for text, draft in zip(texts, drafts, strict=True):
        _check(who, text, draft, vocabulary)
    return list(drafts)


def _check(who: str, text: Text, draft: Any, vocabulary: int) -> None:
    where = f"{who}'s draft for request {describe(text.name)}"
    if not isinstance(draft, Draft):
        raise TypeError(f"{where} must be a Draft, got {describe(draft)}")
    if len(draft.tokens) > text.most:
        raise ValueError(f"{where} must hold at most {text.most} tokens, got {len(draft.tokens)}")
    wrong = [t for t in draft.tokens if not is_integer(t) or not 0 <= t < vocabulary]
    if wrong:
        raise ValueError(
            f"{where} must hold token ids, 0 ... {vocabulary - 1}, got {describe(wrong[0])}"
        )
    shape = getattr(draft.q, "shape", None)
    if draft.q is not None and shape != (len(draft.tokens), vocabulary):
        raise ValueError(
            f"{where} must state q of shape {(len(draft.tokens), vocabulary)}, a distribution per "
            f"token, got {describe(draft.q) if shape is None else f'shape {shape}'}"
        )
