"""From logits to a token: greedy, or drawn after temperature, top-k and top-p."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kvlib.arrays import Array, namespace, to_numpy


def greedy(logits: Array) -> list[int]:
    """The most likely token of each row, the lowest id among equals.   logits (B, V) → B ids

    >>> import numpy as np
    >>> greedy(np.array([[0.0, 2.0, 1.0], [3.0, 0.0, 3.0]]))
    [1, 0]
    """
    _check_shape(logits)
    xp = namespace(logits)
    top = xp.max(logits, axis=-1)
    # One copy from a device, not two: a row without a finite largest logit says so by its id.
    ids = to_numpy(xp.where(xp.isfinite(top), xp.argmax(logits, axis=-1), -1)).tolist()
    if -1 in ids:
        _check_finite(top)
    return [int(i) for i in ids]


def probabilities(
    logits: Array,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> np.ndarray:
    """The distribution that :func:`sample` draws from.   logits (B, V) → float64 (B, V)

    Logits are divided by ``temperature``; then only the ``top_k`` most likely tokens stay; then
    only the smallest set of likeliest tokens whose probability reaches ``top_p`` (nucleus
    sampling, arXiv:1904.09751). Ties go to the lower id. What stays is scaled to sum to 1.

    >>> import numpy as np
    >>> probabilities(np.log(np.array([[0.5, 0.3, 0.2]])), top_k=2).round(3)
    array([[0.625, 0.375, 0.   ]])
    """
    check_settings(temperature, top_k, top_p)
    _check_shape(logits)
    x = to_numpy(logits).astype(np.float64)
    top = x.max(axis=-1, keepdims=True)
    _check_finite(top)
    if temperature == 0:
        p = np.zeros_like(x)
        p[np.arange(x.shape[0]), x.argmax(axis=1)] = 1.0
        return p
    with np.errstate(over="ignore"):  # a small temperature makes −inf of it, as it should
        p = np.exp((x - top) / temperature)
    p /= p.sum(axis=1, keepdims=True)
    order = np.argsort(-x, axis=1, kind="stable")  # stable: equals stay in order of id
    ranked = np.take_along_axis(p, order, axis=1)
    keep = np.ones_like(ranked, dtype=bool)
    if top_k is not None:
        keep[:, top_k:] = False
    if top_p is not None and top_p < 1:  # at 1 also what no longer changes the sum may be drawn
        kept = ranked * keep
        kept /= kept.sum(axis=1, keepdims=True)
        keep &= np.cumsum(kept, axis=1) - kept < top_p  # reached before this token: drop it
    out = np.zeros_like(p)
    np.put_along_axis(out, order, ranked * keep, axis=1)
    return out / out.sum(axis=1, keepdims=True)


def sample(
    logits: Array,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    rngs: np.random.Generator | list[np.random.Generator] | None = None,
) -> list[int]:
    """One token for each row.   logits (B, V) → B ids

    ``temperature`` 0 is greedy. ``rngs``: one generator, or one a row so that what a request
    draws does not depend on who shares its batch. A draw needs it: keep it from call to call, for
    with a new one of the same seed each call draws the same.

    Raises ValueError without ``rngs`` where there is something to draw, for settings that name no
    distribution and for rows without a finite largest logit.

    CuPy's logits stay on the device, where :func:`kvlib.kernels.sample_tokens` draws the same
    tokens from the same generators, up to rounding: one in millions falls on another token.

    >>> import numpy as np
    >>> logits = np.array([[0.0, 5.0, 1.0]])
    >>> sample(logits, temperature=0)
    [1]
    >>> sample(logits, top_k=1, rngs=np.random.default_rng(0))
    [1]
    """
    check_settings(temperature, top_k, top_p)
    if temperature == 0:
        return greedy(logits)
    _check_shape(logits)
    rows = logits.shape[0]
    rngs = _one_a_row(rngs, rows, temperature)
    if _kernel_takes(logits):
        from kvlib.kernels.sample import sample_tokens

        bits = [int(rng.random() * 2.0**64) for rng in rngs]
        return sample_tokens(logits, temperature, top_k, top_p, bits=np.array(bits, np.uint64))
    p = probabilities(logits, temperature, top_k, top_p)
    # Inverse transform: the first token whose cumulative probability passes a uniform draw.
    tokens = []
    for row, rng in zip(np.cumsum(p, axis=1), rngs, strict=True):
        tokens.append(int(np.searchsorted(row, rng.random() * row[-1], side="right")))
    return tokens


def rng_at(seed: int, position: int) -> np.random.Generator:
    """The generator that draws the token at one position of a text.

    ``position`` is the number of tokens before it, prompt included. The draw depends on the
    request's own seed and on this position, and on nothing else: not on the other requests of the
    batch, not on chunks or preemption, not on where the prompt ends. :func:`kvlib.generate`,
    :func:`kvlib.stream` and :class:`kvlib.Scheduler` all draw by this rule. It is number
    ``position`` of the stream PCG64(seed), so texts with the same seed use the same random
    numbers at the same positions: give requests their own seeds where that matters.

    >>> numbers = np.random.Generator(np.random.PCG64(7)).random(5)
    >>> bool(rng_at(7, 4).random() == numbers[4])
    True
    """
    bits = np.random.PCG64(seed)
    bits.advance(position)
    return np.random.Generator(bits)


def check_settings(temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Refuse settings that name no distribution.

    >>> check_settings(temperature=0.7, top_k=40, top_p=None)
    >>> check_settings(temperature=-1.0, top_k=None, top_p=None)
    Traceback (most recent call last):
        ...
    ValueError: ...
    """
    number = float | int | np.floating | np.integer
    if not isinstance(temperature, number) or not (math.isfinite(temperature) and temperature >= 0):
        raise ValueError(f"temperature must be a finite number of at least 0, got {temperature!r}")
    if top_k is not None and (
        not isinstance(top_k, int | np.integer) or isinstance(top_k, bool) or top_k < 1
    ):
        raise ValueError(f"top_k must be an integer of at least 1, got {top_k!r}")
    if top_p is not None and (not isinstance(top_p, number) or not 0 < top_p <= 1):
        raise ValueError(f"top_p must lie in (0, 1], got {top_p!r}")


def _one_a_row(rngs: Any, rows: int, temperature: float) -> list[np.random.Generator]:
    """The generators of the rows, after refusing what draws nothing."""
    if rngs is None:
        raise ValueError(
            f"a draw at temperature {temperature} needs rngs, a generator that is kept from call "
            "to call: rng = np.random.default_rng(0), then rngs=rng"
        )
    each = list(rngs) if isinstance(rngs, list | tuple) else [rngs] * rows
    wrong = [rng for rng in each if not hasattr(rng, "random")]
    if wrong:
        raise TypeError(f"rngs must be generators of np.random, got {wrong[0]!r}")
    if len(each) != rows:
        raise ValueError(f"one generator a row needed: {rows} rows, got {len(each)}")
    return each


def _kernel_takes(logits: Array) -> bool:
    """Whether the draw can stay on a device: CuPy's own arrays, of a type and size kernels know."""
    if type(logits).__module__.partition(".")[0] != "cupy" or logits.shape[1] > 1 << 18:
        return False
    whole = logits.flags.c_contiguous and logits.data.ptr % 16 == 0
    return whole and logits.shape[0] <= 65535 and logits.dtype in (np.float32, np.float16)


def _check_shape(logits: Array) -> None:
    if not hasattr(logits, "ndim"):
        raise TypeError(f"logits must be an array (B, V), got a {type(logits).__name__}")
    if not namespace(logits).isdtype(logits.dtype, ("real floating", "integral")):
        raise TypeError(f"logits must be real numbers, got {logits.dtype}")
    if logits.ndim != 2 or logits.shape[1] == 0:
        raise ValueError(f"logits must be (B, V) with V at least 1, got shape {logits.shape}")


def _check_finite(top: Array) -> None:
    """Refuse logits that name no token; ``top`` holds the largest of each row, NaN if one is."""
    wrong = [x for x in to_numpy(top).ravel().tolist() if not math.isfinite(x)]
    if wrong:
        raise ValueError(f"the largest logit of a row must be a finite number, got {wrong[0]}")
