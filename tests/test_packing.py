"""Small codes in bytes: the order that the docstring names, bit by bit, and nothing lost."""

import array_api_strict as strict
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kvlib.codecs import pack, unpack

WIDTHS = range(1, 9)


def by_hand(codes: list[int], bits: int) -> list[int]:
    """Byte j holds channels j, j + n, ... of D·b/8 = n bytes, the first and low bits lowest."""
    low = 1 << bits.bit_length() - 1
    if low != bits:
        first = by_hand([code % (1 << low) for code in codes], low)
        return first + by_hand([code >> low for code in codes], bits - low)
    n = len(codes) * bits // 8
    found = [0] * n
    for channel, code in enumerate(codes):
        for bit in range(bits):
            if code >> bit & 1:
                found[channel % n] |= 1 << (channel // n * bits + bit)
    return found


@st.composite
def some_codes(draw):
    bits = draw(st.sampled_from(WIDTHS))
    numbers = 8 // (bits & -bits) * draw(st.integers(1, 9))
    shape = (draw(st.integers(1, 3)), draw(st.integers(0, 5)), numbers)
    return bits, draw(arrays(np.uint8, shape, elements=st.integers(0, 2**bits - 1)))


@pytest.mark.parametrize("bits, codes, packed", [
    (4, [1, 2, 3, 4], [0x31, 0x42]),  # channels 0 and 2 share the first byte
    (2, [0, 1, 2, 3, 3, 2, 1, 0], [0b01_11_10_00, 0b00_10_11_01]),  # 0, 2, 4, 6; 1, 3, 5, 7
    (3, range(8), [0b10_00_10_00, 0b11_01_11_01, 0b1111_0000]),  # low two bits, then third bits
])  # fmt: skip
def test_bytes_written_out(bits, codes, packed):
    assert pack(np.asarray(codes, np.uint8), bits).tolist() == packed


@pytest.mark.parametrize("bits, n", [(0, 8), (9, 8), (4, 3), (2, 6), (3, 4), (1, 12), (6, 2)])
def test_what_fills_no_byte_is_refused(bits, n):
    with pytest.raises(ValueError, match=f"bits must be 1 ... 8 and fill whole bytes.*{bits} bits"):
        pack(np.zeros((2, n), np.uint8), bits)
    with pytest.raises(ValueError, match="bits must be 1 ... 8 and fill whole bytes"):
        unpack(np.zeros((2, 4), np.uint8), bits if n == 8 else 3, np.uint8)


@given(some_codes())
def test_order_and_inverse(drawn):
    bits, codes = drawn
    packed = pack(codes, bits)
    assert packed.dtype == np.uint8
    assert packed.shape == (*codes.shape[:-1], codes.shape[-1] * bits // 8)
    for row, bytes_ in zip(codes.reshape(-1, codes.shape[-1]), packed.reshape(-1, packed.shape[2])):
        assert bytes_.tolist() == by_hand(row.tolist(), bits)
    for dtype in (np.float32, np.float16):
        found = unpack(packed, bits, dtype)
        assert found.dtype == dtype and (found == codes).all()


@given(some_codes())
def test_the_same_under_the_strict_library(drawn):
    bits, codes = drawn
    packed = pack(strict.asarray(codes), bits)
    assert (np.asarray(packed) == pack(codes, bits)).all()
    assert (np.asarray(unpack(packed, bits, strict.float32)) == codes).all()


@pytest.mark.parametrize("bits", WIDTHS)
def test_neither_changes_what_it_is_given(bits):
    codes = (np.arange(64) % 2**bits).astype(np.uint8).reshape(2, 2, 16)
    kept = codes.copy()
    packed = pack(codes, bits)
    before = packed.copy()
    unpack(packed, bits, np.float32)[...] = 0
    assert (codes == kept).all() and (packed == before).all()
