"""Checkers of the chapter on speculative decoding: how many guesses of a chain are kept, here.

What replaces a refused guess is in :mod:`kvbook.exercises.speculative_residual`, the mask of a tree
in :mod:`kvbook.exercises.speculative_tree`, and the loop that rolls two caches back in
:mod:`kvbook.exercises.speculative_rollback`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvbook.exercises.received import whole
from kvbook.exercises.report import Finding, checker
from kvbook.exercises.speculative_residual import check_residual
from kvbook.exercises.speculative_rollback import check_speculate
from kvbook.exercises.speculative_tree import check_tree_mask

__all__ = ["check_accepted", "check_residual", "check_speculate", "check_tree_mask"]

GAP = 1e-3  # between u · q and p: no rounding decides a verdict


@dataclass(frozen=True)
class Chain:
    """What an answer is asked: p (n + 1, V), q (n, V), n guesses drawn from q, u (n,)."""

    what: str
    p: np.ndarray
    q: np.ndarray
    draft: list[int]
    u: np.ndarray

    def verdicts(self) -> list[bool]:
        """Which guesses would be accepted if each were judged alone."""
        return [bool(u < ratio) for u, ratio in zip(self.u, self.ratios(), strict=True)]

    def turned(self) -> Chain:
        """The chain for an answer that compares 1 - u, which is as uniform as u."""
        return Chain(self.what, self.p, self.q, self.draft, 1 - self.u)

    def near(self) -> np.ndarray:
        """Return which guesses rounding might decide, by u or by 1 - u: (n,) bool."""
        i = np.arange(len(self.draft))
        p, q = self.p[i, self.draft], self.q[i, self.draft]
        ends = np.stack([self.u, 1 - self.u])
        found: np.ndarray = (np.abs(ends * q - p) < GAP).any(axis=0)
        return found

    def ratios(self, p_row: int = 0, q_row: int = 0) -> np.ndarray:
        """p(x) / q(x) of each guess x, from the row of the guess, or from one further on."""
        i = np.arange(len(self.draft))
        q = self.q[np.minimum(i + q_row, len(i) - 1), self.draft]
        found: np.ndarray = self.p[i + p_row, self.draft] / q
        return found


def leading(verdicts: Sequence[Any]) -> int:
    """How many verdicts are true before the first that is not."""
    return next((i for i, verdict in enumerate(verdicts) if not verdict), len(verdicts))


@checker
def check_accepted(accepted: Callable[..., Any]) -> Iterator[str]:
    """accepted(p (n + 1, V), q (n, V), draft (n ids), u (n,)) → how many guesses the text keeps."""
    rng = np.random.default_rng(61)
    example = Chain(
        "the four guesses of the task",
        np.array([[0.1, 0.6, 0.3], [0.3, 0.4, 0.3], [0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [1, 0, 0]]),
        np.array([[0.4, 0.4, 0.2], [0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.1, 0.2, 0.7]]),
        [1, 0, 2, 2],
        np.array([0.9, 0.5, 0.3, 0.7]),
    )
    asked: list[tuple[Chain, int]] = []
    _expect(accepted, [example, *(drawn(rng) for _ in range(40))], asked)
    yield "a guess is accepted while u < p / q, and the first one refused ends the chain"

    _expect(accepted, [drawn(rng, n=1) for _ in range(4)], asked)
    _expect(accepted, [drawn(rng, keeps=n, n=n) for n in (1, 3, 6)], asked)
    _expect(accepted, [drawn(rng, keeps=0, n=n) for n in (1, 3, 6)], asked)
    yield "all guesses of a chain may be accepted, or none"

    _expect(accepted, [greedy(drawn(rng), rng) for _ in range(6)], asked)
    yield "greedy, where p is 0 or 1: guesses are kept while they are the likeliest token"

    _expect(accepted, [certain(drawn(rng)) for _ in range(8)], asked)
    yield "a guess that was not drawn (q is 0 or 1) is accepted with probability p"


def drawn(rng: np.random.Generator, keeps: int | None = None, n: int | None = None) -> Chain:
    """A chain whose verdicts no rounding decides; of `keeps` accepted guesses if that is given."""
    guesses = int(rng.integers(1, 7)) if n is None else n
    while True:
        p = rng.dirichlet(np.ones(5), guesses + 1)
        q = (p[:-1] + rng.dirichlet(np.ones(5), guesses)) / 2
        draft = [int(rng.choice(5, p=row)) for row in q]
        chain = Chain(f"a chain of {guesses}", p, q, draft, rng.random(guesses))
        found = {leading(c.verdicts()) for c in (chain, chain.turned())}
        if not chain.near().any() and (keeps is None or found == {keeps}):
            return chain


def greedy(chain: Chain, rng: np.random.Generator) -> Chain:
    """The same guesses, of which the first are the model's certain choice; one u is 0."""
    n = len(chain.draft)
    right = int(rng.integers(0, n))
    best = [*chain.draft[:right], (chain.draft[right] + 1) % 5, *rng.integers(0, 5, n - right)]
    u = chain.u.copy()
    u[right] = 0.0
    return Chain(f"a greedy chain of {n}", np.eye(5)[best], chain.q, chain.draft, u)


def certain(chain: Chain) -> Chain:
    """The same guesses, each of which had no alternative."""
    what = f"a chain of {len(chain.draft)} guesses that were not drawn"
    sure = Chain(what, chain.p, np.eye(5)[chain.draft], chain.draft, chain.u.copy())
    while (near := sure.near()).any():
        sure.u[near] = (sure.u[near] + 0.37) % 1
    return sure


def _expect(
    accepted: Callable[..., Any], chains: Sequence[Chain], asked: list[tuple[Chain, int]]
) -> None:
    """The right number for each chain; `asked` holds what came so far, and grows.

    An answer may compare u or 1 - u, but the same one in all chains.
    """
    for c in chains:
        got = accepted(c.p, c.q, list(c.draft), c.u)
        asked.append((c, whole(got, f"{c.what}: the number of guesses that are kept")))
    missed, turned = (
        next((i for i, (c, n) in enumerate(asked) if n != leading(way(c).verdicts())), None)
        for way in (lambda c: c, Chain.turned)
    )
    if missed is None or turned is None:
        return
    if turned > max(missed, 20):  # 1 - u explains too many answers for chance
        c, n = asked[turned]
        raise Finding(_difference(c.turned(), n, "1 - u"))
    raise Finding(_difference(*asked[missed]) + _suspect(asked))


def _difference(c: Chain, got: int, u: str = "u") -> str:
    """What came, what was needed, and the guess that decides it."""
    right, n = leading(c.verdicts()), len(c.draft)
    said = f"{c.what}: got {got} guess{'es' * (got != 1)} kept, needed {right}"
    if not 0 <= got <= n:
        return f"{said}; a chain of {n} keeps from 0 to {n}"
    i = min(got, right)
    p, q, verdict = c.p[i, c.draft[i]], c.q[i, c.draft[i]], i < right
    return (
        f"{said}. Guess {i} (counted from 0) is token {c.draft[i]}: p = {p:.3f}, q = {q:.3f}, so "
        f"p / q = {p / q:.3f}, and {u} = {c.u[i]:.3f} is {'' if verdict else 'not '}below that, so "
        f"the guess is {'accepted' if verdict else 'refused'}"
    )


def _suspect(asked: Sequence[tuple[Chain, int]]) -> str:
    """The mistake that explains every answer so far, or nothing."""
    with np.errstate(all="ignore"):
        for words, wrong in SUSPECTS.items():
            ways = (asked, [(c.turned(), n) for c, n in asked])
            if any(all(wrong(c) == n for c, n in way) for way in ways):
                return f". Your answers look as if {words}"
    return ""


def _with(verdict: Callable[[Chain, int, float, float], Any]) -> Callable[[Chain], int]:
    """A mistake that judges guess i by verdict(chain, i, p(x), q(x))."""

    def kept(c: Chain) -> int:
        i = np.arange(len(c.draft))
        at = zip(i.tolist(), c.p[i, c.draft].tolist(), c.q[i, c.draft].tolist(), strict=True)
        return leading([verdict(c, *x) for x in at])

    return kept


SUSPECTS: dict[str, Callable[[Chain], int]] = {
    "guesses after a refused one were counted, too; a refused guess ends the chain": lambda c: sum(
        c.verdicts()
    ),
    "the token that is drawn after the accepted guesses was counted; count the guesses alone": (
        lambda c: leading(c.verdicts()) + 1
    ),
    "the refused guess was counted; it is not kept": (
        lambda c: min(leading(c.verdicts()) + 1, len(c.draft))
    ),
    "the last guess was not judged": lambda c: leading(c.verdicts()[:-1]),
    "a guess was accepted where u is above p / q": _with(lambda c, i, p, q: c.u[i] >= p / q),
    "q was divided by p; a guess that the model likes more than the drafter did is always kept": (
        _with(lambda c, i, p, q: c.u[i] < q / p)
    ),
    "u was compared with p alone; a guess that the drafter rarely makes must be kept more often": (
        _with(lambda c, i, p, q: c.u[i] < p)
    ),
    "a guess was kept only if p is at least q; where p is smaller, u decides": (
        _with(lambda c, i, p, q: p >= q)
    ),
    "only the likeliest token was accepted; that is right for greedy decoding alone": (
        _with(lambda c, i, p, q: c.p[i].argmax() == c.draft[i])
    ),
    "the row of p after the guess was read; row i is the distribution at guess i": (
        lambda c: leading((c.u < c.ratios(p_row=1)).tolist())
    ),
    "one u, the first, decided on all guesses; each guess has its own": (
        _with(lambda c, i, p, q: c.u[0] < p / q)
    ),
    "the ratios were multiplied along the chain; each guess is judged by its own": (
        lambda c: leading((c.u < np.cumprod(c.ratios())).tolist())
    ),
    "the ratios, each at most 1, were multiplied along the chain; a guess is judged by its own": (
        lambda c: leading((c.u < np.cumprod(np.minimum(c.ratios(), 1))).tolist())
    ),
    "u was compared with the difference p - q; the ratio p / q counts": (
        _with(lambda c, i, p, q: c.u[i] < p - q)
    ),
    "the first row of p judged all guesses; each guess has a row": (
        _with(lambda c, i, p, q: c.u[i] < c.p[0, c.draft[i]] / q)
    ),
    "the largest number of the row of p was read, not that of the guess": (
        _with(lambda c, i, p, q: c.u[i] < c.p[i].max() / q)
    ),
    "u itself was ignored, and every guess kept": lambda c: len(c.draft),
    "a guess of probability 0 was accepted when u was 0, too; accept only where u < p / q": (
        _with(lambda c, i, p, q: c.u[i] <= p / q)
    ),
}
