"""Checkers of the chapter on few bits: two codes in a byte, and the axis that a score prefers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kvlib.codecs.packing import pack
from kvlib.exercises.report import (
    Finding,
    checker,
    diagnose,
    expect_dtype,
    expect_equal,
    expect_shape,
)

AXES = ("channel", "token")


@checker
def check_to_kvlib_order(to_kvlib_order: Any) -> Iterator[str]:
    """to_kvlib_order(packed) -> uint8 (S, D/2): from neighbours in a byte to kvlib's order."""
    for name, codes in (
        ("channels 0 ... 7 with the codes 0 ... 7", np.arange(8, dtype=np.uint8)[None]),
        ("64 channels of 5 tokens", _codes((5, 64))),
    ):
        given = _neighbours(codes)
        got = to_kvlib_order(given.copy())
        right = pack(codes, 4)
        expect_shape(got, right.shape, f"{name}: the bytes", letters="S D/2")
        expect_dtype(got, np.uint8, f"{name}: the bytes")
        if not (got == right).all():
            diagnose(got, _wrong_orders(codes, given), rtol=0, atol=0)
            j = int(np.argwhere(got != right)[0][1])
            n = codes.shape[1] // 2
            low, high = int(got[0, j]) & 15, int(got[0, j]) >> 4
            raise Finding(
                f"{name}: byte {j} holds {low} (low) and {high} (high), needed the codes of "
                f"channels {j} and {j + n}: {int(codes[0, j])} and {int(codes[0, j + n])}"
            )
        yield f"{name}: byte j holds channels j and j + {codes.shape[1] // 2}"
    full = np.full((2, 4), 0xFF, dtype=np.uint8)
    expect_equal(to_kvlib_order(full.copy()).tolist(), full.tolist(), "all codes 15")
    yield "the largest code in every place stays what it is"


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
        "these are the bytes as they came: neighbours still share a byte. (Unpacked as [all low "
        "halves, all high halves] they are only put back; the two have to take turns.)": given,
        "the halves of each byte changed places: the first channel lies in the LOW four bits": (
            pack(codes, 4) >> np.uint8(4) | (pack(codes, 4) << np.uint8(4))
        ),
        "the given bytes were read high half first: channel 0 lies in the low half of byte 0": (
            pack(swapped, 4)
        ),
        "only the low halves arrived: shift the others up by 4 before you join them": codes[:, :n],
        "the second code was not masked or not shifted: use & 15 and >> 4": (
            halves[:, :n] | given << np.uint8(4)
        ),
    }


@checker
def check_choose_axis(choose_axis: Any) -> Iterator[str]:
    """choose_axis(keys, queries, decoded) -> "channel" or "token", the better one for scores.

    keys (S, D); queries (T, D); decoded: {"channel": (S, D), "token": (S, D)}.
    """
    for words, keys, queries, decoded in _cases():
        got = choose_axis(keys, queries, dict(decoded))
        if got not in AXES:
            raise Finding(f"got {got!r}, needed 'channel' or 'token'")
        by_score = {a: _rms(queries @ (decoded[a] - keys).T) for a in AXES}
        by_key = {a: _rms(decoded[a] - keys) for a in AXES}
        worst = {a: float(np.abs(decoded[a] - keys).max()) for a in AXES}
        mean = {a: abs(float((queries @ (decoded[a] - keys).T).mean())) for a in AXES}
        right = min(by_score, key=lambda a: by_score[a])
        if got != right:
            numbers = ", ".join(f"{a} {by_score[a]:.3g}" for a in AXES)
            reason = ""
            for suspect, table in (
                ("the keys themselves are nearer that way; queries weigh channels", by_key),
                ("the mean of the errors was taken: plus and minus cancel in it", mean),
                ("the largest error of one number does not decide", worst),
            ):
                if got == min(table, key=lambda a: table[a]) and not reason:
                    reason = f": {suspect}"
            raise Finding(f"{words}: got {got!r}, but errors of the scores are {numbers}{reason}")
        yield f"{words}: {right}"


def _rms(x: np.ndarray) -> float:
    return float(np.sqrt((x.astype(np.float64) ** 2).mean()))


def _cases() -> Iterator[tuple[str, np.ndarray, np.ndarray, dict[str, np.ndarray]]]:
    """Four kinds of keys, all of 64 tokens and 32 channels."""
    rng = np.random.default_rng(3)
    plain = rng.standard_normal((64, 32)).astype(np.float32)
    queries = rng.standard_normal((16, 32)).astype(np.float32)
    offset = plain.copy()
    offset[:, [3, 17]] += 12.0  # large in every token: what KIVI's axis is made for
    yield "two channels with an offset", offset, queries, _both(offset)
    swing = plain * np.float32(0.3) + np.linspace(-3, 3, 32, dtype=np.float32)
    swing[:, 5] = 9 * np.cos(np.arange(64) * 1.0)
    loud = queries.copy()
    loud[:, 5] *= 12  # the queries weigh the channel that swings
    yield "a channel that swings, and that the queries weigh", swing, loud, _both(swing)
    quiet = queries.copy()
    quiet[:, 5] = 0
    yield "the same keys, queries that do not look there", swing, quiet, _both(swing)
    # Every number of one is off by a little to one side, of the other by more to both sides.
    sides = np.where(rng.random((64, 32)) < 0.5, -1, 1).astype(np.float32)
    alike = np.abs(queries) + 1
    decoded = {"channel": plain + sides * 0.2, "token": plain + np.float32(0.1)}
    yield "errors that cancel, errors that add up", plain, alike, decoded


def _both(x: np.ndarray) -> dict[str, np.ndarray]:
    return {"channel": _decoded(x, 0), "token": _decoded(x, 1)}


def _decoded(x: np.ndarray, axis: int) -> np.ndarray:
    """Two bits, one scale and zero along an axis: 0 for each channel, 1 for each token."""
    low, high = x.min(axis=axis, keepdims=True), x.max(axis=axis, keepdims=True)
    scale = np.where(high > low, (high - low) / 3, 1)
    found: np.ndarray = np.round((x - low) / scale) * scale + low
    return found
