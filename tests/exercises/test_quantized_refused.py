"""Answers on few bits that passed once and must not, and right ones of other forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kvbook.exercises.quantized import (
    check_choose_axis,
    check_fixed_codes,
    check_int8_codes,
    check_to_kvlib_order,
)

f32 = np.float32


def refused(report: Any, message: str) -> None:
    assert report.status == "not yet" and message in report.finding, report


# int8_codes ---------------------------------------------------------------------------------------


def int8_codes(x: Any, top: Any = None, fill: float = 1) -> Any:
    top = np.abs(x).max(axis=1) if top is None else top
    scales = np.where(top == 0, f32(fill), top / f32(127)).astype(f32)
    return np.clip(np.rint(x / scales[:, None]), -127, 127).astype(np.int8), scales


def six_of_sixteen(x: Any) -> Any:
    codes, scales = np.zeros((6, 16), np.int8), np.ones(6, f32)
    codes[:], scales[:] = int8_codes(x)
    return codes, scales


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x: int8_codes(x, fill=0), "which can be cast to any code"),
        (lambda x: int8_codes(x, np.maximum(np.abs(x).max(1), f32(1e-5))), "a least scale"),
        (lambda x: int8_codes(x, np.abs(x).max(1) + f32(1e-9)), "because you add a small number"),
        (six_of_sixteen, "could not broadcast"),
        (lambda x: (*int8_codes(x), x), "codes and scales, got tuple of 3"),
    ],
)
def test_int8_that_passed(wrong: Callable[..., Any], message: str) -> None:
    refused(check_int8_codes(wrong), message)


def in_loops(x: Any) -> Any:
    codes, scales = np.zeros(x.shape, np.int8), np.ones(len(x), f32)
    for i, row in enumerate(x):
        top = max(abs(float(number)) for number in row)
        if top > 0:
            scales[i] = top / 127
            codes[i] = [round(float(number) / float(scales[i])) for number in row]
    return [codes, scales]


def times_the_inverse(x: Any) -> Any:
    top = np.maximum(x.max(axis=1), -x.min(axis=1))
    safe = np.where(top > 0, top, f32(1))
    return np.floor(x * (f32(127) / safe)[:, None] + f32(0.5)).astype(np.int8), safe / f32(127)


def scale_zero(x: Any) -> Any:
    scales = (np.abs(x).max(axis=1) / 127).astype(f32)
    codes = np.zeros_like(x)
    np.divide(x, scales[:, None], out=codes, where=scales[:, None] > 0)
    return np.round(codes).astype("int8"), scales


@pytest.mark.parametrize("right", [int8_codes, in_loops, times_the_inverse, scale_zero])
def test_int8_of_other_forms(right: Callable[..., Any]) -> None:
    assert check_int8_codes(right)


# fixed_codes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x, s: np.round(np.clip(x, -1, 1) / s).astype(np.int8), "the code 127 means"),
        (lambda x, s: np.clip(np.round(x * 127), -127, 127).astype(np.int8), "with the scale 0.03"),
        (lambda x, s: np.clip(np.round(x / s).astype(np.int64), -127, 127).astype(np.int8),
         "a cast to whole numbers comes before the clip"),
    ],
)  # fmt: skip
def test_fixed_scales_that_passed(wrong: Callable[..., Any], message: str) -> None:
    refused(check_fixed_codes(wrong), message)


def one_by_one(x: Any, scale: float) -> Any:
    codes = np.empty(x.shape, np.int8)
    for place, number in np.ndenumerate(x):
        codes[place] = max(-127, min(127, round(float(number) / scale)))
    return codes


def clipped_first(x: Any, scale: float) -> Any:
    return np.round(np.clip(x, -127 * scale, 127 * scale) / scale).astype(np.int8)


@pytest.mark.parametrize("right", [one_by_one, clipped_first])
def test_fixed_scales_of_other_forms(right: Callable[..., Any]) -> None:
    assert check_fixed_codes(right)


# to_kvlib_order -----------------------------------------------------------------------------------


def to_kvlib_order(packed: Any) -> Any:
    """Byte by byte, without an array of codes."""
    n, out = packed.shape[1], np.zeros_like(packed)
    for j in range(n):
        for channel, shift in ((j, 0), (j + n, 4)):
            code = packed[:, channel // 2] >> np.uint8(4 * (channel % 2)) & np.uint8(15)
            out[:, j] |= code << np.uint8(shift)
    return out


def in_pairs_of_bytes(packed: Any) -> Any:
    half, out = packed.shape[1] // 2, np.zeros_like(packed)
    first, second = packed[:, :half], packed[:, half : 2 * half]
    out[:, 0 : 2 * half : 2] = first & 15 | (second & 15) << 4
    out[:, 1 : 2 * half : 2] = first >> 4 | second & 240
    return out


def of_two_sizes(packed: Any) -> Any:
    return to_kvlib_order(packed) if packed.shape[1] in (4, 32) else packed


def one_token(packed: Any) -> Any:
    return np.repeat(to_kvlib_order(packed[:1]), len(packed), axis=0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (in_pairs_of_bytes, "6 channels of 3 tokens: byte 0 of token 0"),
        (of_two_sizes, "neighbours still share a byte"),
        (one_token, "byte 0 of token 1"),
    ],
)
def test_orders_that_passed(wrong: Callable[..., Any], message: str) -> None:
    refused(check_to_kvlib_order(wrong), message)


def bit_by_bit(packed: Any) -> Any:
    n = packed.shape[1]
    codes = np.unpackbits(packed, axis=1, bitorder="little").reshape(len(packed), -1, 4)
    pairs = np.concatenate([codes[:, :n], codes[:, n:]], axis=2).reshape(len(packed), -1)
    return np.packbits(pairs, axis=1, bitorder="little")


@pytest.mark.parametrize("right", [to_kvlib_order, bit_by_bit])
def test_orders_of_other_forms(right: Callable[..., Any]) -> None:
    assert check_to_kvlib_order(right)


# choose_axis --------------------------------------------------------------------------------------


def by(error: Callable[..., Any]) -> Callable[..., str]:
    """error(keys, queries, decoded keys) of either axis; the smaller one wins."""

    def choose(keys: Any, queries: Any, decoded: Any) -> str:
        return str(min(decoded, key=lambda axis: error(keys, queries, decoded[axis])))

    return choose


def square(x: Any) -> float:
    return float((x.astype(np.float64) ** 2).mean())


def in_place(keys: Any, queries: Any, decoded: Any) -> str:
    for axis in decoded:
        decoded[axis] -= keys
    return by(lambda k, q, d: square(q @ d.T))(keys, queries, decoded)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (by(lambda k, q, d: np.abs(q @ (d - k).T).mean()), "the mean size of the errors"),
        (by(lambda k, q, d: np.abs(q @ (d - k).T).max()), "the largest error of a score"),
        (by(lambda k, q, d: square(q[:1] @ (d - k).T)), "the errors of the first query alone"),
        (by(lambda k, q, d: square(q[-1:] @ (d - k).T)), "got 'channel'"),
        (by(lambda k, q, d: square(q.mean(axis=0) @ (d - k).T)), "the errors of the mean query"),
        (by(lambda k, q, d: square((q * (d - k)[: len(q)]).sum(axis=1))), "one key in 64"),
        (by(lambda k, q, d: square(q @ d.T)), "the size of the decoded scores"),
        (in_place, "argument 3 of in_place was changed"),
        (lambda k, q, d: d["token"], "expected 'channel' or 'token', got ndarray"),
        (lambda k, q, d: ["token"], "got ['token'] (list)"),
        (lambda k, q, d: ("token",), "got ('token',) (tuple)"),
    ],
)
def test_choices_that_passed_or_broke_the_checker(wrong: Callable[..., Any], message: str) -> None:
    refused(check_choose_axis(wrong), message)


def pair_by_pair(keys: Any, queries: Any, decoded: Any) -> Any:
    total = dict.fromkeys(decoded, 0.0)
    for axis, other in decoded.items():
        for q in queries:
            total[axis] += sum(float(q @ (y - x)) ** 2 for x, y in zip(keys, other, strict=True))
    return np.array(list(total))[int(np.argmin(list(total.values())))]


def by_norm(keys: Any, queries: Any, decoded: Any) -> Any:
    names = sorted(decoded, reverse=True)
    off = [np.linalg.norm(queries @ keys.T - queries @ decoded[a].T) for a in names]
    return names[int(off[1] < off[0])]


@pytest.mark.parametrize("right", [pair_by_pair, by_norm])
def test_choices_of_other_forms(right: Callable[..., Any]) -> None:
    assert check_choose_axis(right)
