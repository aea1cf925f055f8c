"""Right answers on few bits of other forms."""

from __future__ import annotations

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

f32 = np.float32


def times_the_inverse(x: Any) -> Any:
    top = np.maximum(x.max(axis=1), -x.min(axis=1))
    safe = np.where(top > 0, top, f32(1))
    return np.floor(x * (f32(127) / safe)[:, None] + f32(0.5)).astype(np.int8), safe / f32(127)


def scale_zero(x: Any) -> Any:
    scales = (np.abs(x).max(axis=1) / 127).astype(f32)
    codes = np.zeros_like(x)
    np.divide(x, scales[:, None], out=codes, where=scales[:, None] > 0)
    return [np.round(codes).astype("int8"), scales]


def one_by_one(x: Any, scale: float) -> Any:
    codes = np.empty(x.shape, np.int8)
    for place, number in np.ndenumerate(x):
        codes[place] = max(-127, min(127, round(float(number) / scale)))
    return codes


def clipped_first(x: Any, scale: float) -> Any:
    return np.round(np.clip(x, -127 * scale, 127 * scale) / scale).astype(np.int8)


def by_kvlib(packed: Any) -> Any:
    return pack(np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1), 4)


def by_norm(keys: Any, queries: Any, decoded: Any) -> Any:
    names = np.array(sorted(decoded, reverse=True))
    off = [np.linalg.norm(queries @ keys.T - queries @ decoded[a].T) for a in names]
    return names[int(off[1] < off[0])]


@pytest.mark.parametrize(
    "check, answer",
    [
        *((check_int8_codes, answer) for answer in (times_the_inverse, scale_zero)),
        *((check_fixed_codes, answer) for answer in (one_by_one, clipped_first)),
        (check_to_kvlib_order, by_kvlib),
        (check_choose_axis, by_norm),
    ],
)
def test_right_answers_of_other_forms(check: Any, answer: Any) -> None:
    report = check(answer)
    assert report.passed, report
