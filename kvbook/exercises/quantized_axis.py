"""Checkers of the chapter on few bits: two codes in a byte, and the axis that a score prefers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kvbook.exercises.received import shown
from kvbook.exercises.report import (
    Finding,
    checker,
    diagnose,
    expect_dtype,
    expect_equal,
    expect_shape,
)
from kvlib.codecs.packing import pack

AXES = ("channel", "token")


@checker
def check_to_kvlib_order(to_kvlib_order: Any) -> Iterator[str]:
    """to_kvlib_order(packed) -> uint8 (S, D/2): from neighbours in a byte to kvlib's order."""
    for name, codes in (
        ("channels 0 ... 7 with the codes 0 ... 7", np.arange(8, dtype=np.uint8)[None]),
        ("64 channels of 5 tokens", _codes((5, 64))),
        ("6 channels of 3 tokens", _codes((3, 6))),
    ):
        given = _neighbours(codes)
        got = to_kvlib_order(given.copy())
        right = pack(codes, 4)
        expect_shape(got, right.shape, f"{name}: the bytes", letters="S D/2")
        expect_dtype(got, np.uint8, f"{name}: the bytes")
        if not (got == right).all():
            diagnose(got, _wrong_orders(codes, given), rtol=0, atol=0)
            row, j = (int(i) for i in np.argwhere(got != right)[0])
            n = codes.shape[1] // 2
            low, high = int(got[row, j]) & 15, int(got[row, j]) >> 4
            where = f"{name}: byte {j}" + (f" of token {row}" if len(codes) > 1 else "")
            raise Finding(
                f"{where} holds {low} (low) and {high} (high), expected the codes of "
                f"channels {j} and {j + n}: {int(codes[row, j])} and {int(codes[row, j + n])}"
            )
        yield f"{name}: byte j holds channels j and j + {codes.shape[1] // 2}"
    full = np.full((2, 4), 0xFF, dtype=np.uint8)
    expect_equal(to_kvlib_order(full.copy()).tolist(), full.tolist(), "all codes 15")
    yield "bytes full of the largest code stay as they are"


def _codes(shape: tuple[int, int]) -> np.ndarray:
    return np.random.default_rng(2).integers(0, 16, shape, dtype=np.uint8)


def _neighbours(codes: np.ndarray) -> np.ndarray:
    packed: np.ndarray = codes[:, 0::2] | (codes[:, 1::2] << np.uint8(4))
    return packed


def _wrong_orders(codes: np.ndarray, given: np.ndarray) -> dict[str, np.ndarray]:
    n = codes.shape[1] // 2
    low, high = given & np.uint8(15), given >> np.uint8(4)
    swapped = np.stack([high, low], axis=2).reshape(codes.shape)
    halves = np.concatenate([low, high], axis=1)
    return {
        "these are the bytes as they came, so neighbours still share a byte. (Perhaps you put all "
        "low halves first and all high halves after them. That is the order that pack expects, so "
        "it makes the same bytes again. Put both halves of each byte next to each other.)": given,
        "the halves of each byte changed places: the first channel lies in the LOW four bits": (
            pack(codes, 4) >> np.uint8(4) | (pack(codes, 4) << np.uint8(4))
        ),
        "you read the given bytes high half first: channel 0 lies in the low half of byte 0": (
            pack(swapped, 4)
        ),
        "only the low halves arrived: shift the others up by 4 before you join them": codes[:, :n],
        "the second code is not masked or not shifted: use & 15 and >> 4": (
            halves[:, :n] | given << np.uint8(4)
        ),
    }


@checker
def check_choose_axis(choose_axis: Any) -> Iterator[str]:
    """choose_axis(keys, queries, decoded) -> "channel" or "token", the better one for scores.

    keys (S, D); queries (T, D); decoded: {"channel": (S, D), "token": (S, D)}.
    """
    could: dict[str, bool] = dict.fromkeys(_SUSPECTS, True)  # agree with all answers so far
    for words, keys, queries, decoded in _cases():
        got = choose_axis(keys, queries, dict(decoded))
        if not isinstance(got, str) or got not in AXES:
            raise Finding(f"expected 'channel' or 'token', got {shown(got)}")
        scores = {a: queries @ (decoded[a] - keys).T for a in AXES}
        by_score = {a: _rms(scores[a]) for a in AXES}
        right = min(by_score, key=lambda a: by_score[a])
        for suspect, measure in _SUSPECTS.items():
            by = {a: measure(keys, queries, decoded[a]) for a in AXES}
            could[suspect] &= got == min(by, key=lambda a: by[a])
        if got != right:
            figures = ", ".join(f"{a} {by_score[a]:.3g}" for a in AXES)
            fits = "; or with ".join([suspect for suspect in could if could[suspect]][:3])
            raise Finding(
                f"{words}: got {got!r}, but the root mean square errors of the scores are {figures}"
                + (f". Your answers so far agree with {fits}" if fits else "")
            )
        yield f"{words}: the answer is {right!r}"


# What people measure instead; named are those that fit all answers so far.
_SUSPECTS: dict[str, Callable[[Any, Any, Any], float]] = {
    "the error of the keys themselves (but queries weigh channels)": lambda k, q, d: _rms(d - k),
    "the mean of the errors (but plus and minus cancel in it)": lambda k, q, d: abs(
        float((q @ (d - k).T).mean())
    ),
    "the mean size of the errors (but squares give large ones more weight)": lambda k, q, d: float(
        np.abs(q @ (d - k).T).mean()
    ),
    "the largest error of a score (but all of them count)": lambda k, q, d: float(
        np.abs(q @ (d - k).T).max()
    ),
    "the errors of the first query alone": lambda k, q, d: _rms(q[:1] @ (d - k).T),
    "the errors of the mean query (but queries cancel where their signs differ)": lambda k, q, d: (
        _rms(q.mean(axis=0) @ (d - k).T)
    ),
    "the size of the decoded scores instead of their errors": lambda k, q, d: _rms(q @ d.T),
    "the largest error of a number in a key": lambda k, q, d: float(np.abs(d - k).max()),
}


def _rms(x: np.ndarray) -> float:
    return float(np.sqrt((x.astype(np.float64) ** 2).mean()))


def _cases() -> Iterator[tuple[str, np.ndarray, np.ndarray, dict[str, np.ndarray]]]:
    """Seven kinds of keys, all of 64 tokens and 32 channels."""
    rng = np.random.default_rng(3)
    plain = rng.standard_normal((64, 32)).astype(np.float32)
    queries = rng.standard_normal((16, 32)).astype(np.float32)
    offset = plain.copy()
    offset[:, [3, 17]] += 12.0  # large in every token: what KIVI's axis is made for
    yield "two channels with an offset", offset, queries, _both(offset)
    swing = plain * np.float32(0.3) + np.linspace(-3, 3, 32, dtype=np.float32)
    swing[:, 5] = 9 * np.cos(np.arange(64) * 1.0)
    loud = queries.copy()
    loud[:, 5] = 12 * (-1.0) ** np.arange(16)  # the queries weigh the channel that swings,
    loud[[0, -1], 5] = 0  # but not the first and the last; and their mean does not
    yield "a channel that swings, with queries that give it much weight", swing, loud, _both(swing)
    quiet = queries.copy()
    quiet[:, 5] = 0
    yield "the same keys, with queries that give that channel no weight", swing, quiet, _both(swing)
    # Every number of one is off by a little to one side, of the other by more to both sides.
    sides = np.where(rng.random((64, 32)) < 0.5, -1, 1).astype(np.float32)
    alike = np.abs(queries) + 1
    decoded = {"channel": plain + sides * 0.2, "token": plain + np.float32(0.1)}
    yield "errors that cancel in the scores, against errors that add up", plain, alike, decoded
    # All keys off alike, or one of 64 off a lot: by the mean of squares that one counts 1/64.
    error = rng.standard_normal((64, 32)).astype(np.float32)
    for words, axes, size in (
        ("one key in 64 far off", ("channel", "token"), 4),
        ("one key in 64 farther off", ("token", "channel"), 16),
    ):
        one = plain.copy()
        one[50] += size * error[50]
        yield words, plain, queries, dict(zip(axes, (plain + error, one), strict=True))
    half = {"channel": plain * np.float32(0.5), "token": plain + error * np.float32(0.2)}
    yield "keys decoded to half their size", plain, queries, half


def _both(x: np.ndarray) -> dict[str, np.ndarray]:
    return {"channel": _decoded(x, 0), "token": _decoded(x, 1)}


def _decoded(x: np.ndarray, axis: int) -> np.ndarray:
    """Two bits, one scale and zero along an axis: 0 for each channel, 1 for each token."""
    low, high = x.min(axis=axis, keepdims=True), x.max(axis=axis, keepdims=True)
    scale = np.where(high > low, (high - low) / 3, 1)
    found: np.ndarray = np.round((x - low) / scale) * scale + low
    return found
