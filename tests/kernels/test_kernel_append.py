"""Append, the kernel and its twin, against kvlib's own codecs, bit for bit."""

import numpy as np
import pytest
from engines import HOSTS, RUNS, back, given

from kvlib import codecs
from kvlib.kernels import append_kv
from kvlib.kernels.codes import Codes
from kvlib.kernels.types import as_float, as_type, to_bfloat16

CODECS = {
    "int8": codecs.int8(),
    "e4m3": codecs.fp8("e4m3"),
    "e5m2": codecs.fp8("e5m2"),
    "int4": codecs.kivi(4, 8),
    "int2": codecs.kivi(2, 8),
}
BLOCKS, HEADS, SIZE, DIM = 6, 2, 16, 64


def empty(one, dim=DIM):
    """Blocks full of a byte that shows where nothing was written."""
    arrays = {}
    for name, field in one.fields(dim, np, np.float32).items():
        x = np.empty((BLOCKS, HEADS, SIZE // field.per, *field.shape), field.dtype)
        x.view(np.uint8)[...] = 0xA5
        arrays[name] = x
    return Codes(one, **arrays)


def numbers(rng, tokens, dim=DIM):
    """Keys of many sizes: zeros, huge and tiny ones, constant channels, ties of rounding."""
    x = rng.standard_normal((tokens, HEADS, dim)).astype(np.float32)
    x *= np.exp2(rng.integers(-30, 20, (tokens, 1, 1))).astype(np.float32)
    x[:, 0, 3], x[0, 1], x[1, 0] = 2.5, 0.0, 1e-42
    x[2], x[3, 0, 5], x[3, 1, :9] = rng.integers(-300, 300, (HEADS, dim)) / 2, 3e38, -1e5
    return x


def append(k, v, k_blocks, v_blocks, slots, run_on):
    """The blocks as they are afterwards."""
    arrays = given(run_on, (k, v, k_blocks, v_blocks, slots))
    append_kv(*arrays, run_on=run_on)
    return back(arrays[2:4])


def slots_for(rng, groups, group):
    """Shuffled groups of slots; every third group goes nowhere."""
    first = rng.permutation(BLOCKS * SIZE // group)[:groups] * group
    slots = first[:, None] + np.arange(group)
    slots[1::3] = -1
    return slots.reshape(-1).astype(np.int64)


@pytest.mark.pairwise
@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint16"])
@pytest.mark.parametrize("name", CODECS)
def test_codes_are_those_of_the_codec(name, dtype, run_on):
    codec, rng = CODECS[name], np.random.default_rng(3)
    tokens, group = 5 * 8, codec.group
    most = 6e4 if dtype == "float16" else 3e38
    k, v = (as_type(np.clip(numbers(rng, tokens), -most, most), np.dtype(dtype)) for _ in "kv")
    slots = slots_for(rng, tokens // group, group)
    blocks, want = ([empty(one) for one in (codec.keys, codec.values)] for _ in range(2))
    blocks = append(k, v, *blocks, slots, run_on)
    for x, one in zip((k, v), want, strict=True):
        fields = one.codec.encode(as_float(x).transpose(1, 0, 2))
        for t in np.flatnonzero(slots >= 0):
            for field, part in fields.items():
                whole, per = getattr(one, field), tokens // part.shape[1]
                whole[slots[t] // SIZE, :, slots[t] % SIZE // per] = part[:, t // per]
    for x, y in zip(blocks, want, strict=True):
        for a, b in zip(x[1:], y[1:], strict=True):
            assert (a is None) == (b is None)
            if (
                a is not None
            ):  # equal, so that a least number of 0 may be −0: NumPy does not say which
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_fp8_rounds_as_the_codec_does(kind, run_on):
    """Every float16 and the float32 numbers beside each: ties, saturation, signed zeros."""
    codec = codecs.fp8(kind).keys
    bits = np.arange(2**16, dtype=np.uint16)
    x = bits.view(np.float16).astype(np.float32)
    with np.errstate(invalid="ignore"):
        x = np.concatenate([x, np.nextafter(x, np.float32(9)), np.nextafter(x, np.float32(-9))])
    x = x.reshape(-1, 1, 1536)
    codes = np.zeros((1, 1, len(x), 1536), np.uint8)
    blocks = Codes(codec, codes)
    blocks, _ = append(x, x, blocks, blocks, np.arange(len(x)), run_on)
    with np.errstate(invalid="ignore"):
        want = codec.encode(x.transpose(1, 0, 2))["codes"]
    np.testing.assert_array_equal(blocks.codes[0], want)


@pytest.mark.pairwise
@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize(
    ("dtype", "into"),
    [("float32", "float32"), ("float16", "float16"), ("uint16", "uint16"), ("float32", "float16"),
     ("float32", "uint16")],
)  # fmt: skip
def test_plain_numbers_go_where_their_slots_are(dtype, into, run_on):
    rng = np.random.default_rng(4)
    k, v = (
        as_type(rng.standard_normal((20, 2, 72)).astype(np.float32), np.dtype(dtype)) for _ in "kv"
    )
    slots = slots_for(rng, 20, 1)
    blocks = [np.full((BLOCKS, HEADS, SIZE, 72), 7, into) for _ in "kv"]
    blocks = append(k, v, *blocks, slots, run_on)
    for x, found in zip((k, v), blocks, strict=True):
        want = np.full(found.shape, 7, into)
        for t in np.flatnonzero(slots >= 0):
            row = to_bfloat16(as_float(x[t])) if into == "uint16" else x[t]
            want[slots[t] // SIZE, :, slots[t] % SIZE] = row
        np.testing.assert_array_equal(found, want)


def test_the_order_of_threads_does_not_matter():
    from kvlib.kernels import processor
    from kvlib.kernels.append import launch_of

    rng, codec = np.random.default_rng(5), CODECS["int4"].values
    x, slots, seen = numbers(rng, 16), slots_for(rng, 2, 8), []
    for first, stride in ((0, 1), (127, -1 % 128), (5, 37)):
        blocks = empty(codec)
        processor.run(launch_of(x, blocks, slots, 8), first=first, stride=stride)
        seen.append(blocks.codes.tobytes() + blocks.scales.tobytes())
    assert seen[0] == seen[1] == seen[2]


def test_nothing_to_append():
    x, blocks = np.empty((0, 2, 64), np.float32), np.zeros((1, 2, 16, 64), np.float32)
    for run_on in HOSTS:
        append_kv(x, x, blocks, blocks, np.empty(0, np.int64), run_on=run_on)
    assert not blocks.any()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"slots": lambda s: s + 999}, ValueError, "slot_mapping must lie in -1 ... 95"),
        ({"slots": lambda s: s - 99}, ValueError, "slot_mapping must lie in"),
        ({"slots": lambda s: s * 0}, ValueError, "slot 0 more than once"),
        ({"slots": lambda s: s[::-1].copy()}, ValueError, "one group in order"),
        ({"slots": lambda s: s + 1}, ValueError, "one group in order"),
        ({"slots": lambda s: s.astype(np.int32)}, TypeError, "must be int64"),
        ({"slots": lambda s: s[:8]}, ValueError, "slot_mapping must be"),
        ({"k": lambda x: x.astype(np.float64)}, TypeError, "float32, float16 or uint16"),
        ({"v": lambda x: np.zeros(x.shape, np.float16)}, TypeError, "v must be float32"),
        ({"v": lambda x: x[:, :1].copy()}, ValueError, "v must be"),
        ({"k": lambda x: x[:12].copy(), "v": lambda x: x[:12].copy(), "slots": lambda s: s[:12]},
         ValueError, "whole groups of 8"),
        ({"k_blocks": lambda x: x._replace(scales=None)}, TypeError, "scales of k are missing"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(change, error, words):
    rng, codec = np.random.default_rng(6), CODECS["int4"]
    arrays = {
        "k": numbers(rng, 16), "v": numbers(rng, 16), "k_blocks": empty(codec.keys),
        "v_blocks": empty(codec.values), "slots": np.arange(16, dtype=np.int64),
    }  # fmt: skip
    for name, make in change.items():
        arrays[name] = make(arrays[name])
    before = [x.copy() for x in arrays["k_blocks"][1:] if x is not None]
    for run_on in HOSTS:
        with pytest.raises(error, match=words):
            append_kv(*arrays.values(), run_on=run_on)
    for x, y in zip(before, (x for x in arrays["k_blocks"][1:] if x is not None), strict=True):
        assert np.array_equal(x.view(np.uint8), y.view(np.uint8))
