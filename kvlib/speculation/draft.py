"""What a drafter is asked for, and what it answers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from kvlib.arguments import (
    check_hashable,
    check_integer,
    check_list,
    check_seed,
    describe,
    is_integer,
    type_of,
)
from kvlib.arrays import refuse_mask
from kvlib.caches.trees import Parents, chained, depths
from kvlib.serve.distribution import check_settings
from kvlib.speculation.tree import check_tree, followers


class Text(NamedTuple):
    """A text to be continued.

    name                                that of its request
    tokens                              prompt and new tokens; from call to call it only grows
    most                                make at most so many guesses
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
    """Guesses for the next tokens of a text: a chain, or a tree that offers several at a time.

    tokens   n ids
    q        (n, V) float64: the distribution from which each of them was drawn. None if they were
             not drawn, as by a lookup or a model that takes the likeliest token.
    parents  for each guess of a tree, the number of the earlier guess that it follows, or −1 if it
             follows the text. None: each guess follows the one before. Guesses with the same
             parent differ. If they were drawn, they come from the same row of q, one after the
             other and without replacement.

    >>> Draft([7, 8]).q is None
    True
    >>> Draft([7, 8, 9], parents=(-1, -1, 0)).path([7, 9])  # 7 or 8, and 9 after 7
    [0, 2]
    """

    tokens: Sequence[int] = ()
    q: np.ndarray | None = None
    parents: Parents | None = None

    def first(self, n: int) -> Draft:
        """Its first n guesses; those of a tree are a tree, too, because parents come first."""
        return Draft(
            self.tokens[:n],
            None if self.q is None else self.q[:n],
            None if self.parents is None else self.parents[:n],
        )

    def path(self, tokens: Sequence[int]) -> list[int]:
        """The numbers of the guesses that spell these tokens, one after the other."""
        if self.parents is None:
            return list(range(len(tokens)))
        after, path = followers(self.parents), [-1]
        for token in tokens:
            path.append(next(j for j in after[path[-1]] if self.tokens[j] == token))
        return path[1:]

    def depths(self) -> list[int]:
        """How many guesses stand between each guess and the text."""
        return list(range(len(self.tokens))) if self.parents is None else depths(self.parents)


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
        """Guess how each of the texts goes on; one Draft per text, of 0 to ``most`` guesses."""
        raise TypeError(f"{type(self).__name__} has no method draft(texts)")

    def free(self, name: Hashable) -> None:
        """Forget a text: its request has ended, or begins again."""


def check_texts(texts: Any) -> Sequence[Text]:
    """The texts themselves, after refusing what no drafter can continue."""
    for text in check_list("texts", texts, "Text"):
        if not isinstance(text, Text):
            raise TypeError(f"texts must hold Text, got {describe(text)}")
        check_hashable("the name of a text", text.name)
        check_list(f"text {describe(text.name)}", text.tokens, "token ids")
        check_integer(f"most of text {describe(text.name)}", text.most, 0)
        check_settings(text.temperature, text.top_k, text.top_p)
        check_seed("seed", text.seed)
    return texts  # type: ignore[no-any-return]


def asked(drafter: Any, texts: Sequence[Text], vocabulary: int) -> list[Draft]:
    """The drafts of a drafter, after refusing what is no draft of these texts."""
    drafts = drafter.draft(list(texts))
    who = type(drafter).__name__
    if not isinstance(drafts, list | tuple) or len(drafts) != len(texts):
        raise ValueError(
            f"{who}.draft must return a list of {len(texts)} Drafts, one per text, "
            f"got {describe(drafts)}"
        )
    return [_checked(who, *both, vocabulary) for both in zip(texts, drafts, strict=True)]


def _checked(who: str, text: Text, draft: Any, vocabulary: int) -> Draft:
    where = f"{who}'s draft for request {describe(text.name)}"
    if not isinstance(draft, Draft):
        raise TypeError(f"{where} must be a Draft, got {describe(draft)}")
    if not isinstance(draft.tokens, Sequence | np.ndarray):
        raise TypeError(f"{where} must hold a list of token ids, got {describe(draft.tokens)}")
    n = len(draft.tokens)
    if n > text.most:
        raise ValueError(f"{where} must hold at most {text.most} tokens, got {n}")
    wrong = [t for t in draft.tokens if not is_integer(t) or not 0 <= t < vocabulary]
    if wrong:
        raise ValueError(
            f"{where} must hold token ids, 0 ... {vocabulary - 1}, got {describe(wrong[0])}"
        )
    shape = getattr(draft.q, "shape", None)
    if draft.q is not None and shape != (n, vocabulary):
        raise ValueError(
            f"{where} must state q of shape {(n, vocabulary)}, a distribution per "
            f"token, got {describe(draft.q) if shape is None else f'shape {shape}'}"
        )
    if draft.q is not None:
        refuse_mask(f"q of {where}", draft.q)
        _check_distributions(where, draft.tokens, draft.q)
    if draft.parents is None:
        return draft
    parents = check_tree(f"parents in {where}", draft.parents, n)
    if chained(parents) == n:
        return replace(draft, parents=None)
    _check_siblings(where, draft, parents)
    return replace(draft, parents=parents)


def _check_distributions(where: str, tokens: Sequence[int], q: np.ndarray) -> None:
    """Rows of q are distributions, and each token may be drawn from its row."""
    if not isinstance(q, np.ndarray) or q.dtype.kind != "f":
        came = f"dtype {q.dtype}" if isinstance(q, np.ndarray) else type_of(q)
        raise TypeError(f"{where} must state q as a NumPy array in floating point; got {came}")
    sums = q.sum(axis=1)
    for j in range(len(tokens)):
        least, token = q[j].min(), int(tokens[j])
        if not (least >= 0 and abs(sums[j] - 1) < 1e-3):
            raise ValueError(
                f"{where} must state rows of q that are distributions, got one of sum {sums[j]:g} "
                f"and least number {least:g} for guess {j}"
            )
        if not q[j, token] > 0:
            raise ValueError(
                f"{where} must hold tokens drawn from q, got token {token}, whose probability "
                f"there is {q[j, token]}"
            )


def _check_siblings(where: str, draft: Draft, parents: Parents) -> None:
    """Guesses that follow the same one differ, and were drawn from the same distribution."""
    for siblings in followers(parents).values():
        tokens = [int(draft.tokens[j]) for j in siblings]
        if len(set(tokens)) < len(tokens):
            raise ValueError(
                f"{where} must offer different tokens where guesses have the same parent, "
                f"got {tokens} for guesses {siblings}"
            )
        if draft.q is None:
            continue
        q = draft.q[siblings[0]]
        for j in siblings:
            if not np.array_equal(draft.q[j], q):
                raise ValueError(
                    f"{where} must state the same row of q for guesses with the same parent; "
                    f"those of guesses {siblings[0]} and {j} differ"
                )
