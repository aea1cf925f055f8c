"""Known wrong answers to the exercises on few bits: each refused in fitting words."""

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
from kvlib.codecs.packing import pack


def refused(report: Any, message: str) -> None:
    assert report.status == "not yet", report
    assert message in report.finding, report.finding


# ---------------------------------------------------------------------------------------- int8


def int8_codes(x: Any, top: Any = None, near: Any = np.round, safe: bool = True) -> Any:
    top = np.abs(x).max(axis=-1) if top is None else top
    scales = (top / np.float32(127)).astype(np.float32)
    if safe:
        scales = np.where(top == 0, np.float32(1), scales)
    with np.errstate(all="ignore"):
        codes = np.clip(near(x / scales[:, None]), -127, 127)
        return np.nan_to_num(codes).astype(np.int8), scales


def shifted(x: Any) -> Any:
    codes, scales = int8_codes(x)
    return (codes.astype(np.int32) + 128).astype(np.int8), scales


def overflows(x: Any) -> Any:
    codes, scales = int8_codes(x)
    big = np.float32(1e9) * np.abs(x).max(axis=-1) / np.float32(127e9)
    return codes, np.where(big == 0, np.float32(1), big).astype(np.float32)


def nan_scales(x: Any) -> Any:
    codes, scales = int8_codes(x)
    return codes, np.where((x == 0).all(axis=-1), np.float32("nan"), scales)


def one_scale(x: Any) -> Any:
    return int8_codes(x, np.full(len(x), np.abs(x).max(), dtype=np.float32))


WRONG_INT8: dict[str, tuple[Callable[..., Any], str]] = {
    "one scale": (one_scale, "one scale for all vectors"),
    "signed maximum": (lambda x: int8_codes(x, x.max(axis=-1)), "not the largest in size"),
    "128": (lambda x: int8_codes(x, np.abs(x).max(axis=-1) * 127 / 128), "128, which an int8"),
    "255": (lambda x: int8_codes(x, np.abs(x).max(axis=-1) * 127 / 255), "codes from 0 to 255"),
    "inverse": (
        lambda x: (int8_codes(x)[0], (1 / int8_codes(x)[1]).astype(np.float32)),
        "these are 1 / scale",
    ),
    "rms": (
        lambda x: int8_codes(x, np.sqrt((x**2).mean(axis=-1))),
        "the scale is made from the root mean square",
    ),
    "cut off": (lambda x: int8_codes(x, near=np.trunc), "the cast cuts off"),
    "floor": (lambda x: int8_codes(x, near=np.floor), "floor makes codes too small"),
    "shifted": (shifted, "shifted by 128"),
    "scale 0": (nan_scales, "dividing by it gives NaN"),
    "overflow": (overflows, "do not multiply by 127"),
    "codes alone": (lambda x: int8_codes(x)[0], "expected two results"),
    "int32": (lambda x: (int8_codes(x)[0].astype(np.int32), int8_codes(x)[1]), "codes are int32"),
    "float64": (lambda x: (int8_codes(x)[0], int8_codes(x)[1].astype(float)), "scales are float64"),
    "kept axis": (lambda x: (int8_codes(x)[0], int8_codes(x)[1][:, None]), "scales have shape"),
    "by channel": (
        lambda x: (int8_codes(x.T)[0].T, int8_codes(x.T)[1]),
        "scales have shape",
    ),
}


def test_int8_codes() -> None:
    report = check_int8_codes(int8_codes)
    assert report.passed, report


@pytest.mark.parametrize("name", WRONG_INT8)
def test_wrong_int8(name: str) -> None:
    wrong, message = WRONG_INT8[name]
    refused(check_int8_codes(wrong), message)


# --------------------------------------------------------------------------------- fixed scale


def fixed_codes(x: Any, scale: float, low: int = -127) -> Any:
    return np.clip(np.round(x / scale), low, 127).astype(np.int8)


def cast_first(x: Any, scale: float) -> Any:
    whole = np.clip(np.round(x / scale), -(2**31) + 1, 2**31 - 1024)
    return np.clip(whole.astype(np.int64).astype(np.int8), -127, 127)


def to_zero(x: Any, scale: float) -> Any:
    whole = np.round(x / scale)
    return np.where(np.abs(whole) > 127, 0, whole).astype(np.int8)


def new_scale(x: Any, scale: float) -> Any:
    return fixed_codes(x, max(scale, float(np.abs(x).max()) / 127))


WRONG_FIXED: dict[str, tuple[Callable[..., Any], str]] = {
    "cast first": (cast_first, "the cast comes before the clip, so the code 152 wraps round"),
    "zero": (to_zero, "becomes 0"),
    "new scale": (new_scale, "you measured a new scale"),
    "-128": (lambda x, s: fixed_codes(x, s, -128), "-128 has no positive partner"),
    "not cast": (lambda x, s: np.clip(np.round(x / s), -127, 127), "codes are float"),
    "not rounded": (
        lambda x, s: np.clip(x / s, -127, 127).astype(np.int8),
        "codes of the measured numbers",
    ),
}


def test_fixed_codes() -> None:
    report = check_fixed_codes(fixed_codes)
    assert report.passed, report


def test_the_suspect_is_right_on_what_its_scale_was_measured_on() -> None:
    assert len(check_fixed_codes(cast_first).proved) == 1


@pytest.mark.parametrize("name", WRONG_FIXED)
def test_wrong_fixed(name: str) -> None:
    wrong, message = WRONG_FIXED[name]
    refused(check_fixed_codes(wrong), message)


# ------------------------------------------------------------------------------------- nibbles


def to_kvlib_order(packed: Any) -> Any:
    codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1)
    return pack(codes, 4)


def swapped_result(packed: Any) -> Any:
    right = to_kvlib_order(packed)
    return right >> 4 | right << 4


def swapped_source(packed: Any) -> Any:
    return to_kvlib_order(packed >> 4 | packed << 4)


def halves(packed: Any) -> Any:
    return pack(np.concatenate([packed & 15, packed >> 4], axis=1), 4)


def low_only(packed: Any) -> Any:
    codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1)
    return codes[:, : packed.shape[1]]


def joined_codes(packed: Any) -> Any:
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1)


WRONG_ORDERS: dict[str, tuple[Callable[..., Any], str]] = {
    "as it came": (lambda p: p, "neighbours still share a byte"),
    "result swapped": (swapped_result, "the first channel lies in the LOW four bits"),
    "source swapped": (swapped_source, "you read the given bytes high half first"),
    "halves": (halves, "all high halves after them"),
    "low only": (low_only, "only the low halves arrived"),
    "unpacked": (joined_codes, "the bytes have shape"),
    "other dtype": (lambda p: to_kvlib_order(p).astype(np.int64), "are int64, needed uint8"),
    "reversed": (lambda p: to_kvlib_order(p)[:, ::-1], "byte 0 holds 3 (low) and 7 (high)"),
}


def test_to_kvlib_order() -> None:
    report = check_to_kvlib_order(to_kvlib_order)
    assert report.passed, report


@pytest.mark.parametrize("name", WRONG_ORDERS)
def test_wrong_orders(name: str) -> None:
    wrong, message = WRONG_ORDERS[name]
    refused(check_to_kvlib_order(wrong), message)


# ---------------------------------------------------------------------------------------- axis


def by(error: Callable[..., Any]) -> Callable[..., str]:
    def choose(keys: Any, queries: Any, decoded: Any) -> str:
        return str(min(decoded, key=lambda a: error(queries, decoded[a] - keys)))

    return choose


WRONG_AXES: dict[str, tuple[Callable[..., Any], str]] = {
    "keys": (by(lambda q, e: (e**2).mean()), "the error of the keys themselves"),
    "mean": (by(lambda q, e: abs((q @ e.T).mean())), "plus and minus cancel"),
    "largest": (by(lambda q, e: -np.abs(q @ e.T).min()), "errors of the scores are"),
    "always KIVI": (lambda k, q, d: "channel", "that give it much weight: got 'channel'"),
    "always tokens": (lambda k, q, d: "token", "an offset: got 'token'"),
    "worse": (by(lambda q, e: -((q @ e.T) ** 2).mean()), "got 'token'"),
    "index": (lambda k, q, d: 0, "expected 'channel' or 'token'"),
}


def test_choose_axis() -> None:
    report = check_choose_axis(by(lambda q, e: ((q @ e.T) ** 2).mean()))
    assert report.passed, report


@pytest.mark.parametrize("name", WRONG_AXES)
def test_wrong_axes(name: str) -> None:
    wrong, message = WRONG_AXES[name]
    refused(check_choose_axis(wrong), message)


# ------------------------------------------------------------------------------- half-done work


@pytest.mark.parametrize(
    "check", [check_int8_codes, check_fixed_codes, check_to_kvlib_order, check_choose_axis]
)
def test_nothing_written_yet(check: Any) -> None:
    assert check(lambda *a: None).status == "not done yet"
