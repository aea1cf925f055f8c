"""What a drafter is asked, and what it answers: guesses, as a chain or as a tree."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from operator import index
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


class Text(NamedTuple):
    """A text to be continued: the name of its request, prompt and new tokens, and the most guesses.

    The settings say how the request draws its tokens. From call to call, a text only grows.

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
    q        (n, V) float64: the distribution from which each was drawn; None if they were not drawn
    parents  for each guess of a tree, the number of the earlier guess that it follows, or −1 if it
             follows the text; None: a chain. Guesses with the same parent differ. If they were
             drawn, it was from the same row of q, one after the other and without replacement.

    >>> Draft([7, 8, 9], parents=(-1, -1, 0)).path([7, 9])  # 7 or 8, and 9 after 7
    [0, 2]
    """

    tokens: Sequence[int] = ()
    q: np.ndarray | None = None
    parents: Parents | None = None

    @property
    def tree(self) -> Parents:
        """Its parents; also those of a chain."""
        return chain(len(self.tokens)) if self.parents is None else self.parents

    def first(self, n: int) -> "Draft":
        """Its first n guesses; those of a tree are a tree, too, because parents come first."""
        q, parents = self.q, self.parents
        return Draft(
            self.tokens[:n], None if q is None else q[:n], None if parents is None else parents[:n]
        )

    def path(self, tokens: Sequence[int]) -> list[int]:
        """The numbers of the guesses that spell these tokens, one after the other."""
        after, path = children(self.tree), [-1]
        for token in tokens:
            path.append(next(j for j in after[path[-1]] if self.tokens[j] == token))
        return path[1:]

    def depths(self) -> list[int]:
        """How many other guesses are between each guess and the text."""
        return list(range(len(self.tokens))) if self.parents is None else depths(self.parents)


class Drafter:
    """Guesses how texts go on. Your own drafter needs `draft`, and `free` if it remembers texts.

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


def branches(*counts: int) -> Parents:
    """Return the tree in which each guess of one level is followed by equally many guesses.

    counts: how many guesses follow the text, then each guess of the first level, and so on.

    >>> branches(2, 1)  # two guesses for the next token, and one after each
    (-1, -1, 0, 1)
    """
    parents, level = list[int](), [-1]
    for i, count in enumerate(counts):
        n = check_integer(f"counts[{i}]", count)
        first = len(parents)
        parents += [at for at in level for _ in range(n)]
        level = list(range(first, len(parents)))
    return tuple(parents)


def chain(n: int) -> Parents:
    """Return the tree in which each guess follows the one before: (-1, 0, 1) for 3."""
    return tuple(range(-1, n - 1))


def children(parents: Sequence[int]) -> dict[int, list[int]]:
    """Return, by the number of a guess, or −1 for the text, the guesses that follow it, if any."""
    guesses: dict[int, list[int]] = {}
    for j, parent in enumerate(parents):
        guesses.setdefault(parent, []).append(j)
    return guesses


def ranks(parents: Sequence[int]) -> list[int]:
    """Return how many earlier siblings each guess has: (-1, -1, 0) → [0, 1, 0]."""
    return [parents[:j].count(parent) for j, parent in enumerate(parents)]


def renumbered(tree: Parents, numbers: Sequence[int]) -> Parents:
    """Return the parents of some guesses, numbered anew; the parent of each must be among them."""
    new = {j: i for i, j in enumerate(numbers)}
    return tuple(new[tree[j]] if tree[j] >= 0 else -1 for j in numbers)


def check_tree(name: str, parents: Any, n: int | None = None) -> Parents:
    """Return the parents as Python integers; ValueError if they are no tree of n guesses."""
    numbers = check_list(name, parents, "numbers, one per guess")
    if n is not None and len(numbers) != n:
        raise ValueError(f"{name} must hold {n} numbers, one per guess, got {len(numbers)}")
    for j, parent in enumerate(numbers):
        if not is_integer(parent) or not -1 <= parent < j:
            earlier = f", 0 ... {j - 1}" if j else ""
            raise ValueError(
                f"{name}[{j}] must be -1 or the number of an earlier guess{earlier}, "
                f"got {describe(parent)}"
            )
    return tuple(map(index, numbers))


def check_texts(texts: Any) -> Sequence[Text]:
    """Return the texts; TypeError or ValueError if there is one that no drafter can continue."""
    for text in check_list("texts", texts, "Text"):
        if not isinstance(text, Text):
            raise TypeError(f"texts must hold Text, got {describe(text)}")
        check_hashable("the name of a text", text.name)
        check_list(f"text {describe(text.name)}", text.tokens, "token ids")
        check_integer(f"most of text {describe(text.name)}", text.most, 0)
        check_settings(text.temperature, text.top_k, text.top_p)
        check_seed("seed", text.seed)
    return texts  # type: ignore[no-any-return]


def get_drafts(drafter: Any, texts: Sequence[Text], vocabulary: int) -> list[Draft]:
    """Return a drafter's drafts; TypeError or ValueError if one is no draft of its text."""
    drafts, who = drafter.draft(list(texts)), type(drafter).__name__
    if not isinstance(drafts, list | tuple) or len(drafts) != len(texts):
        raise ValueError(
            f"{who}.draft must return a list of {len(texts)} Drafts, one per text, "
            f"got {describe(drafts)}"
        )
    return [
        _checked(f"{who}'s draft for request {describe(text.name)}", text.most, draft, vocabulary)
        for text, draft in zip(texts, drafts, strict=True)
    ]


def _checked(where: str, most: int, draft: Any, vocabulary: int) -> Draft:
    if not isinstance(draft, Draft):
        raise TypeError(f"{where} must be a Draft, got {describe(draft)}")
    if not isinstance(draft.tokens, Sequence | np.ndarray):
        raise TypeError(f"{where} must hold a list of token ids, got {describe(draft.tokens)}")
    n = len(draft.tokens)
    if n > most:
        raise ValueError(f"{where} must hold at most {most} tokens, got {n}")
    wrong = [t for t in draft.tokens if not is_integer(t) or not 0 <= t < vocabulary]
    if wrong:
        raise ValueError(
            f"{where} must hold token ids, 0 ... {vocabulary - 1}, got {describe(wrong[0])}"
        )
    if draft.q is not None:
        _check_distributions(where, draft.tokens, draft.q, vocabulary)
    if draft.parents is None:
        return draft
    parents = check_tree(f"parents in {where}", draft.parents, n)
    if chained(parents) == n:
        return replace(draft, parents=None)
    _check_siblings(where, draft, parents)
    return replace(draft, parents=parents)


def _check_distributions(where: str, tokens: Sequence[int], q: Any, vocabulary: int) -> None:
    """Rows of q are distributions, and each token may be drawn from its row."""
    needed, shape = (len(tokens), vocabulary), getattr(q, "shape", None)
    if shape != needed:
        raise ValueError(
            f"{where} must state q of shape {needed}, a distribution per token, got "
            f"{describe(q) if shape is None else f'shape {shape}'}"
        )
    refuse_mask(f"q of {where}", q)
    if not isinstance(q, np.ndarray) or q.dtype.kind != "f":
        came = f"dtype {q.dtype}" if isinstance(q, np.ndarray) else type_of(q)
        raise TypeError(f"{where} must state q as a NumPy array in floating point; got {came}")
    for j, (row, token) in enumerate(zip(q, tokens, strict=True)):
        least, total = row.min(), row.sum()
        if not (least >= 0 and abs(total - 1) < 1e-3):
            raise ValueError(
                f"{where} must state rows of q that are distributions, got one of sum {total:g} "
                f"and least number {least:g} for guess {j}"
            )
        if not row[token] > 0:
            raise ValueError(
                f"{where} must hold tokens drawn from q, got token {token}, whose probability "
                f"there is {row[token]}"
            )


def _check_siblings(where: str, draft: Draft, parents: Parents) -> None:
    """Guesses that follow the same one differ, and were drawn from the same distribution."""
    q = draft.q
    for first, *others in children(parents).values():
        tokens = [int(draft.tokens[j]) for j in (first, *others)]
        if len(set(tokens)) < len(tokens):
            raise ValueError(
                f"{where} must offer different tokens where guesses have the same parent, "
                f"got {tokens} for guesses {[first, *others]}"
            )
        for j in others:
            if q is not None and not np.array_equal(q[j], q[first]):
                raise ValueError(
                    f"{where} must state the same row of q for guesses with the same parent; "
                    f"those of guesses {first} and {j} differ"
                )
