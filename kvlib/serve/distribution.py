"""What logits say: the likeliest token, or a distribution after temperature, top-k and top-p."""

import math

import numpy as np

from kvlib.arguments import check_integer, describe, number, type_of
from kvlib.arrays import Array, namespace, to_numpy


def greedy(logits: Array) -> list[int]:
    """The most likely token of each row of logits (B, V), the lowest id among equals: B ids.

    >>> import numpy as np
    >>> greedy(np.array([[0.0, 2.0, 1.0], [3.0, 0.0, 3.0]]))
    [1, 0]
    """
    check_shape(logits)
    xp = namespace(logits)
    if xp is np:  # its argmax prefers NaN, so the logits that it finds show whether all is well
        tokens = logits.argmax(axis=-1).tolist()
        if all(math.isfinite(logits[row, i]) for row, i in enumerate(tokens)):
            return list(tokens)
    top = xp.max(logits, axis=-1)
    # One copy from a device, not two: a row without a finite largest logit says so by its id.
    ids = to_numpy(xp.where(xp.isfinite(top), xp.argmax(logits, axis=-1), -1)).tolist()
    if -1 in ids:
        check_finite(top)
    return [int(i) for i in ids]


def probabilities(
    logits: Array, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> np.ndarray:
    """The distribution that :func:`kvlib.sample` draws from: logits (B, V) → float64 (B, V).

    Logits are divided by ``temperature``; then only the ``top_k`` most likely tokens stay; then
    only the smallest set of likeliest tokens whose probability reaches ``top_p`` (nucleus
    sampling, arXiv:1904.09751). Ties go to the lower id. The kept weights are scaled to sum to 1.

    >>> import numpy as np
    >>> probabilities(np.log(np.array([[0.5, 0.3, 0.2]])), top_k=2).round(3)
    array([[0.625, 0.375, 0.   ]])
    """
    temperature, top_k, top_p = check_settings(temperature, top_k, top_p)
    check_shape(logits)
    x = to_numpy(logits).astype(np.float64)
    top = x.max(axis=-1, keepdims=True)
    check_finite(top)
    if temperature == 0:
        p = np.zeros_like(x)
        p[np.arange(x.shape[0]), x.argmax(axis=1)] = 1.0
        return p
    with np.errstate(over="ignore"):  # a small temperature makes −inf of it, as it should
        p = np.exp((x - top) / temperature)
    p /= p.sum(axis=1, keepdims=True)
    if top_k is None and (top_p is None or top_p >= 1):  # every token stays: nothing to sort
        return p / p.sum(axis=1, keepdims=True)
    order = np.argsort(-x, axis=1, kind="stable")  # stable: equals stay in order of id
    ranked = np.take_along_axis(p, order, axis=1)
    keep = np.ones_like(ranked, dtype=bool)
    if top_k is not None:
        keep[:, top_k:] = False
    if top_p is not None and top_p < 1:  # at 1 also what no longer changes the sum may be drawn
        weights = ranked * keep
        weights /= weights.sum(axis=1, keepdims=True)
        keep &= np.cumsum(weights, axis=1) - weights < top_p  # reached before this token: drop it
    out = np.zeros_like(p)
    np.put_along_axis(out, order, ranked * keep, axis=1)
    return out / out.sum(axis=1, keepdims=True)


def check_settings(
    temperature: float, top_k: int | None, top_p: float | None
) -> tuple[float, int | None, float | None]:
    """The settings as Python numbers. Raises ValueError for those that define no distribution.

    >>> check_settings(temperature=0.7, top_k=40, top_p=None)
    (0.7, 40, None)
    """
    heat, mass = number(temperature), 1.0 if top_p is None else number(top_p)
    if not 0 <= heat < math.inf:
        raise ValueError(
            f"temperature must be a finite number of at least 0, got {describe(temperature)}"
        )
    if top_k is not None:
        top_k = check_integer("top_k", top_k)
    if not 0 < mass <= 1:
        raise ValueError(f"top_p must be in (0, 1], got {describe(top_p)}")
    return heat, top_k, None if top_p is None else mass


def check_shape(logits: Array) -> None:
    """Refuse what is no (B, V) of real numbers."""
    if not hasattr(logits, "ndim"):
        raise TypeError(f"logits must be an array (B, V), got {type_of(logits)}")
    if not namespace(logits).isdtype(logits.dtype, ("real floating", "integral")):
        raise TypeError(f"logits must be real numbers, got {logits.dtype}")
    if logits.ndim != 2 or logits.shape[1] == 0:
        raise ValueError(f"logits must be (B, V) with V at least 1, got shape {logits.shape}")


def check_finite(top: Array) -> None:
    """Refuse logits that name no token; ``top`` holds the largest of each row, NaN if one is."""
    wrong = [x for x in to_numpy(top).ravel().tolist() if not math.isfinite(x)]
    if wrong:
        raise ValueError(f"the largest logit of a row must be a finite number, got {wrong[0]}")
