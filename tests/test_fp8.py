"""fp8 against the OCP specification (8-bit Floating Point, 2023) and a search for the nearest."""

import warnings

import array_api_strict as strict
import numpy as np
import pytest

from kvlib.codecs.fp8 import Fp8, table

KINDS = {"e4m3": (448.0, 2.0**-6, 2.0**-9), "e5m2": (57344.0, 2.0**-14, 2.0**-16)}


def encode(kind, x, xp=np):
    return np.asarray(Fp8(kind).encode(xp.asarray(x))["codes"])


def decode(kind, codes, xp=np):
    return np.asarray(Fp8(kind).decode({"codes": xp.asarray(codes)}, xp.float32))


def nearest(kind, x):
    """Codes of the nearest numbers in float64, ties to the even code, beyond the top the top."""
    values = table(kind).astype(np.float64)[:128]
    values = values[np.isfinite(values)]
    found = []
    for size in np.abs(x.astype(np.float64)):
        distance = np.abs(values - min(size, values[-1]))
        best = np.flatnonzero(distance == distance.min())
        assert len(best) <= 2
        found.append(next(i for i in best if len(best) == 1 or i % 2 == 0))
    return np.asarray(found, np.uint8) | np.where(np.signbit(x), 0x80, 0).astype(np.uint8)


@pytest.mark.parametrize("kind", KINDS)
def test_the_facts(kind):
    top, normal, subnormal = KINDS[kind]
    values = table(kind)
    assert values.shape == (256,) and values.dtype == np.float32
    finite = values[np.isfinite(values)]
    assert finite.max() == top and finite.min() == -top
    positive = values[1:128]
    assert positive[0] == subnormal and normal in positive
    assert (np.diff(positive[np.isfinite(positive)]) > 0).all()
    steps = np.diff(positive[positive <= normal])
    assert (steps == subnormal).all()  # evenly spaced below the smallest normal number
    assert values[0] == 0 and np.signbit(values[0x80]) and values[0x80] == 0


def test_what_is_no_number():
    e4m3, e5m2 = table("e4m3"), table("e5m2")
    assert np.flatnonzero(np.isnan(e4m3)).tolist() == [0x7F, 0xFF]
    assert not np.isinf(e4m3).any()
    assert np.flatnonzero(np.isinf(e5m2)).tolist() == [0x7C, 0xFC]
    assert np.flatnonzero(np.isnan(e5m2)).tolist() == [0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF]


@pytest.mark.parametrize("xp", [np, strict], ids=["numpy", "strict"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_code_encodes_to_itself(kind, xp):
    codes = np.arange(256, dtype=np.uint8)
    values = decode(kind, codes, xp)
    finite = np.isfinite(values)
    assert (encode(kind, values[finite], xp) == codes[finite]).all()
    assert np.isnan(decode(kind, encode(kind, np.full(2, np.nan, np.float32), xp), xp)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_nearest_and_ties_to_even(kind):
    values = table(kind)[:128]
    values = values[np.isfinite(values)].astype(np.float64)
    halves = ((values[1:] + values[:-1]) / 2).astype(np.float32)  # exact in float32
    x = np.concatenate(
        [
            halves, np.nextafter(halves, np.float32(np.inf)), np.nextafter(halves, np.float32(0)),
            np.nextafter(values[1:].astype(np.float32), np.float32(0)),
            np.nextafter(values.astype(np.float32), np.float32(np.inf)),
        ]
    )
    x = np.concatenate([x, -x])
    assert (encode(kind, x) == nearest(kind, x)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_nearest_of_random_numbers(kind):
    rng = np.random.default_rng(0)
    x = np.exp2(rng.uniform(-24, 18, 20_000)) * rng.choice([-1, 1], 20_000)
    x = x.astype(np.float32)
    assert (encode(kind, x) == nearest(kind, x)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_saturates(kind):
    top = KINDS[kind][0]
    x = np.asarray([top * 1.01, 464, 465, 65504, 1e38, np.inf, -1e38, -np.inf], np.float32)
    x = x[np.abs(x) > top]
    assert (decode(kind, encode(kind, x)) == np.copysign(top, x)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_zeros_and_the_tiniest_without_a_warning(kind):
    x = np.asarray([0.0, -0.0, 1e-45, -1e-45, 1e-30], np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        codes = encode(kind, x)
    assert codes.tolist() == [0, 0x80, 0, 0x80, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_float16_in_and_out(kind):
    x = np.linspace(-3, 3, 97, dtype=np.float16)
    codes = encode(kind, x)
    assert (codes == encode(kind, x.astype(np.float32))).all()
    found = Fp8(kind).decode({"codes": codes}, np.float16)
    assert found.dtype == np.float16 and (found == decode(kind, codes)).all()


def test_another_kind_is_refused():
    with pytest.raises(ValueError, match="e4m3, e5m2, got 'e4m3fnuz'"):
        Fp8("e4m3fnuz")
