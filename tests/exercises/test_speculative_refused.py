"""Known wrong answers on trees of guesses and on rollback: each refused in fitting words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from speculative_loops import (
    asking_for_one_more,
    drafting_anew,
    given,
    loop,
    never_cut,
    one_call_too_many,
    own_guesses,
    plain,
    prompt_in_pieces,
    recomputing,
    self_correcting,
    swallowing,
    with_last_guess,
    with_one_guess,
)

from kvbook.exercises.speculative import check_speculate, check_tree_mask
from kvbook.exercises.speculative_tree import EXAMPLE
from kvlib.caches import DenseCache, LayerSpec, Step

Wrong = dict[str, tuple[Callable[..., Any], str]]


def refused(report: Any, message: str) -> None:
    assert report.status == "not yet", report
    assert message in report.finding, report.finding


# ---------------------------------------------------------------------------------------- tree


def depths(parents: Any) -> Any:
    found: list[int] = []
    for parent in parents:
        found.append(found[parent] + 1 if parent >= 0 else 0)
    return np.array(found)


def ancestors(parents: Any) -> Any:
    mask = np.eye(len(parents), dtype=bool)
    for j, parent in enumerate(parents):
        if parent >= 0:
            mask[j] |= mask[parent]
    return mask


def with_mask(mask: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda parents, length: (mask(parents), length + depths(parents))


def with_positions(positions: Callable[[Any, int], Any]) -> Callable[..., Any]:
    return lambda parents, length: (ancestors(parents), positions(parents, length))


def direct(parents: Any) -> Any:
    return np.eye(len(parents), dtype=bool) | (np.array(parents)[:, None] == range(len(parents)))


def by_depth(compare: Callable[..., Any]) -> Callable[..., Any]:
    return with_mask(
        lambda ps: compare(depths(ps)[None, :], depths(ps)[:, None]) | np.eye(len(ps), dtype=bool)
    )


def siblings(parents: Any) -> Any:
    own = np.array(parents)
    return ancestors(parents) | (own[:, None] == own)


def wrapping(parents: Any) -> Any:
    mask = np.eye(len(parents), dtype=bool)
    for j, parent in enumerate(parents):
        mask[j] |= mask[parent]
    return mask


def of_one_root(parents: Any) -> Any:
    return ancestors([-1, *(max(parent, 0) for parent in parents[1:])])


def stops_at_0(parents: Any) -> Any:
    mask = np.eye(len(parents), dtype=bool)
    for j, parent in enumerate(parents):
        while parent > 0:
            mask[j, parent] = True
            parent = parents[parent]
    return mask


def roots_see_all_roots(parents: Any) -> Any:
    mask = ancestors(parents)
    roots = np.array(parents) < 0
    return mask | (roots[:, None] & roots)


right_tree = with_mask(ancestors)
WRONG_TREES: Wrong = {
    "chain": (with_mask(lambda ps: np.tri(len(ps), dtype=bool)), "This is the mask of a chain"),
    "all": (with_mask(lambda ps: np.ones((len(ps),) * 2, bool)), "Every guess sees every other"),
    "itself": (with_mask(lambda ps: np.eye(len(ps), dtype=bool)), "Every guess sees only itself"),
    "parent": (with_mask(direct), "not the parent's own ancestors"),
    "not itself": (
        with_mask(lambda ps: ancestors(ps) & ~np.eye(len(ps), dtype=bool)),
        "guess 0 (parent -1) does not see itself",
    ),
    "turned": (with_mask(lambda ps: ancestors(ps).T), "Rows and columns are exchanged"),
    "both": (with_mask(lambda ps: ancestors(ps) | ancestors(ps).T), "in both directions"),
    "smaller depth": (by_depth(np.less), "A guess sees all guesses of smaller depth"),
    "no larger depth": (by_depth(np.less_equal), "A guess sees all guesses of no larger depth"),
    "siblings": (with_mask(siblings), "Guesses with one parent see one another"),
    "inverted": (with_mask(lambda ps: ~ancestors(ps)), "True and False are exchanged"),
    "row -1": (with_mask(wrapping), "In NumPy, row -1 is the last row"),
    "one root": (with_mask(of_one_root), "Every root was taken for a child of guess 0"),
    "stops at 0": (with_mask(stops_at_0), "Guess 0 was left out of the ancestors"),
    "roots": (with_mask(roots_see_all_roots), "guess 0 (parent -1) sees guess 1, but it is a root"),
    "older, too": (
        lambda ps, n: (np.pad(ancestors(ps), ((0, 0), (n, 0)), constant_values=True), depths(ps)),
        "has 10 columns too many",
    ),
    "numbers": (with_mask(lambda ps: ancestors(ps).astype(int)), "int64, needed bool"),
    "added": (with_mask(lambda ps: np.where(ancestors(ps), 0.0, -np.inf)), "nothing is added"),
    "mask alone": (lambda ps, n: ancestors(ps), "needed two results: mask, positions"),
    "by slot": (with_positions(lambda ps, n: n + np.arange(len(ps))), "run on with the slots"),
    "depths": (with_positions(lambda ps, n: depths(ps)), "these are the depths"),
    "one far": (with_positions(lambda ps, n: n + 1 + depths(ps)), "one too far"),
    "one few": (with_positions(lambda ps, n: n - 1 + depths(ps)), "one too few"),
    "numbers of guesses": (
        with_positions(lambda ps, n: np.arange(len(ps))),
        "these are the numbers of the guesses",
    ),
    "all alike": (with_positions(lambda ps, n: n + 0 * depths(ps)), "the position of a root"),
    "halves": (with_positions(lambda ps, n: n + depths(ps) / 1), "needed integers"),
    "column": (with_positions(lambda ps, n: (n + depths(ps))[:, None]), "have shape (7, 1)"),
    "parents changed": (
        lambda ps, n: (right_tree(ps, n), ps.__setitem__(0, 0))[0],
        "was changed in place",
    ),
}


@pytest.mark.parametrize("name", WRONG_TREES)
def test_wrong_trees(name: str) -> None:
    wrong, message = WRONG_TREES[name]
    refused(check_tree_mask(wrong), message)


def by_walking(parents: Any, length: int) -> Any:
    mask = np.zeros((len(parents), len(parents)), bool)
    for j in range(len(parents)):
        at = j
        while at >= 0:
            mask[j, at] = True
            at = parents[at]
    return mask, (length - 1 + mask.sum(axis=1)).tolist()


def by_products(parents: Any, length: int) -> Any:
    reach = direct(parents).astype(int)
    for _ in parents:
        reach = np.minimum(reach @ reach, 1)
    return reach > 0, length + depths(parents).astype(np.int32)


def by_recursion(parents: Any, length: int) -> Any:
    def path(j: int) -> list[int]:
        return [] if j < 0 else [*path(parents[j]), j]

    paths = [path(j) for j in range(len(parents))]
    mask = [[c in path for c in range(len(parents))] for path in paths]
    return np.array(mask), np.array([length + len(path) - 1 for path in paths])


@pytest.mark.parametrize("answer", [right_tree, by_walking, by_products, by_recursion])
def test_right_trees(answer: Any) -> None:
    report = check_tree_mask(answer)
    assert report.passed, report


@pytest.mark.skipif(not hasattr(Step, "ancestors"), reason="this kvlib plans no trees")
@pytest.mark.parametrize("parents", [EXAMPLE, (-1, -1, 0, 1, 2), (-1, 0, 1, 2, 0, 4, 1)])
def test_the_mask_and_the_positions_are_those_of_a_step(parents: tuple[int, ...]) -> None:
    cache = DenseCache([LayerSpec(1, 2)], 1, 20, xp=np)
    cache.add("a")
    x = np.zeros((4, 1, 2), np.float32)
    cache.append(0, x, x, cache.plan(["a"], [4]))
    step = cache.plan(["a"], [len(parents)], parents=[parents])
    mask, positions = by_walking(parents, 4)
    assert (step.ancestors(0) == mask).all() and step.positions.tolist() == positions


def test_a_guess_on_another_branch_is_named() -> None:
    wrong = WRONG_TREES["siblings"][0]
    assert "guess 1 (parent 0) sees guess 2, which is on another branch" in str(
        check_tree_mask(wrong).finding
    )
    assert len(EXAMPLE) == 7


# ------------------------------------------------------------------------------------ rollback


WRONG_LOOPS: Wrong = {
    "L + a": (loop(keep=0), "So it throws away the token at position"),
    "L + a + 2": (
        loop(keep=2, drafter_keeps=lambda new, old, gamma: min(new - 1, old + gamma)),
        "a refused guess",
    ),
    "L + a, target alone": (
        loop(keep=0, drafter_keeps=lambda new, old, gamma: min(new + 1, old + gamma)),
        "the target holds 7 tokens, of which the first 4 belong to the text, but it is fed with "
        "start = 3. So it throws away the token at position 3, which is right",
    ),
    "drafter keeps L + a": (
        loop(drafter_keeps=lambda new, old, gamma: new - 1),
        "the drafter holds 6 tokens, of which the first 4 belong to the text, but it is fed with "
        "start = 3. So it throws away the token at position 3, which is right",
    ),
    "the drafter as long as the target": (
        loop(drafter_keeps=lambda new, old, gamma: new, fill=False),
        "It was never fed its own last guess",
    ),
    "the newest token alone": (loop(fill=False), "The drafter was never fed token"),
    "the drafter is not cut": (
        loop(drafter_keeps=lambda new, old, gamma: old + gamma, fill=False),
        "a refused guess",
    ),
    "neither is cut": (never_cut, "a refused guess"),
    "no guesses": (plain, "the target is fed 0 guesses, needed 3"),
    "recomputing": (recomputing, "So it throws away the tokens at positions 0 to"),
    "the drafter begins anew": (drafting_anew, "So it throws away the tokens at positions 0 to"),
    "more guesses": (asking_for_one_more, "gamma is 3, but the target is fed 4 guesses"),
    "one guess": (with_one_guess, "the target is fed 1 guesses, needed 3"),
    "its own guesses": (own_guesses, "is fed 77 as guess 2, but the drafter chose"),
    "swallowed": (swallowing, "So it throws away the token at position"),
    "too many": (loop(cut=False), "The last step may bring more than are wanted"),
    "once more": (one_call_too_many, "new tokens are known, and the target is called again"),
    "guesses, not choices": (
        loop(choose=lambda choices, guesses: [*guesses, 0]),
        "where the text has",
    ),
    "with the prompt": (given(lambda new, prompt: prompt + new), "the prompt is returned, too"),
    "without the first": (given(lambda new, prompt: new[1:]), "the first new token is missing"),
    "too few": (given(lambda new, prompt: new[: 1 + len(new) // 2]), "got only 7 of them"),
    "text": (given(lambda new, prompt: str(new)), "needed a list of token ids"),
    "another token": (given(lambda new, prompt: [*new[:-1], new[-1] ^ 1]), "needed"),
    "no call": (lambda target, drafter, prompt, n, gamma: [0] * n, "token 0 is 0, needed"),
    "floats": (
        lambda target, drafter, prompt, n, gamma: target(prompt, 0.5),
        "start of the target: got 0.5 (float), needed a whole number",
    ),
    "nothing fed": (
        lambda target, drafter, prompt, n, gamma: target([], 0),
        "the target is fed an empty list",
    ),
}


@pytest.mark.parametrize("name", WRONG_LOOPS)
def test_wrong_loops(name: str) -> None:
    wrong, message = WRONG_LOOPS[name]
    refused(check_speculate(wrong), message)


@pytest.mark.parametrize("answer", [loop(), self_correcting, with_last_guess, prompt_in_pieces])
def test_right_loops(answer: Any) -> None:
    report = check_speculate(answer)
    assert report.passed, report


def test_a_wrong_length_of_the_drafter_alone_leaves_the_text_right() -> None:
    report = check_speculate(loop(fill=False))
    assert len(report.proved) == 2
    assert "The new tokens stay right" in report.finding
