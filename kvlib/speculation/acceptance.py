"""Which guesses a text keeps, and the token after them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

DRAFTED, JUDGED = 1, 2  # streams of random numbers: for guesses, and for verdicts on them


def accept(
    p: np.ndarray,
    draft: Sequence[int],
    q: np.ndarray,
    verdicts: Sequence[float] | np.ndarray,
    numbers: Sequence[float] | np.ndarray,
) -> list[int]:
    """The tokens that a text gets from a step with n guesses: those accepted, and one more.

    p (n + 1, V)      the model's distribution at each guess, and after all of them
    draft             n token ids, drawn from q
    q (n, V)          the distribution that each guess was drawn from
    verdicts (n,)     random numbers in [0, 1) that decide on the guesses
    numbers (n + 1,)  random numbers in [0, 1) that draw the token after the accepted guesses;
                      they must be independent of the verdicts and of the draft

    A guess x is accepted with probability min(1, p(x) / q(x)). At the first one refused, the token
    is drawn from max(0, p − q), scaled to sum to 1, and the guesses after it are dropped. If all
    are accepted, one more token is drawn from the last row of p. Each token is then distributed as
    p, whatever q is (arXiv:2211.17192, theorem 1 in appendix A.1).

    >>> p, q = np.array([[0.2, 0.8], [1.0, 0.0]]), np.array([[0.5, 0.5]])
    >>> accept(p, [1], q, verdicts=[0.99], numbers=[0.5, 0.5])  # p(1) > q(1): right, and one more
    [1, 0]
    >>> accept(p, [0], q, verdicts=[0.5], numbers=[0.5, 0.5])  # 0.5 > 0.2 / 0.5: refused
    [1]
    """
    for i, token in enumerate(draft):
        if verdicts[i] * q[i, token] >= p[i, token]:
            rest = np.maximum(p[i] - q[i], 0.0)  # all 0 if p and q are equal but for rounding
            return [*map(int, draft[:i]), inverse(rest if rest.any() else p[i], numbers[i])]
    return [*map(int, draft), inverse(p[len(draft)], numbers[len(draft)])]


def agreed(tokens: Sequence[int], draft: Sequence[int]) -> list[int]:
    """The same for guesses that were not drawn: those that equal the tokens, and one more.

    tokens: the n + 1 tokens that the model chooses, one at each guess and one after them, each as
    if the guesses before it were right. A guess that equals the token which is drawn anyway changes
    nothing, so the text is the one that it would get without guesses, to the token.

    >>> agreed([4, 5, 6], draft=[4, 7])
    [4, 5]
    """
    n = next((i for i, (x, y) in enumerate(zip(tokens, draft)) if x != y), len(draft))
    return [int(t) for t in tokens[: n + 1]]


def inverse(weights: np.ndarray, number: float) -> int:
    """The index that a random number in [0, 1) draws, in proportion to the weights (V,).

    >>> [inverse(np.array([1.0, 2.0, 0.0]), number) for number in (0.3, 0.4)]
    [0, 1]
    """
    sums = np.cumsum(weights)
    return int(np.searchsorted(sums, number * sums[-1], side="right"))
