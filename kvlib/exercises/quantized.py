"""Checkers of the chapter on few bits: int8 codes and a cast in the wrong place here, the order of
nibbles and the choice of an axis in `quantized_axis`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kvlib.exercises.quantized_axis import check_choose_axis, check_to_kvlib_order
from kvlib.exercises.report import (
    Finding,
    checker,
    diagnose,
    expect_close,
    expect_dtype,
    expect_shape,
)

__all__ = [
    "check_choose_axis",
    "check_fixed_codes",
    "check_int8_codes",
    "check_to_kvlib_order",
]


@checker
def check_int8_codes(int8_codes: Any) -> Iterator[str]:
    """int8_codes(x) -> codes int8 (S, D), scales float32 (S,); x (S, D) float32."""
    x = _vectors()
    codes, scales = _pair(int8_codes(x.copy()), x.shape)
    _compare_scales(scales, x)
    yield "a scale for each vector: its largest number becomes 127"
    _compare_codes(codes, x, scales)
    yield "codes are the nearest whole numbers, so no number moves by more than half a step"
    zero = x.copy()
    zero[2] = 0.0
    codes, scales = _pair(int8_codes(zero.copy()), x.shape)
    if not np.isfinite(scales).all() or (codes[2] != 0).any():
        raise Finding(
            "vector 2 is zero, and so is its scale: dividing by it gives NaN, which casts to "
            "anything. Divide by 1 there"
        )
    decoded = codes * scales[:, None]
    expect_close(decoded[2], zero[2], "vector 2, all zeros, decoded", axes=("channel",))
    expect_close(codes[3], int8_reference(zero)[0][3], "codes beside a zero vector", atol=0)
    yield "a vector of zeros comes back as zeros, and its neighbours do not notice"
    large = x * np.float32(1e30)
    codes, scales = _pair(int8_codes(large.copy()), x.shape)
    if not np.isfinite(scales).all():
        raise Finding("numbers near 1e30 overflow: divide by 127, do not multiply first")
    expect_close(codes, int8_reference(large)[0], "codes of numbers near 1e30", atol=0)
    yield "the size of the numbers does not matter, only their proportions"


def int8_reference(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The right answer: codes (S, D) int8 and scales (S,) float32."""
    top = np.abs(x).max(axis=-1)
    scales = np.where(top == 0, np.float32(1), top / np.float32(127))
    codes = np.clip(np.round(x / scales[:, None]), -127, 127).astype(np.int8)
    return codes, scales.astype(np.float32)


def _vectors() -> np.ndarray:
    x = np.random.default_rng(0).standard_normal((6, 16)).astype(np.float32)
    x *= np.array([[1], [20], [0.01], [3], [1], [5]], dtype=np.float32)
    x[1, 4], x[3, 0] = -80.0, 30.0  # the largest is negative in one vector, positive in another
    return x


def _pair(found: Any, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(found, tuple) or len(found) != 2:
        raise Finding(f"got {type(found).__name__}, needed two things: codes, scales")
    codes, scales = found
    expect_shape(codes, shape, "codes", letters="S D")
    expect_dtype(codes, np.int8, "codes")
    expect_shape(scales, shape[:1], "scales", letters="S")
    expect_dtype(scales, np.float32, "scales")
    return codes, scales


def _compare_scales(scales: np.ndarray, x: np.ndarray) -> None:
    size = np.abs(x).max(axis=-1)
    right = size / 127
    if np.allclose(scales, right, rtol=1e-5):
        return
    suspects = {
        "one scale for all vectors: a single large vector then takes the levels of all others": (
            np.full_like(size, size.max() / 127)
        ),
        "the largest number, not the largest in size: a vector whose largest is negative "
        "overflows": x.max(axis=-1) / 127,
        "divided by 128: then the largest number becomes 128, which an int8 does not have": (
            size / 128
        ),
        "divided by 255: that is for codes from 0 to 255; here they have a sign": size / 255,
        "these are 1 / scale: what a code is multiplied by is wanted": 127 / size,
        "the root mean square is not the largest: what lies above 127 scales is cut off": (
            np.sqrt((x**2).mean(axis=-1)) / 127
        ),
    }
    diagnose(scales, suspects)
    expect_close(scales, right, "scales", axes=("vector",))


def _compare_codes(codes: np.ndarray, x: np.ndarray, scales: np.ndarray) -> None:
    right = int8_reference(x)[0]
    if (codes == right).all():
        return
    exact = x / scales[:, None]
    suspects = {
        "the cast cuts off: 2.9 becomes 2. Round first, then cast": np.trunc(exact),
        "floor makes every code too small: round to the nearest": np.floor(exact),
        "these codes are shifted by 128 and wrapped round: with a scale of max / 127 the codes "
        "have their sign already": (np.round(exact).astype(np.int32) + 128).astype(np.int8),
    }
    diagnose(codes, suspects)
    expect_close(codes, right, "codes", axes=("vector", "channel"), rtol=0, atol=0)


@checker
def check_fixed_codes(fixed_codes: Any) -> Iterator[str]:
    """fixed_codes(x, scale) -> codes int8 as x; scale was measured beforehand on other text."""
    rng = np.random.default_rng(1)
    seen = rng.uniform(-1, 1, (8, 16)).astype(np.float32)
    scale = 1 / 127
    codes = _fixed(fixed_codes(seen.copy(), scale), seen.shape)
    right = np.clip(np.round(seen / scale), -127, 127)
    expect_close(codes, right, "codes of what the scale was measured on", rtol=0, atol=0)
    yield "within the range that was measured: the nearest code"
    later = seen.copy()
    later[3, 5], later[4, 7], later[5, 2] = 1.2, -1.3, 4.1
    codes = _fixed(fixed_codes(later.copy(), scale), later.shape)
    whole = np.round(later / scale)
    suspects = {
        f"channel 5 of token 3 was {later[3, 5]:.1f} and decodes to "
        f"{float(codes[3, 5]) * scale:.2f}: the cast came before the clip, and a code of "
        f"{int(whole[3, 5])} wrapped round to {int(codes[3, 5])}": (
            np.clip(whole.astype(np.int32).astype(np.int8), -127, 127)
        ),
        "what lies beyond the range became 0: it should become the nearest code there is": (
            np.where(np.abs(whole) > 127, 0, whole)
        ),
        "a new scale was measured: the codes stored before it would then decode wrongly": (
            np.round(later / (np.abs(later).max() / 127))
        ),
        "the range is cut to 128 on one side: -128 has no partner, keep to -127 ... 127": (
            np.clip(whole, -128, 127)
        ),
    }
    right = np.clip(whole, -127, 127)
    if not (codes == right).all():
        diagnose(codes, suspects)
    expect_close(
        codes, right, "codes of a later text", axes=("token", "channel"), rtol=0, atol=0,
        why="what lies beyond the range becomes 127 or -127",
    )  # fmt: skip
    yield "beyond it: the outermost code, with the right sign"
    far = np.array([[1e6, -1e6, 3e38, -3e38]], dtype=np.float32)
    codes = _fixed(fixed_codes(far, scale), far.shape)
    expect_close(codes, np.array([[127, -127, 127, -127]]), "codes of huge numbers", atol=0)
    yield "however far"


def _fixed(codes: Any, shape: tuple[int, ...]) -> np.ndarray:
    expect_shape(codes, shape, "codes", letters="S D")
    expect_dtype(codes, np.int8, "codes")
    found: np.ndarray = codes
    return found
