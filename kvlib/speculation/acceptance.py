"""Which guesses a text keeps, and the token after them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvlib.sampling import rng_at

DRAFTED, JUDGED = 1, 2  # streams of random numbers: for guesses, and for verdicts on them


def accept(p: np.ndarray, draft: Sequence[int], q: np.ndarray, seed: int, at: int) -> list[int]:
    """The tokens that a text gets from a step with n guesses: those accepted, and one more.

    p (n + 1, V)   the model's distribution at each guess, and after all of them
    draft          n token ids, drawn from q
    q (n, V)       the distribution that each guess was drawn from
    seed, at       of the request: its seed, and the position of the first guess

    A guess x is accepted with probability min(1, p(x) / q(x)). At the first one refused, the token
    is drawn from max(0, p − q), scaled to sum to 1, and the guesses behind it are dropped. If all
    are accepted, one more token is drawn from the last row of p. Each token is then distributed as
    p, whatever q is (arXiv:2211.17192, theorem 1 in appendix A.1).

    >>> p = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    >>> accept(p, [1], np.array([[0.0, 1.0, 0.0]]), seed=0, at=5)  # right, and one more
    [1, 0]
    >>> accept(p, [2], np.array([[0.0, 0.0, 1.0]]), seed=0, at=5)  # wrong
    [1]
    """
    found: list[int] = []
    for i, token in enumerate(draft):
        verdict = rng_at(seed, at + i, JUDGED).random()
        if verdict * q[i, token] < p[i, token]:
            found.append(int(token))
            continue
        rest = np.maximum(p[i] - q[i], 0.0)
        if not rest.any():  # p and q are equal but for rounding
            rest = p[i]
        return [*found, inverse(rest, rng_at(seed, at + i))]
    return [*found, inverse(p[len(found)], rng_at(seed, at + len(found)))]


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


def inverse(weights: np.ndarray, rng: np.random.Generator) -> int:
    """Draw an index with probability in proportion to its weight, (V,): by inverse transform.

    >>> inverse(np.array([0.0, 2.0, 0.0]), np.random.default_rng(0))
    1
    """
    sums = np.cumsum(weights)
    return int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))
