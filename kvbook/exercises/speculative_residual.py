"""The checker of what is drawn after a refused guess, by counting all that can happen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from kvbook.exercises.received import numbers
from kvbook.exercises.report import Finding, checker, expect_shape
from kvbook.exercises.wording import apart

Pair = tuple[np.ndarray, np.ndarray]  # p and q, each (V,)
CLOSE = 1e-6  # of a probability; single precision is good enough


@checker
def check_residual(residual: Callable[..., Any]) -> Iterator[str]:
    """residual(p (V,), q (V,)) → (V,): the distribution from which a refused guess is replaced."""
    rng = np.random.default_rng(62)
    example = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.125, 0.625])
    pairs = [example, *(eighths(rng, size) for size in (2, 4, 5, 8))]
    for p, q in pairs:
        _distribution(residual, p, q)
    yield "the result is a distribution: no number below 0, and a sum of 1"

    _expect_law(residual, [*pairs, *(tuple(rng.dirichlet(np.ones(6), 2)) for _ in range(6))])
    yield (
        "over all guesses, accepted or refused, each token comes out with exactly the probability "
        "that the model gives it"
    )

    _expect_law(residual, one_hot(rng))
    yield "this also holds where p or q is 0 or 1: greedy decoding, and guesses that were not drawn"

    near = rng.dirichlet(np.ones(4))
    moved = near + np.array([1, 1, -2, 0]) * 2.0**-16
    _expect_scaled(residual, near, moved)
    yield "a difference of 0.00003 between p and q is scaled up to a sum of 1, too"

    for p in (example[0], near, np.eye(4)[int(rng.integers(4))]):
        _expect_equal_models(residual, p)
    yield "where p and q are equal, no guess is refused, and the result is p"


def eighths(rng: np.random.Generator, size: int) -> Pair:
    """Two different distributions (size,) in units of 1/64, without a 0."""
    while True:
        p, q = (
            (1 + rng.multinomial(64 - size, rng.dirichlet(np.ones(size)))) / 64 for _ in range(2)
        )
        if np.abs(p - q).max() > 0.1:
            return p, q


def one_hot(rng: np.random.Generator) -> list[Pair]:
    """p puts everything on one token, q does, and both do, on different tokens."""
    p, q = rng.dirichlet(np.ones(5), 2)
    i, j = np.eye(5)[rng.choice(5, 2, replace=False)]
    return [(i, q), (p, j), (i, j)]


def rest_of(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The right answer, (V,) float64, for p and q that differ."""
    rest = np.maximum(p - q, 0.0)
    found: np.ndarray = rest / rest.sum()
    return found


def law(p: np.ndarray, q: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """How often each token comes out, (V,): the guess x, accepted, or one drawn from `rest`."""
    kept = np.minimum(p, q)  # q(x) · min(1, p(x) / q(x))
    found: np.ndarray = kept + (1.0 - kept.sum()) * rest
    return found


def _said(p: np.ndarray, q: np.ndarray) -> str:
    return f"p = {_listed(p)}, q = {_listed(q)}"


def _listed(x: np.ndarray) -> str:
    return f"[{', '.join(f'{v:.4g}' for v in x.tolist())}]"


def _called(residual: Callable[..., Any], p: np.ndarray, q: np.ndarray) -> np.ndarray:
    got = numbers(residual(p.copy(), q.copy()), "the result")
    expect_shape(got, p.shape, "the result", letters="V")
    if got.dtype.kind != "f":
        raise Finding(f"the result: got an array of {got.dtype}, needed floats: probabilities")
    return got.astype(np.float64)


def _distribution(residual: Callable[..., Any], p: np.ndarray, q: np.ndarray) -> None:
    got, rest = _called(residual, p, q), np.maximum(p - q, 0.0)
    said = f"{_said(p, q)}: the result is {_listed(got)}"
    if not np.isfinite(got).all():
        why = ": p - q sums to 0, so keep only its positive part" if _is_raw(got, p, q) else ""
        raise Finding(f"{said}, needed finite numbers{why}")
    if (got < 0).any():
        x = int(got.argmin())
        raise Finding(
            f"{said}, but token {x} has {got[x]:.4g}, and no probability is below 0. Where q is "
            "larger than p, the token came often enough as a guess, so it gets 0 here"
        )
    if abs(got.sum() - 1) > CLOSE:
        why = ": divide by the sum" if np.allclose(got, rest, atol=CLOSE) else ""
        if np.allclose(got, np.minimum(p, q), atol=CLOSE):
            why = ". It is the part that is accepted already; the part of p above q is missing"
        total = apart(got.sum(), 1.0)[0]
        raise Finding(f"{said}, which sums to {total}, needed a sum of 1{why}")


def _is_raw(got: np.ndarray, p: np.ndarray, q: np.ndarray) -> bool:
    """Whether the numbers look like p − q, divided by its sum of 0."""
    return bool(np.array_equal(np.isfinite(got), p == q) or not np.isfinite(got).any())


def _expect_law(residual: Callable[..., Any], pairs: Sequence[Pair]) -> None:
    """Over guess and replacement, each token must come out as p has it."""
    for p, q in pairs:
        _distribution(residual, p, q)
    asked = [(p, q, _called(residual, p, q)) for p, q in pairs]
    for p, q, got in asked:
        comes, kept, right = law(p, q, got), np.minimum(p, q), rest_of(p, q)
        if np.allclose(comes, p, rtol=0, atol=CLOSE):
            continue
        x = int(np.abs(comes - p).argmax())
        came, found = apart(comes[x], p[x]), apart(got[x], right[x])
        raise Finding(
            f"{_said(p, q)}: token {x} comes out with probability {came[0]}, needed p = {came[1]}. "
            f"As an accepted guess it comes with min(p, q) = {kept[x]:.4g}, and a guess is refused "
            f"with probability {1 - kept.sum():.4g}, so the result must give the token {found[1]}, "
            f"got {found[0]}{_suspect(asked)}"
        )


def _suspect(asked: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> str:
    """The mistake that explains all results, or nothing."""
    for words, wrong in SUSPECTS.items():
        if all(np.allclose(got, wrong(p, q), rtol=0, atol=CLOSE) for p, q, got in asked):
            return f". {words}"
    return ""


def _expect_scaled(residual: Callable[..., Any], p: np.ndarray, q: np.ndarray) -> None:
    """The same for p and q that differ by little: a sum that is small must not be made larger."""
    got = _called(residual, p, q)
    if abs(got.sum() - 1) > CLOSE:
        total = apart(got.sum(), 1.0, ".6g")[0]
        raise Finding(
            f"p and q differ by 0.00003, and the result sums to {total}, needed 1: divide "
            "by the sum itself, with nothing added to it"
        )
    _expect_law(residual, [(p, q)])


def _expect_equal_models(residual: Callable[..., Any], p: np.ndarray) -> None:
    got = _called(residual, p, p)
    if np.allclose(got, p, rtol=0, atol=CLOSE):
        return
    words = f"needed p = {_listed(p)}, because rounding may refuse a guess even then"
    if not np.isfinite(got).all():
        words = f"{words}; 0 / 0 is not a number"
    raise Finding(f"p and q are both {_listed(p)}: got {_listed(got)}, {words}")


def _scaled(x: np.ndarray) -> np.ndarray:
    found: np.ndarray = x / x.sum()
    return found


def _softmax(x: np.ndarray) -> np.ndarray:
    return _scaled(np.exp(x - x.max()))


def _ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.divide(a, b, out=np.zeros_like(a), where=b > 0)


SUSPECTS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "The result is p itself. What came as an accepted guess must not be drawn a second time": (
        lambda p, q: p
    ),
    "The result is q itself, from which the refused guess came": lambda p, q: q,
    "p and q are exchanged": lambda p, q: rest_of(q, p),
    "The absolute difference was taken; where q is larger than p, the token gets 0": (
        lambda p, q: _scaled(np.abs(p - q))
    ),
    "The right tokens are kept, but with their whole p; subtract q": (
        lambda p, q: _scaled(np.where(p > q, p, 0.0))
    ),
    "All tokens with p above q get the same; each must get its share of p - q": (
        lambda p, q: _scaled((p > q) * 1.0)
    ),
    "The token with the largest difference gets everything; each must get its share of p - q": (
        lambda p, q: np.eye(len(p))[int((p - q).argmax())]
    ),
    "min(p, q) is the part that is accepted already; the part of p above q is missing": (
        lambda p, q: _scaled(np.minimum(p, q))
    ),
    "The differences went through a softmax; divide them by their sum": (
        lambda p, q: _softmax(p - q)
    ),
    "The positive differences went through a softmax; divide them by their sum": (
        lambda p, q: _softmax(np.maximum(p - q, 0))
    ),
    "The differences were squared": lambda p, q: _scaled(np.maximum(p - q, 0) ** 2),
    "The difference was divided by p; it counts as it is": (
        lambda p, q: _scaled(np.maximum(1 - _ratio(q, p), 0) * (p > 0))
    ),
    "The difference was divided by q; it counts as it is": (
        lambda p, q: _scaled(_ratio(np.maximum(p - q, 0), q))
    ),
    "The likeliest token gets everything; that is right for greedy decoding alone": (
        lambda p, q: np.eye(len(p))[int(p.argmax())]
    ),
    "It is the mean of p and the right result; p itself has no part in it": (
        lambda p, q: (p + rest_of(p, q)) / 2
    ),
}
