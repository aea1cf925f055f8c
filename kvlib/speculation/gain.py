"""What guessing gains: the tokens and the time to expect, and how many guesses are best."""

import math
from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from kvlib.arguments import check_integer, check_list, check_positive, describe, number
from kvlib.caches.trees import Parents
from kvlib.costs.formulas import batched_time
from kvlib.serve.request import Request
from kvlib.speculation.draft import check_tree, ranks

MOST_GUESSES = 1024


def expected_tokens(acceptance: float, gamma: int) -> float:
    """Return the tokens per step if each of `gamma` guesses is accepted with this probability.

    (1 − a^(γ+1)) / (1 − a), arXiv:2211.17192, equation 1; γ + 1 for a = 1.

    >>> [round(expected_tokens(0.7, gamma), 3) for gamma in (1, 3, 5, 7)]
    [1.7, 2.533, 2.941, 3.141]
    """
    a, gamma = _fraction("acceptance", acceptance), check_integer("gamma", gamma, 0, MOST_GUESSES)
    return math.fsum(a**i for i in range(gamma + 1))


def speed_up(acceptance: float, gamma: int, cost: float, step: float = 1.0) -> float:
    """Return how many times faster a text is written than without guesses.

    cost   time of one guess, as a share of one step of the model that decodes a single token
    step   time of the step that checks the guesses, in the same unit; see `checking_time`

    arXiv:2211.17192, theorem 3.8, in which step is 1.

    >>> round(speed_up(0.7, gamma=4, cost=0.1), 3)
    1.981
    """
    cost, step = _time("cost", cost, 0.0), _time("step", step, 1e-9)
    gamma = check_integer("gamma", gamma, 0, MOST_GUESSES)
    return expected_tokens(acceptance, gamma) / (gamma * cost + step)


def checking_time(gamma: int, batch: int, ridge: float) -> float:
    """Return how many times as long a step takes if it checks `gamma` guesses for each request.

    batch   requests in a step
    ridge   tokens per step at which arithmetic takes as long as reading 16-bit weights, such as
            ``GPUS["h100-sxm"].ridge().value``

    t(batch · (γ + 1)) / t(batch) with t(n) = max(1, n / ridge), the roofline of the products with
    weights (doi:10.1145/1498765.1498785); attention is not counted.

    >>> [round(checking_time(gamma, batch=128, ridge=295), 2) for gamma in (1, 3, 5, 7)]
    [1.0, 1.74, 2.6, 3.47]
    """
    gamma, batch = check_integer("gamma", gamma, 0, MOST_GUESSES), check_integer("batch", batch)
    ridge = check_positive("ridge", ridge)
    return batched_time(batch * (gamma + 1), ridge) / batched_time(batch, ridge)


def best_gamma(
    acceptance: float, cost: float, most: int = 16, step: Callable[[int], float] | None = None
) -> int:
    """Return the number of guesses, 0 ... most, with the largest `speed_up`, or the smallest such.

    step: the time of a step that checks γ guesses, as a function of γ; 1 unless given.

    >>> [best_gamma(a, cost=0.05) for a in (0.5, 0.7, 0.8, 0.9)]
    [3, 6, 8, 13]
    """
    most = check_integer("most", most, 0, MOST_GUESSES)
    if step is not None and not callable(step):
        raise TypeError(f"step must be a function of the number of guesses, got {describe(step)}")
    gains = [
        speed_up(acceptance, n, cost, 1.0 if step is None else step(n)) for n in range(most + 1)
    ]
    return gains.index(max(gains))


def adaptive(most: int = 8, cost: float = 0.05) -> Callable[[Request], int]:
    """Return a rule for ``gamma``: the best number of guesses, by the share that was right lately.

    At least one, to notice when guesses are right again, and at most `most`; cost as in `speed_up`.

    >>> adaptive(most=8, cost=0.05)(Request("a", [1], lately=0.9))
    8
    """
    most, cost = check_integer("most", most, 1, MOST_GUESSES), _time("cost", cost, 0.0)
    best = [max(1, best_gamma(percent / 100, cost, most)) for percent in range(101)]

    def rule(request: Request) -> int:
        if not isinstance(request, Request):
            raise TypeError(f"gamma takes a request of a scheduler, got {describe(request)}")
        return best[round(100 * request.lately)]

    return rule


def expected_tree_tokens(tree: Sequence[int], acceptance: Sequence[float]) -> float:
    """Return the tokens per step of a tree of guesses: 1, plus the probability of each path.

    tree        for each guess, the number of the earlier one that it follows; −1: the text
    acceptance  the probability that the first guess among siblings is the right one, that the
                second is, and so on; 0 for those that are not listed. Together at most 1.

    Of a chain only the first counts, as in `expected_tokens` (arXiv:2402.12374, section 4.1).

    >>> from kvlib.speculation import branches
    >>> round(expected_tree_tokens(branches(2, 1), [0.7, 0.2]), 3)  # 1 + 0.7 + 0.2 + 0.9 * 0.7
    2.53
    """
    parents, chances = check_tree("tree", tree), check_chances(acceptance)
    path_chances = list[float]()
    for parent, rank in zip(parents, ranks(parents), strict=True):
        chance = chances[rank] if rank < len(chances) else 0.0
        path_chances.append(chance if parent < 0 else chance * path_chances[parent])
    return 1 + math.fsum(path_chances)


def best_tree(acceptance: Sequence[float], guesses: int, levels: int = MOST_GUESSES) -> Parents:
    """Return the tree with the largest `expected_tree_tokens`, as the parents of its guesses.

    acceptance  as in `expected_tree_tokens`; no number may be above the one before it
    guesses     how many guesses the tree has; it has fewer only if `levels` allows no more
    levels      how many guesses follow one another at most; a draft model needs a step for each

    The likeliest guess is added again and again, so the first n guesses are the best tree of n.
    (Sequoia, arXiv:2402.12374, finds the same trees by dynamic programming.)

    >>> best_tree([0.6, 0.3], guesses=4)  # 0.6; 0.6²; 0.3; 0.6³
    (-1, 0, -1, 1)
    """
    chances = check_chances(acceptance)
    if any(x < y for x, y in zip(chances, chances[1:])):
        raise ValueError(
            "acceptance must not rise from one sibling to the next, because the first ones are "
            f"tried first; got {describe(acceptance)}"
        )
    most = check_integer("guesses", guesses, 0, MOST_GUESSES)
    levels = check_integer("levels", levels, 1, MOST_GUESSES)
    parents, likely = list[int](), list[float]()
    # of each guess that may be added next: −probability, order of listing, parent, rank, level
    candidates, listed = [(-chances[0], 0, -1, 0, 1)], 1
    while candidates and len(parents) < most:
        chance, _, parent, rank, level = heappop(candidates)
        parents.append(parent)
        likely.append(-chance)
        if rank + 1 < len(chances):  # its next sibling
            above = 1.0 if parent < 0 else likely[parent]
            heappush(candidates, (-above * chances[rank + 1], listed, parent, rank + 1, level))
        if level < levels:  # its first child
            heappush(candidates, (chance * chances[0], listed + 1, len(parents) - 1, 0, level + 1))
        listed += 2
    return tuple(parents)


def check_chances(acceptance: Sequence[float]) -> list[float]:
    """Return the probabilities that the first sibling is right, that the second is, and so on."""
    numbers = check_list("acceptance", acceptance, "probabilities, one per sibling")
    chances = [_fraction(f"acceptance[{i}]", x) for i, x in enumerate(numbers)]
    if not chances or math.fsum(chances) > 1 + 1e-9:
        raise ValueError(
            "acceptance must hold the probabilities that the first sibling is right, or the second "
            f"and so on, at least one number and together at most 1; got {describe(acceptance)}"
        )
    return chances


def _fraction(name: str, x: float) -> float:
    value = number(x)
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be a share of guesses, 0 ... 1, got {describe(x)}")
    return value


def _time(name: str, x: float, least: float) -> float:
    value = number(x)
    if not least <= value < math.inf:
        raise ValueError(
            f"{name} must be a time, as a share of one step, of at least {least:g}, "
            f"got {describe(x)}"
        )
    return value
