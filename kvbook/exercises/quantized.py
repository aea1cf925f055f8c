"""Checkers of the chapter on few bits: int8 codes and a cast in the wrong place here, the order of
nibbles and the choice of an axis in `quantized_axis`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from kvbook.exercises.quantized_axis import check_choose_axis, check_to_kvlib_order
from kvbook.exercises.report import (
    Finding,
    bare,
    checker,
    diagnose,
    expect_close,
    expect_dtype,
    expect_shape,
    guarded,
)

__all__ = [
    "check_choose_axis",
    "check_fixed_codes",
    "check_int8_codes",
    "check_to_kvlib_order",
]


VECTOR, TOKEN = ("vector", "channel"), ("token", "channel")


@checker
def check_int8_codes(int8_codes: Any) -> Iterator[str]:
    """int8_codes(x) -> codes int8 (S, D), scales float32 (S,); x (S, D) float32."""
    x = _vectors()
    codes, scales = _pair(int8_codes(x.copy()), x.shape)
    _compare_scales(scales, x)
    yield "each vector has its own scale, and its largest number becomes 127"
    _compare_codes(codes, x, scales)
    yield "codes are the nearest whole numbers, so no number moves by more than half a scale"
    zero = x.copy()
    zero[2] = 0.0
    codes, scales = _pair(int8_codes(zero.copy()), x.shape)
    if not np.isfinite(scales).all() or (codes[2] != 0).any() or _casts_nan(int8_codes, zero):
        raise Finding(
            "vector 2 is all zeros, and so is its scale: dividing by it gives NaN, which can be "
            "cast to any code. Use the scale 1 there"
        )
    decoded = codes * scales[:, None]
    expect_close(decoded[2], zero[2], "vector 2, all zeros, decoded", axes=("channel",))
    steps = int8_reference(zero)[1]
    steps[2] = scales[2]  # whatever it is: it multiplies zeros
    expect_close(scales, steps, "scales beside a zero vector", axes=("vector",))
    steps[2] = 1
    near = _nearest(codes, zero, steps)
    expect_close(codes, near, "codes beside a zero vector", axes=VECTOR, rtol=0, atol=0)
    yield "a vector of zeros comes back as zeros, and the vectors beside it are unchanged"
    for factor, words in (
        (np.float32(1e30), "numbers near 1e30 overflow: divide by the scale, and do not multiply "
         "by 127 first"),
        (np.float32(1e-12), "numbers near 1e-12 got another scale, because you add a small number "
         "or set a least scale. Test whether the largest is 0, not whether it is small"),
    ):  # fmt: skip
        other = x * factor
        codes, scales = _pair(int8_codes(other.copy()), x.shape)
        steps = int8_reference(other)[1]
        if not np.isfinite(scales).all() or not np.allclose(scales, steps, rtol=1e-4, atol=0):
            raise Finding(words)
        what = f"codes of numbers near {factor:.0e}"
        near = _nearest(codes, other, steps)
        expect_close(codes, near, what, axes=VECTOR, rtol=0, atol=0, why=words)
    yield "the size of the numbers does not matter, only their ratios"
    for shape in ((1, 3), (9, 32)):
        other = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
        codes, scales = _pair(int8_codes(other.copy()), shape)
        _compare_scales(scales, other)
        _compare_codes(codes, other, scales)
    yield "it holds for any number of vectors and channels"


def _casts_nan(function: Any, x: np.ndarray) -> bool:
    """Whether NumPy warned of NaN, or what does not fit, in a cast to whole numbers.

    What comes of it depends on the processor, and some give the 0 that one hopes for.
    """
    heeded = guarded(bare(function), silent=False)
    with warnings.catch_warnings(record=True) as heard, np.errstate(invalid="warn"):
        warnings.simplefilter("always")
        heeded(x.copy())
    return any("in cast" in str(warning.message) for warning in heard)


def _nearest(codes: np.ndarray, x: np.ndarray, scales: Any) -> np.ndarray:
    """The right codes; where a number lies halfway between two, whichever was taken."""
    exact = x.astype(np.float64) / np.asarray(scales, np.float64).reshape(-1, 1)
    right = np.clip(np.round(exact), -127, 127)
    halfway = (np.abs(exact - codes) < 0.501) & (np.abs(codes.astype(int)) <= 127)
    return np.where(halfway, codes, right).astype(np.int8)


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


def _pair(found: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(found, tuple | list) or len(found) != 2:
        many = f" of {len(found)}" if isinstance(found, tuple | list) else ""
        raise Finding(f"expected two results, codes and scales, got {type(found).__name__}{many}")
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
        "one scale for all vectors: a single large vector then leaves few levels to the others": (
            np.full_like(size, size.max() / 127)
        ),
        "you took the largest number, not the largest in size: a vector whose largest number is "
        "negative overflows": x.max(axis=-1) / 127,
        "you divided by 128: then the largest number becomes 128, which an int8 cannot hold": (
            size / 128
        ),
        "you divided by 255: that is for codes from 0 to 255, but these have a sign": size / 255,
        "these are 1 / scale: return the number that a code is multiplied by": 127 / size,
        "the scale is made from the root mean square, so numbers above 127 scales are cut off: "
        "use the largest number": (np.sqrt((x**2).mean(axis=-1)) / 127),
    }
    diagnose(scales, suspects)
    expect_close(scales, right, "scales", axes=("vector",))


def _compare_codes(codes: np.ndarray, x: np.ndarray, scales: np.ndarray) -> None:
    right = _nearest(codes, x, scales)
    if (codes == right).all():
        return
    exact = x / scales[:, None]
    suspects = {
        "the cast cuts off the fraction: 2.9 becomes 2. Round first, then cast": np.trunc(exact),
        "floor makes codes too small: round to the nearest": np.floor(exact),
        "ceil makes codes too large: round to the nearest": np.ceil(exact),
        "these codes are shifted by 128 and wrapped round: with a scale of max / 127 the codes "
        "already have their sign": (np.round(exact).astype(np.int32) + 128).astype(np.int8),
    }
    diagnose(codes, suspects)
    expect_close(codes, right, "codes", axes=VECTOR, rtol=0, atol=0)


@checker
def check_fixed_codes(fixed_codes: Any) -> Iterator[str]:
    """fixed_codes(x, scale) -> codes int8 as x; scale was measured beforehand on other text."""
    rng = np.random.default_rng(1)
    seen = rng.uniform(-1, 1, (8, 16)).astype(np.float32)
    scale = 1 / 127
    codes = _fixed(fixed_codes(seen.copy(), scale), seen.shape)
    right = _nearest(codes, seen, scale)
    expect_close(codes, right, "codes of the measured numbers", axes=TOKEN, rtol=0, atol=0)
    yield "within the measured range, each number gets the nearest code"
    later = seen.copy()
    later[3, 5], later[4, 7], later[5, 2] = 1.2, -1.3, 4.1
    codes = _fixed(fixed_codes(later.copy(), scale), later.shape)
    whole = np.round(later / scale)
    suspects = {
        f"channel 5 of token 3 was {later[3, 5]:.1f} and decodes to "
        f"{float(codes[3, 5]) * scale:.2f}: the cast comes before the clip, so the code "
        f"{int(whole[3, 5])} wraps round to {int(codes[3, 5])}": (
            np.clip(whole.astype(np.int32).astype(np.int8), -127, 127)
        ),
        "a number beyond the range becomes 0, but it should become the nearest code": (
            np.where(np.abs(whole) > 127, 0, whole)
        ),
        "you measured a new scale: the codes that were stored before would decode wrongly": (
            np.round(later / (np.abs(later).max() / 127))
        ),
        "you clip to -128 on one side: -128 has no positive partner, so clip to -127 ... 127": (
            np.clip(whole, -128, 127)
        ),
    }
    right = _nearest(codes, later, scale)
    if not (codes == right).all():
        diagnose(codes, suspects)
    expect_close(
        codes, right, "codes of a later text", axes=TOKEN, rtol=0, atol=0,
        why="a number beyond the range becomes 127 or -127",
    )  # fmt: skip
    yield "beyond it, a number gets the outermost code, with the right sign"
    for other in (0.03, 0.002):
        codes = _fixed(fixed_codes(later.copy(), other), later.shape)
        right, what = _nearest(codes, later, other), f"codes with the scale {other}"
        why = f"with this scale the code 127 means {127 * other:.3g}; before, it meant 1"
        expect_close(codes, right, what, axes=TOKEN, rtol=0, atol=0, why=why)
    yield "this holds for any scale"
    far = np.array([[1e6, -1e6, 3e38, -3e38]], dtype=np.float32)
    codes, right = _fixed(fixed_codes(far, scale), far.shape), np.array([[127, -127, 127, -127]])
    if not (codes == right).all():
        j = int(np.argmax(codes[0] != right[0]))
        raise Finding(
            f"{far[0, j]:.0e}: expected the code {right[0, j]}, got {codes[0, j]}: a cast to whole "
            "numbers comes before the clip, and this number is too large for the integers of that "
            "cast, even if they are wider than int8. Clip first, then cast"
        )
    yield "it also holds however far a number lies beyond the range"


def _fixed(codes: Any, shape: tuple[int, ...]) -> np.ndarray:
    expect_shape(codes, shape, "codes", letters="S D")
    expect_dtype(codes, np.int8, "codes")
    found: np.ndarray = codes
    return found
