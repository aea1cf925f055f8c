"""Which guesses a text keeps that were drawn, and the token after them."""

from collections.abc import Sequence

import numpy as np

from kvlib.arguments import check_list, describe, is_integer
from kvlib.arguments import number as real
from kvlib.arrays import refuse_mask
from kvlib.speculation.draft import chain, check_tree, children

# Streams of random numbers: for guesses, and for verdicts on them. Of several guesses for one
# position, number k has DRAFTED + 2 k and JUDGED + 2 k.
DRAFTED, JUDGED = 1, 2
Numbers = Sequence[float] | np.ndarray


def accept(
    p: np.ndarray, draft: Sequence[int], q: np.ndarray, verdicts: Numbers, numbers: Numbers
) -> list[int]:
    """Return the tokens that a text gets from a step with n guesses: those accepted, and one more.

    p (n + 1, V)      the model's distribution at each guess, and after all of them
    draft             n token ids, drawn from q
    q (n, V)          the distribution that each guess was drawn from
    verdicts (n,)     random numbers in [0, 1) that decide on the guesses
    numbers (n + 1,)  random numbers in [0, 1), independent of the verdicts and of the draft, that
                      draw the token after the accepted guesses

    A guess x is accepted with probability min(1, p(x) / q(x)). At the first one refused, the token
    is drawn from max(0, p − q), scaled to sum to 1, and the guesses after it are dropped. Each
    token is then distributed as p, whatever q is (arXiv:2211.17192, theorem 1 in appendix A.1).

    >>> p, q = np.array([[0.2, 0.8], [1.0, 0.0]]), np.array([[0.5, 0.5]])
    >>> accept(p, [0], q, verdicts=[0.5], numbers=[0.5, 0.5])  # 0.5 > 0.2 / 0.5: refused
    [1]
    """
    _check(p, draft, q, verdicts, numbers)
    path, token = _accept(p, draft, chain(len(draft)), q, verdicts, numbers)
    return [*(int(draft[j]) for j in path), token]


def accept_tree(
    p: np.ndarray,
    tokens: Sequence[int],
    parents: Sequence[int],
    q: np.ndarray,
    verdicts: Numbers,
    numbers: Numbers,
) -> tuple[list[int], int]:
    """Return the numbers of the guesses of a tree that a text gets, and the token after them.

    p (n + 1, V)      the model's distribution after the text, and after each guess
    tokens, parents   n token ids; siblings were drawn from one row of q without replacement
    q (n, V)          for each guess, the distribution from which its first sibling was drawn
    verdicts (n,), numbers (n + 1,)  as in `accept`

    Siblings are judged in turn: x is accepted with probability min(1, p(x) / q(x)). If it is
    refused, p becomes max(0, p − q), q loses x, both are scaled to sum to 1, and the next one is
    judged by these. After an accepted guess, its children are judged. If none is accepted, the
    token is drawn from the p that remains. Each token is then distributed as p, whatever q is
    (recursive rejection sampling, arXiv:2402.14160).

    >>> p, q = np.array([[0.1, 0.9], [0.5, 0.5], [1.0, 0.0]]), np.array([[0.8, 0.2], [0.8, 0.2]])
    >>> accept_tree(p, [0, 1], (-1, -1), q, [0.5, 0.5], [0.5] * 3)  # 0 is refused, 1 is accepted
    ([1], 0)
    """
    _check(p, tokens, q, verdicts, numbers)
    return _accept(p, tokens, check_tree("parents", parents, len(tokens)), q, verdicts, numbers)


def _check(
    p: np.ndarray, tokens: Sequence[int], q: np.ndarray, verdicts: Numbers, numbers: Numbers
) -> None:
    for name, array in (("p", p), ("q", q)):
        if not isinstance(array, np.ndarray):
            raise TypeError(f"{name} must be a NumPy array, got {describe(array)}")
        refuse_mask(name, array)
    n, shape = len(check_list("guesses", tokens, "token ids")), np.shape(p)
    if len(shape) != 2 or shape[0] != n + 1:
        raise ValueError(f"p must be ({n + 1}, V) for {n} guesses, got {shape}")
    if np.shape(q) != (n, shape[1]):
        raise ValueError(f"q must be {(n, shape[1])} for {n} guesses, got {np.shape(q)}")
    for name, drawn, needed in (("verdicts", verdicts, n), ("numbers", numbers, n + 1)):
        if len(check_list(name, drawn, "random numbers")) != needed:
            raise ValueError(f"{name} must hold {needed} numbers, got {len(drawn)}")
    wrong = [token for token in tokens if not is_integer(token) or not 0 <= token < shape[1]]
    if wrong:
        raise ValueError(
            f"guesses must be token ids, 0 ... {shape[1] - 1}, got {describe(wrong[0])}"
        )


def _accept(
    p: np.ndarray,
    tokens: Sequence[int],
    parents: Sequence[int],
    q: np.ndarray,
    verdicts: Numbers,
    numbers: Numbers,
) -> tuple[list[int], int]:
    after, path, at = children(parents), list[int](), -1
    while True:
        siblings, rest = after.get(at, []), p[at + 1]
        among = q[siblings[0]] if siblings else rest
        for j in siblings:
            if verdicts[j] * among[tokens[j]] < rest[tokens[j]]:
                path.append(at := j)
                break
            rest = _scaled(np.maximum(rest - among, 0), rest)
            if j != siblings[-1]:
                among = among.copy()
                among[tokens[j]] = 0
                among = _scaled(among, among)
        else:
            return path, inverse(rest, numbers[at + 1])


def _scaled(weights: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Scale weights to sum to 1. All are 0 if p and q are equal but for rounding."""
    total = weights.sum()
    return weights / total if total else otherwise


def inverse(weights: np.ndarray, number: float) -> int:
    """Return the index that a random number in [0, 1) draws, in proportion to weights (V,)."""
    if not 0 <= real(number) < 1:
        raise ValueError(f"numbers must be random numbers in [0, 1), got {describe(number)}")
    sums = np.cumsum(weights)
    return int(np.searchsorted(sums, number * sums[-1], side="right"))
