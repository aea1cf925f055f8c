"""Trees of guesses: the law of what they give to the text, and what drafters and formulas say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from itertools import permutations, product
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from effort import number

from kvlib.caches.trees import depths
from kvlib.speculation import (
    Draft,
    Drafter,
    Text,
    accept,
    accept_tree,
    acceptance,
    best_tree,
    branches,
    expected_tokens,
    expected_tree_tokens,
)
from kvlib.speculation.acceptance import inverse
from kvlib.speculation.checking import accept_matching
from kvlib.speculation.draft import get_drafts

# The law, to the last digit -------------------------------------------------------------------


class Verdict:
    """A random number of which only `number * q < p` is asked: the script decides how it falls."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def __mul__(self, q: Fraction) -> Verdict:
        self.q = q
        return self

    def __lt__(self, p: Fraction) -> bool:
        return self.script.falls(min(Fraction(1), p / self.q))


class Script:
    """One course of events: which way each verdict falls, and how likely that is."""

    def __init__(self, begun: Sequence[bool] = ()) -> None:
        self.begun, self.falls_so_far, self.chance = list(begun), [], Fraction(1)
        self.other: list[list[bool]] = []  # courses that part from this one

    def falls(self, chance: Fraction) -> bool:
        n = len(self.falls_so_far)
        way = self.begun[n] if n < len(self.begun) else chance > 0
        if n >= len(self.begun) and 0 < chance < 1:
            self.other.append([*self.falls_so_far, not way])
        self.falls_so_far.append(way)
        self.chance *= chance if way else 1 - chance
        return way


def courses(run: Callable[..., Any], n: int) -> Iterator[tuple[Fraction, Any]]:
    """What a function of n verdicts returns on each course of events, and its probability."""
    left: list[list[bool]] = [[]]
    while left:
        script = Script(left.pop())
        found = run(verdicts=[Verdict(script) for _ in range(n)])
        left += script.other
        yield script.chance, found


def fractions(weights: Sequence[int]) -> np.ndarray:
    return np.array([Fraction(w, sum(weights)) for w in weights], dtype=object)


def drawn_in_turn(q: np.ndarray, n: int) -> Iterator[tuple[Fraction, tuple[int, ...]]]:
    """All ways to draw n tokens from q without replacement."""
    for tokens in permutations(range(len(q)), n):
        chance, left = Fraction(1), Fraction(1)
        for token in tokens:
            if not q[token]:
                break
            chance, left = chance * q[token] / left, left - q[token]
        else:
            yield chance, tokens


def of_all_drafts(p, q, parents) -> Iterator[tuple[Fraction, list[int], list[int], np.ndarray]]:
    """(chance, tokens, path, what remains of p) over all drafts and all verdicts.

    p, q: functions of the tokens since the text that give the distribution after them.
    """
    n = len(parents)
    children = {at: [j for j in range(n) if parents[j] == at] for at in range(-1, n)}

    def drafts(at: int, chance: Fraction, tokens: dict[int, int]) -> Iterator[Any]:
        if at == n:
            yield chance, tokens
            return
        before = spelt(tokens, at)
        for likely, found in drawn_in_turn(q(before), len(children[at])):
            yield from drafts(at + 1, chance * likely, {**tokens, **dict(zip(children[at], found))})

    def spelt(tokens: dict[int, int], at: int) -> tuple[int, ...]:
        return () if at < 0 else (*spelt(tokens, parents[at]), tokens[at])

    for chance, found in drafts(-1, Fraction(1), {}):
        tokens = [found[j] for j in range(n)]
        rows = np.stack([p(spelt(found, at)) for at in range(-1, n)])
        stated = np.stack([q(spelt(found, parents[j])) for j in range(n)])
        judge = partial(accept_tree, rows, tokens, parents, stated, numbers=range(n + 1))
        with patch.object(acceptance, "inverse", lambda weights, number: weights / weights.sum()):
            every = list(courses(judge, n))
        for likely, (path, left) in every:
            yield chance * likely, tokens, path, left


PAIRS = [
    ((17, 10, 13, 6), (6, 2, 1, 1)),  # of FACTS: see below
    ((1, 2, 3, 4), (4, 3, 2, 1)), ((1, 1, 1, 1), (1, 1, 1, 1)),
    ((5, 0, 1, 0), (0, 2, 1, 3)),  # each lacks what the other has
    ((1, 0, 0, 0), (1, 2, 3, 1)),
    ((3, 1, 4, 1), (0, 0, 1, 1)),  # two candidates at most
]


@pytest.mark.parametrize(("p", "q"), PAIRS)
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_the_first_token_is_distributed_as_p_exactly(p, q, n: int) -> None:
    """All drafts of n siblings and all verdicts, in fractions."""
    if n > sum(w > 0 for w in q):
        return
    p, q = fractions(p), fractions(q)
    found = np.zeros(4, object)
    for chance, tokens, path, left in of_all_drafts(lambda t: p, lambda t: q, [-1] * n):
        if path:
            found[tokens[path[0]]] += chance
        else:
            found += chance * left
    assert (found == p).all()


@pytest.mark.parametrize("parents", [(-1, 0), (-1, -1, 0), (-1, -1, 1, 0), branches(2, 2)])
def test_two_tokens_are_distributed_as_p_exactly(parents) -> None:
    rng = np.random.default_rng(1)
    texts = [(), *((x,) for x in range(3)), *product(range(3), repeat=2)]
    p = {t: fractions(rng.integers(0, 5, 3) + (np.arange(3) == 0)) for t in texts}
    q = {t: fractions(rng.integers(1, 5, 3)) for t in texts}
    law: dict[tuple[int, ...], Fraction] = dict.fromkeys(product(range(3), repeat=2), Fraction(0))
    for chance, tokens, path, left in of_all_drafts(p.__getitem__, q.__getitem__, parents):
        spelt = tuple(tokens[j] for j in path)
        for x, y in law:
            both = (left[x] * p[x,][y], left[y] * (spelt == (x,)), spelt == (x, y))[len(spelt)]
            law[x, y] += chance * both
    assert law == {(x, y): p[()][x] * p[x,][y] for x, y in law}


def test_more_siblings_are_accepted_more_often() -> None:
    """Of p = (17, 10, 13, 6) / 46 and q = (6, 2, 1, 1) / 10, without replacement."""
    p, q = fractions(PAIRS[0][0]), fractions(PAIRS[0][1])
    found = []
    for n in (1, 2, 3):
        accepted = (
            c for c, _, path, _ in of_all_drafts(lambda t: p, lambda t: q, [-1] * n) if path
        )
        found.append(round(float(sum(accepted)), 3))
    assert found == [0.770, 0.875, 0.933]
    likeliest = np.cumsum(p)  # candidates that were not drawn: those that q says first
    assert [round(float(x), 3) for x in likeliest[:3]] == [0.370, 0.587, 0.870]


# The law, by draws --------------------------------------------------------------------------------

CHI_1 = 18.475  # χ² with 7 degrees of freedom: what chance exceeds in 1 of 100 trials
DRAWS = number(quick=2_000, usual=5_000, whole=100_000)


def chi_square(counts: np.ndarray, p: np.ndarray) -> float:
    expected = p * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


def distributions(seed: int, rows: int) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(8), rows)


def test_first_and_second_tokens_are_distributed_as_p(draws: int = DRAWS) -> None:
    """As the scheduler draws them: three siblings, then two after each."""
    parents = branches(3, 2)
    p, q = distributions(1, 10), distributions(2, 4)
    after = np.array([0, 0, 0, 1, 1, 2, 2, 3, 3])  # the row of q from which each guess is drawn
    counts = np.zeros((1 + 3, 8))
    for u in np.random.default_rng(0).random((draws, 9 + 9 + 10)):
        tokens = list[int]()
        for j, number_ in enumerate(u[:9]):
            left = q[after[j]].copy()
            left[[tokens[i] for i in range(j) if parents[i] == parents[j]]] = 0
            tokens.append(inverse(left, number_))
        path, token = accept_tree(p, tokens, parents, q[after], u[9:18], u[18:])
        found = [*(tokens[j] for j in path), token]
        counts[0, found[0]] += 1
        if path:  # the row of p after a guess is that of its node in the tree
            counts[1 + path[0], found[1]] += 1
    assert chi_square(counts[0], p[0]) < CHI_1
    for j in range(3):
        assert chi_square(counts[1 + j], p[1 + j]) < CHI_1 or counts[1 + j].sum() < 200


# Edges --------------------------------------------------------------------------------------------


def test_a_chain_is_a_tree() -> None:
    p, q = distributions(5, 4), distributions(6, 3)
    for u in np.random.default_rng(0).random((200, 10)):
        tokens = [inverse(q[i], u[i]) for i in range(3)]
        path, token = accept_tree(p, tokens, (-1, 0, 1), q, u[3:6], u[6:])
        assert path == list(range(len(path)))
        assert accept(p, tokens, q, u[3:6], u[6:]) == [*tokens[: len(path)], token]


@pytest.mark.parametrize("noise", [0.0, 1e-17, -1e-17])
def test_p_and_q_that_are_equal_but_for_rounding(noise: float) -> None:
    """A verdict of nearly 1 may refuse a guess; then there is nothing, or only noise, left of p."""
    p = np.array([[0.25, 0.25, 0.5]] * 3)
    q = p[:2].copy()
    q[:, 0] *= 1 + 2**-52
    q[:, 1] += noise
    with np.errstate(all="raise"):
        for tokens in permutations(range(3), 2):
            path, token = accept_tree(p, tokens, (-1, -1), q, [1 - 2**-53] * 2, [0.9] * 3)
            assert len(path) <= 1 and token in range(3)


def test_a_sibling_that_cannot_have_been_drawn_is_refused() -> None:
    """The same token again, or one that q leaves out: neither is accepted."""
    p, q = np.array([[0.4, 0.6]] * 4), np.array([[1.0, 0.0]] * 3)
    with np.errstate(all="raise"):
        assert accept_tree(p[:3], [0, 0], (-1, -1), q[:2], [0.5, 0.0], [0.5] * 3) == ([], 1)
        assert accept_tree(p[:2], [0], (-1,), q[:1], [0.3], [0.9] * 2) == ([0], 1)
        assert accept_tree(p[:1], [], (), q[:0], [], [0.1]) == ([], 0)


def test_guesses_that_were_not_drawn_are_those_that_equal_the_tokens() -> None:
    parents = (-1, -1, 0, 1, 1)
    draft = [4, 5, 4, 6, 7]
    assert accept_matching([5, 0, 7, 0, 0, 3], draft, parents) == [5, 7, 3]
    assert accept_matching([5, 0, 8, 0, 0, 3], draft, parents) == [5, 8]
    assert accept_matching([4, 4, 8, 1, 0, 3], draft, parents) == [4, 4, 1]
    assert accept_matching([9, 4, 8, 1, 0, 3], draft, parents) == [9]
    every = list(product(range(2), repeat=4))
    for tokens in every:
        assert accept_matching(tokens, [1, 0, 1]) == accept_matching(tokens, [1, 0, 1], (-1, 0, 1))


@pytest.mark.parametrize(("parents", "words"), [
    ((-1,), "parents must hold 2 numbers, one per guess, got 1"),
    ((0, -1), r"parents\[0\] must be -1 or the number of an earlier guess, got 0"),
    ((-1, 1), r"parents\[1\] must be -1 .* earlier guess, 0 ... 0, got 1"),
    ((-1, -2), "got -2"), ({-1, 0}, "parents must be a list"), ("ab", "parents must be a list"),
])
def test_what_is_no_tree_is_refused(parents, words) -> None:
    p, q = distributions(5, 3), distributions(6, 2)
    with pytest.raises((ValueError, TypeError), match=words):
        accept_tree(p, [0, 1], parents, q, [0.5] * 2, [0.5] * 3)


class Listed:
    """What has a shape and is no array of NumPy."""

    shape = (1, 4)


Q = np.array([[0.0, 0.5, 0.5, 0.0]])
UNLIKE = np.array([[0.0, 0.5, 0.5, 0.0], [0.0, 0.25, 0.75, 0.0]])


@pytest.mark.parametrize(("draft", "words"), [
    (Draft([1, 2], parents=(-1,)), "parents in Odd's draft for .* must hold 2 numbers"),
    (Draft([1, 2], parents=(-1, 1)), r"\[1\] must be -1 or the number of an earlier guess"),
    (Draft([1, 2, 2, 2], parents=(-1, 0, -1, -1)), r"different tokens .* got \[1, 2, 2\] for"),
    (Draft([1, 2], UNLIKE, (-1, -1)), "rows? of q .* guesses 0 and 1 differ"),
    (Draft([1, 3], Q[[0, 0]], (-1, -1)), r"drawn from q, got token 3, .* there is 0\.0"),
    *(
            (Draft([1], np.array([q])), r"rows of q that are distributions, got one of sum")
            for q in ([np.nan] * 4, [0.0] * 4, [-0.5, 1.5, 0.0, 0.0], [0.0, 1.0, 2.0, 3.0])
        ),
    (Draft([1], Q.astype(object)), "q as a NumPy array in floating point; got dtype object"),
    (Draft([1], np.ma.masked_array(Q, Q > 1)), "must be a plain array, got a MaskedArray"),
    (Draft([1], Listed()), "q as a NumPy array in floating point; got a Listed"),
    *((Draft(x), "hold a list of token ids") for x in (None, {1, 2}, {1: 2}, iter([1]), 3)),
])
def test_a_draft_that_is_none_is_refused(draft: Draft, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words) as caught:
        get_drafts(always(draft), [Text("a", [0], most=9)], vocabulary=4)
    assert "Odd's draft for request 'a'" in str(caught.value)


def always(draft: Draft) -> Drafter:
    class Odd(Drafter):
        def draft(self, texts: Sequence[Text]) -> list[Draft]:
            return [draft for _ in texts]

    return Odd()


def test_the_first_guesses_of_a_tree_are_a_tree() -> None:
    q = np.random.default_rng(0).random((6, 9))
    draft = Draft([3, 4, 5, 3, 6, 7], q, (-1, -1, 0, 1, 1, 2))
    for n in range(7):
        first = draft.first(n)
        assert first.tokens == draft.tokens[:n] and first.parents == draft.parents[:n]
        assert (first.q == q[:n]).all()
        assert all(parent < j for j, parent in enumerate(first.parents))
    assert (
        draft.path([]) == [] and draft.path([4, 6]) == [1, 4] and draft.path([3, 5, 7]) == [0, 2, 5]
    )
    assert draft.depths() == [0, 0, 1, 1, 1, 2]
    assert Draft([1, 2]).path([1]) == [0] and Draft([1, 2]).depths() == [0, 1]


def test_a_tree_that_is_a_chain_is_one() -> None:
    for parents, kept in (((-1, 0, 1), None), (np.array([-1, 0, 0]), (-1, 0, 0))):
        drafter = always(Draft([1, 2, 3], parents=parents))
        (draft,) = get_drafts(drafter, [Text("a", [0], most=3)], 4)
        assert draft.parents == kept and draft.tokens == [1, 2, 3]


# What trees gain ----------------------------------------------------------------------------------


def test_a_chain_gives_the_tokens_of_a_chain() -> None:
    for a, gamma in product((0.0, 0.3, 1.0), (0, 1, 5)):
        tree = branches(*[1] * gamma)
        assert abs(expected_tree_tokens(tree, [a]) - expected_tokens(a, gamma)) < 1e-12


@pytest.mark.parametrize("chances", [(0.6, 0.3), (0.5, 0.2, 0.2), (0.9,), (0.4, 0.4), (1.0,)])
@pytest.mark.parametrize("levels", [1, 2, 9])
def test_no_tree_is_better_than_the_best(chances, levels: int) -> None:
    for n in range(7):
        most = 0.0
        for parents in product(*(range(-1, j) for j in range(n))):
            if max(depths(parents), default=0) < levels:
                most = max(most, expected_tree_tokens(parents, chances))
        best = best_tree(chances, n, levels)
        assert abs(expected_tree_tokens(best, chances) - max(most, 1.0)) < 1e-12
        assert len(best) == min(n, sum(len(chances) ** k for k in range(1, levels + 1)))
        assert best == best_tree(chances, 6, levels)[:n]


def test_shares_that_are_none_are_refused() -> None:
    for wrong, words in (([], "at least one"), ([0.7, 0.4], "at most 1"), ([0.2, 0.3], "rise")):
        with pytest.raises(ValueError, match=words):
            best_tree(wrong, 3)
    with pytest.raises(ValueError, match=r"acceptance\[1\] must be a share"):
        expected_tree_tokens((-1,), [0.2, -0.3])
    with pytest.raises(TypeError, match="acceptance must be a list"):
        expected_tree_tokens((-1,), 0.7)
