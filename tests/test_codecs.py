"""What a codec may lose, and what it may not: round trips, odd groups, axes, refusals."""

import warnings

import array_api_strict as strict
import numpy as np
import pytest
from effort import number
from hypothesis import given, settings
from hypothesis import strategies as st

from kvlib import LayerSpec
from kvlib.caches import QuantizedCache
from kvlib.codecs import (
    PLAIN,
    Codec,
    Int8,
    PerChannel,
    PerToken,
    Plain,
    int8,
    int8_per_channel,
    kivi,
)
from kvlib.codecs.base import FLOAT16_MAX, Field

BITS = (2, 4, 8)
GROUPED = [kind(bits, 8) for kind in (PerChannel, PerToken) for bits in BITS]
ALL = [Int8(), *GROUPED]
HALF = 2.0**-11  # float16 rounds by at most this part of a number
TINY = 2.0**-25  # and by at most this near zero


def normal(*shape, seed=0, scale=1.0):
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def round_trip(codec, x, dtype=np.float32):
    return codec.decode(codec.encode(x), dtype)


def grouped(codec, x):
    """x (heads, n, D) with the numbers of one group on the last axis."""
    heads, n, dim = x.shape
    if isinstance(codec, PerChannel):
        return x.reshape(heads, n // codec.size, codec.size, dim).swapaxes(2, 3)
    return x.reshape(heads, n, dim // codec.size, codec.size)


# int8 ------------------------------------------------------------------------------------------


def test_int8_moves_no_number_by_more_than_half_a_scale():
    """A cast before the clip, or to one bit too few, wraps round: errors of whole ranges."""
    x = normal(2, 50, 16) * np.exp(normal(2, 50, 1, seed=1))
    parts = Int8().encode(x)
    assert parts["codes"].dtype == np.int8 and parts["scales"].dtype == np.float32
    assert parts["scales"].shape == (2, 50)
    error = np.abs(Int8().decode(parts, np.float64) - x)
    assert (error <= parts["scales"][..., None] * (0.5 + 1e-5)).all()
    assert (np.abs(parts["codes"].astype(int)).max(axis=-1) == 127).all()  # the range is used


@settings(max_examples=number(quick=20, usual=100, whole=200))
@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=4, max_size=4))
def test_int8_of_any_finite_numbers(numbers):
    x = np.asarray(numbers, np.float32).reshape(1, 1, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parts = Int8().encode(x)
    scale = float(parts["scales"][0, 0])
    error = np.abs(parts["codes"].astype(np.float64) * scale - x)
    assert (error <= scale * (0.5 + 1e-5)).all()
    assert scale <= max(np.abs(x).max() / 127 * (1 + 1e-6), 2e-38)  # and a scale is never wider


# Groups ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", GROUPED, ids=repr)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 300.0])
def test_groups_move_no_number_by_more_than_half_a_scale(codec, scale):
    x = normal(2, 24, 16, scale=scale)
    parts = codec.encode(x)
    assert parts["codes"].dtype == np.uint8 and parts["codes"].shape == (2, 24, 2 * codec.bits)
    assert parts["scales"].dtype == parts["zeros"].dtype == np.float16
    groups = grouped(codec, x.astype(np.float64))
    error = np.abs(grouped(codec, codec.decode(parts, np.float64)) - groups)
    levels = 2**codec.bits - 1
    span = groups.max(axis=-1) - groups.min(axis=-1)
    # Half a step, and what float16 makes of the scale and of the smallest number.
    bound = span / levels * 0.51 + span * HALF + np.abs(groups).max(axis=-1) * HALF
    assert (error.max(axis=-1) <= bound + (levels + 1) * TINY).all()


@pytest.mark.parametrize("codec", ALL, ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    "odd", ["zero", "constant", "one-hot", "huge", "subnormal", "two ends", "tiny range"]
)
def test_odd_groups_stay_finite(codec, dtype, odd):
    """KIVI's code divides zero by zero where all numbers of a group are equal."""
    x = np.zeros((2, 16, 16), np.float32)
    if odd == "constant":
        x[...] = 0.75
    elif odd == "one-hot":
        x[:, 3, 5] = 2.0
    elif odd == "huge":
        x[...] = normal(2, 16, 16) * np.float32(5e37)
    elif odd == "subnormal":
        x[...] = normal(2, 16, 16) * 1e-44
    elif odd == "two ends":
        x[:, ::2, :], x[:, 1::2, :] = FLOAT16_MAX, -FLOAT16_MAX
    elif odd == "tiny range":
        x[...] = 1 + normal(2, 16, 16, scale=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parts = codec.encode(x)
        if odd == "huge" and isinstance(codec, Int8):
            dtype = np.float32  # 1e38 is no float16
        found = codec.decode(parts, dtype)
    assert found.dtype == dtype and np.isfinite(found).all()
    for name in ("scales", "zeros"):
        assert name not in parts or np.isfinite(parts[name]).all()
    if odd in ("zero", "constant"):
        assert np.abs(found - x).max() <= 2e-3 * np.abs(x).max()
    if odd == "one-hot":
        assert abs(found[0, 3, 5] - 2) < 5e-3 and np.count_nonzero(found) == 2
    if odd == "huge" and not isinstance(codec, Int8):
        assert (
            np.abs(found.astype(float)) <= FLOAT16_MAX * 1.001
        ).all()  # saturated: and not inf − inf
        assert (np.sign(found) == np.sign(x)).mean() > 0.7
    if odd == "two ends":
        np.testing.assert_allclose(found, x, rtol=2e-2)


@pytest.mark.parametrize("codec", GROUPED, ids=repr)
def test_numbers_beyond_float16_become_its_largest(codec):
    x = np.full((1, 8, 8), 1e38, np.float32)
    x[:, :4] *= -1
    x[:, :, ::2] *= -1
    found = round_trip(codec, x)
    np.testing.assert_allclose(found, np.copysign(FLOAT16_MAX, x), rtol=2e-2)


# Axes ------------------------------------------------------------------------------------------


def damaged(codec, channel):
    """How much a large channel, or else a large token, adds to the error of all others."""
    x = normal(1, 32, 32)
    big, others = x.copy(), np.ones((32, 32), bool)
    where = (slice(None), slice(None), 5) if channel else (slice(None), 5, slice(None))
    big[where] *= 1000
    others[where[1:]] = False
    before, after = (np.abs(round_trip(codec, a) - a)[0][others].mean() for a in (x, big))
    return after / before


@pytest.mark.parametrize("bits", BITS)
def test_a_large_channel_hurts_no_other_when_groups_are_per_channel(bits):
    assert damaged(PerChannel(bits, 8), channel=True) == 1
    assert damaged(PerToken(bits, 8), channel=True) > 2
    assert damaged(PerToken(bits, 32), channel=True) > (3 if bits == 2 else 8)


@pytest.mark.parametrize("bits", BITS)
def test_a_large_token_hurts_no_other_when_groups_are_per_token(bits):
    assert damaged(PerToken(bits, 8), channel=False) == 1
    assert damaged(PerChannel(bits, 8), channel=False) > 2
    assert damaged(PerChannel(bits, 32), channel=False) > (3 if bits == 2 else 8)


def test_int8_has_a_scale_for_each_token_and_head():
    assert damaged(Int8(), channel=False) == 1
    x = normal(2, 8, 16)
    big = x.copy()
    big[1] *= 1000
    assert (round_trip(Int8(), big)[0] == round_trip(Int8(), x)[0]).all()


@pytest.mark.parametrize("codec", ALL, ids=repr)
def test_a_token_is_written_alike_alone_and_among_others(codec):
    x = normal(3, 24, 16)
    whole = codec.encode(x)
    for a in range(0, 24, 8):
        for name, part in codec.encode(x[:, a : a + 8]).items():
            per = 8 // part.shape[1]
            assert (whole[name][:, a // per : (a + 8) // per] == part).all()


def test_kivi_writes_keys_per_channel_and_values_per_token():
    codec = kivi(4, group=16, residual=3)
    assert isinstance(codec.keys, PerChannel) and isinstance(codec.values, PerToken)
    assert (codec.keys.bits, codec.values.size, codec.group, codec.residual) == (4, 16, 16, 3)
    assert codec.name == "int4" and codec.waits
    assert isinstance(int8_per_channel().keys, PerChannel)
    assert isinstance(int8().keys, Int8) and not int8().waits and int8(5).waits


def test_a_codec_is_plain_by_what_it_writes():
    assert PLAIN.plain and Codec("mine", Plain(), Plain(), residual=7).plain
    for codec in (Codec("plain", Int8(), Int8()), Codec("plain", Plain(), Int8()), kivi(4)):
        assert not codec.plain

    class Rotated(Plain):
        """Somebody's own: derived from Plain, and yet it has something to decode."""

    assert not Codec("plain", Rotated(), Rotated()).plain


# Libraries and dtypes --------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ALL, ids=repr)
def test_float16_input_is_its_float32(codec):
    x = normal(2, 16, 16).astype(np.float16)
    half, single = codec.encode(x), codec.encode(x.astype(np.float32))
    for name in half:
        assert half[name].dtype == single[name].dtype and (half[name] == single[name]).all()
    assert codec.decode(half, np.float16).dtype == np.float16


@pytest.mark.parametrize("codec", ALL, ids=repr)
def test_the_strict_library_writes_the_same_codes(codec):
    """Scales are float32 there, for the standard has no float16: numbers that need no more."""
    x = np.random.default_rng(0).integers(-8, 8, (2, 16, 16)).astype(np.float32)
    x[:, ::8, :], x[:, 1::8, :] = -8, 2**8 - 9  # a range of 2^8 − 1: all scales are exact
    x[:, :, ::8], x[:, :, 1::8] = -8, 2**8 - 9
    ours, theirs = codec.encode(x), codec.encode(strict.asarray(x))
    for name in ours:
        assert (np.asarray(theirs[name]) == ours[name]).all()
    found = codec.decode(theirs, strict.float32)
    assert found.dtype == strict.float32
    assert (np.asarray(found) == codec.decode(ours, np.float32)).all()


@pytest.mark.parametrize("codec", ALL, ids=repr)
def test_no_float64_and_no_change_of_the_input(codec):
    x = normal(2, 16, 16)
    kept = x.copy()
    parts = codec.encode(x)
    saved = {name: part.copy() for name, part in parts.items()}
    assert codec.decode(parts, np.float32).dtype == np.float32
    assert codec.scores(normal(2, 3, 16), parts).dtype == np.float32
    assert codec.weigh(normal(2, 3, 16), parts, 16).dtype == np.float32
    assert (x == kept).all() and all((parts[n] == saved[n]).all() for n in parts)
    assert all(part.dtype != np.float64 for part in parts.values())


@pytest.mark.parametrize("codec", ALL, ids=repr)
def test_fields_are_what_encode_gives(codec):
    parts = codec.encode(normal(3, 16, 16))
    fields = codec.fields(16, np, np.float32)
    assert fields.keys() == parts.keys()
    for name, field in fields.items():
        assert parts[name].shape == (3, 16 // field.per, *field.shape)
        assert parts[name].dtype == field.dtype


@pytest.mark.parametrize("codec", ALL, ids=repr)
def test_no_tokens_at_all(codec):
    parts = codec.encode(np.empty((2, 0, 16), np.float32))
    assert codec.decode(parts, np.float32).shape == (2, 0, 16)


# Refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [0, 1, 3, 16, "4"])
def test_widths_that_no_byte_can_hold_are_refused(bits):
    with pytest.raises(ValueError, match=r"bits must be one of \(2, 4, 8\)"):
        kivi(bits)


def test_groups_of_no_channel_are_refused():
    with pytest.raises(ValueError, match="group .size. must be an integer of at least 1"):
        kivi(4, 0)


def test_vectors_that_do_not_fit():
    with pytest.raises(ValueError, match="6 codes of 2 bits do not fill whole bytes"):
        PerChannel(2, 4).check(6)
    with pytest.raises(ValueError, match="groups of 32 channels do not divide vectors of 48"):
        PerToken(4, 32).check(48)
    PerToken(4, 32).check(64)


def test_vectors_that_do_not_fit_are_not_packed_either():
    """Three codes of four bits would lose one without a word."""
    x = np.ones((1, 8, 6), np.float32)
    for codec, words in (
        (PerChannel(4, 3), "8 tokens are no multiple of the 3 that are encoded together"),
        (PerChannel(2, 4), "6 codes of 2 bits do not fill whole bytes"),
        (PerToken(2, 2), "6 codes of 2 bits do not fill whole bytes"),
        (PerToken(4, 4), "groups of 4 channels do not divide vectors of 6"),
    ):
        with pytest.raises(ValueError, match=words):
            codec.encode(x)
        with pytest.raises(ValueError, match=r"x must be \(heads, tokens, dim\), got .* \(8, 6\)"):
            codec.encode(x[0])


def test_keys_and_values_of_different_groups_are_encoded_when_both_are_full():
    codec = Codec("both", PerChannel(4, 4), PerChannel(2, 6), residual=1)
    assert codec.group == 12 and codec.coded(25) == 24 and codec.coded(24) == 12
    cache = QuantizedCache([LayerSpec(1, 8)], codec, 1, 36, xp=np)
    x = np.random.default_rng(0).standard_normal((31, 1, 8)).astype(np.float32)
    cache.add("a")
    for a, b in ((0, 5), (5, 26), (26, 31)):
        cache.append(0, x[a:b], x[a:b], cache.plan(["a"], [b - a]))
    k, v, _ = cache.read(0, "a")
    for tensor, found in ((codec.keys, k), (codec.values, v)):
        coded = tensor.decode(tensor.encode(x[:24].transpose(1, 0, 2)), np.float32)
        assert (found[:24] == coded.transpose(1, 0, 2)).all() and (found[24:] == x[24:]).all()


def test_a_field_of_pairs_needs_a_codec_of_pairs():
    class Paired(Int8):
        def fields(self, dim, xp, dtype):
            return {**super().fields(dim, xp, dtype), "means": Field(2, (dim,), dtype)}

    codec = Codec("paired", Paired(), Paired())
    with pytest.raises(ValueError, match="multiple of the 2 tokens .* 'means', got 1"):
        QuantizedCache([LayerSpec(1, 4)], codec, 1, 8, xp=np)
    Paired.group = 2
    codec = Codec("paired", Paired(), Paired())
    assert QuantizedCache([LayerSpec(1, 4)], codec, 1, 8, xp=np).add("a") == 0


@pytest.mark.parametrize("given", [(5, Int8()), (Int8(), int8()), (Int8, Int8())])
def test_a_codec_is_made_of_two_tensor_codecs(given):
    with pytest.raises(TypeError, match="must be a TensorCodec, such as Int8.., got"):
        Codec("odd", *given)


@pytest.mark.parametrize("residual, group", [(0, 1), (0, 8), (5, 8), (128, 32)])
def test_what_is_coded_is_whole_groups_behind_the_residual(residual, group):
    codec = Codec("c", PerChannel(4, group), PerToken(4, 8), residual)
    for length in range(200):
        coded = codec.coded(length)
        assert coded % group == 0 and 0 <= coded <= length
        assert coded == 0 or length - coded >= residual
        assert length - coded < residual + group
    assert PLAIN.coded(7) == 7 and not PLAIN.waits


# What run multiplies ---------------------------------------------------------------------------


@pytest.mark.parametrize("xp", [np, strict], ids=["numpy", "strict"])
@pytest.mark.parametrize("count", [1, 4, 8, 9, 30])
@pytest.mark.parametrize("codec", ALL, ids=repr)
def test_scores_and_weighing_are_those_of_the_decoded_numbers(codec, count, xp):
    """Scales folded into few rows, codes decoded for many: the same to rounding."""
    x, rows, p = normal(2, 24, 16), normal(2, count, 16, seed=1), normal(2, count, 24, seed=2)
    x[..., 3] += 20  # and not only around zero
    parts = codec.encode(xp.asarray(x))
    decoded = np.asarray(codec.decode(parts, xp.float64))
    rows_, p_ = xp.asarray(rows), xp.asarray(p)
    s, o = codec.scores(rows_, parts), codec.weigh(p_, parts, 16)
    assert s.dtype == o.dtype == xp.float32
    np.testing.assert_allclose(np.asarray(s), rows @ decoded.mT, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.asarray(o), p @ decoded, rtol=1e-4, atol=1e-4)
    first = np.asarray(codec.weigh(p_, parts, 5))
    np.testing.assert_allclose(first, p @ decoded[..., :5], rtol=1e-4, atol=1e-4)
    assert (rows == np.asarray(rows_)).all() and (p == np.asarray(p_)).all()
