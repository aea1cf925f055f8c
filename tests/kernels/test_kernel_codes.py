"""Decode attention on codes, against float64 over what kvlib's own codecs decode."""

import numpy as np
import pytest
from engines import RUNS, back, given
from exact import expect

from kvlib import codecs
from kvlib.kernels import decode_attention, watched
from kvlib.kernels.codes import Codes

CODECS = {
    "int8": codecs.int8(),
    "e4m3": codecs.fp8("e4m3"),
    "e5m2": codecs.fp8("e5m2"),
    "int4": codecs.kivi(4, 32),
    "int2": codecs.kivi(2, 32),
}
# Tensor cores are handed KIVI's numbers as float16; int8's as bfloat16, with queries and weights as
# two of them each, good to 2^-16. Two float16 are as good as float32.
HALVED = ("int4", "int2")
ROUNDED = {"int8": 2.0**-16}


def case(seed, name, dim=64, groups=4, size=32, heads=2, lens=(1, 37, 70), codec=None):
    """Requests in shuffled blocks of codes; whatever nobody holds is poison."""
    rng, codec = np.random.default_rng(seed), codec or CODECS[name]
    width = -(-max(lens) // size)
    table = rng.permutation(len(lens) * width).astype(np.int32).reshape(len(lens), width)
    made, dense = [], []
    for one in (codec.keys, codec.values):
        fields = one.fields(dim, np, np.float32)
        arrays = {
            n: poison((table.size, heads, size // f.per, *f.shape), f.dtype)
            for n, f in fields.items()
        }
        decoded = []
        for b, n in enumerate(lens):
            full = -(-n // one.group) * one.group
            x = one.encode(rng.standard_normal((heads, full, dim)).astype(np.float32))
            for j in range(full):
                for field, (per, *_) in fields.items():
                    arrays[field][table[b, j // size], :, j % size // per] = x[field][:, j // per]
            numbers = one.decode(x, np.float64)[:, :n]
            if name in HALVED:
                numbers = numbers.astype(np.float16).astype(np.float64)
            decoded.append(numbers)
        made.append(Codes(one, **arrays))
        dense.append(decoded)
    q = rng.standard_normal((len(lens), heads * groups, dim)).astype(np.float32)
    return (q, *made, np.array(lens, np.int32), table), dense


def poison(shape, dtype):
    """NaN where there is one; else bytes that would be seen."""
    return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else 0x7F, dtype)


def agrees(name, made, run_on, splits=None, **settings):
    arrays, dense = made
    o, lse = back(
        decode_attention(
            *given(run_on, arrays), splits=splits, return_lse=True, run_on=run_on, **settings
        )
    )
    for b, (k, v) in enumerate(zip(*dense, strict=True)):
        own, found = (k.swapaxes(0, 1), v.swapaxes(0, 1)), (o[b : b + 1], lse[b : b + 1])
        operand, last = ROUNDED.get(name, 0), [k.shape[1] - 1]
        expect(found, arrays[0][b : b + 1], *own, last, run_on, operand, **settings)


@pytest.mark.parametrize("dim", [64, 96, 128, 256])
@pytest.mark.parametrize("name", CODECS)
def test_every_codec_and_head_dim(name, dim):
    agrees(name, case(dim, name, dim), "twin", splits=3)


@pytest.mark.gpu
@pytest.mark.parametrize("dim", [64, 96, 128, 256])
@pytest.mark.parametrize("name", CODECS)
def test_every_codec_and_head_dim_on_a_device(name, dim):
    agrees(name, case(dim, name, dim, lens=(1, 37, 70, 2100)), "device")


@pytest.mark.parametrize(
    ("name", "dim"),
    [*((name, 64) for name in CODECS), ("int4", 96), ("int2", 96), ("int2", 128), ("int4", 256)],
)
def test_every_codec_as_it_is_compiled(name, dim):
    """Chunks of every width, down to a byte (two bits in a head of 96); scales in part (256)."""
    agrees(name, case(dim, name, dim), "processor", splits=3)


@pytest.mark.pairwise
@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize("groups", [1, 3, 8, 12])
@pytest.mark.parametrize("name", ["int8", "int4"])
def test_query_heads_of_a_kv_head(name, groups, run_on):
    agrees(name, case(groups, name, dim=128, groups=groups), run_on, splits=2)


@pytest.mark.pairwise
@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize("splits", [1, 2, 7, 40])
@pytest.mark.parametrize("name", ["e4m3", "int4"])
def test_any_number_of_splits(name, splits, run_on):
    """Splits begin anywhere, within what shares a scale too."""
    agrees(name, case(splits, name, lens=(2, 33, 130)), run_on, splits=splits)


@pytest.mark.pairwise
@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize("window", [1, 5, 36, 37, 38, 500])
@pytest.mark.parametrize("name", ["int8", "int4"])
def test_window_and_softcap(name, window, run_on):
    agrees(name, case(window, name), run_on, splits=2, window=window, softcap=1.5)


@pytest.mark.parametrize("run_on", RUNS)
def test_groups_of_other_sizes(run_on):
    agrees("int4", case(8, "int4", codec=codecs.kivi(4, 16)), run_on, splits=2)
    agrees("int4", case(9, "int4", codec=codecs.kivi(4, 8), size=8), run_on, splits=2)
    agrees("int4", case(10, "int4", codec=codecs.kivi(4, 64), size=64), run_on, splits=2)


@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize("dim", [64, 128])
def test_eight_bits_per_channel(dim, run_on):
    """As KIVI's fewer bits: numbers are rounded to float16."""
    agrees("int4", case(dim, "int4", dim, codec=codecs.int8_per_channel(32)), run_on, splits=3)


@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_every_fp8_code(kind, run_on):
    """One key a request, whose values are therefore the result: all 256 codes, NaN among them.

    An infinite value, which no encoder writes, may give NaN: what is left of a weight is 0.
    """
    codec = codecs.fp8(kind).values
    codes = np.arange(256, dtype=np.uint8).reshape(4, 1, 1, 64)
    keys = np.zeros_like(codes)
    q, lens = np.ones((4, 1, 64), np.float32), np.ones(4, np.int32)
    arrays = given(run_on, (q, Codes(codec, keys), Codes(codec, codes), lens))
    o = back(decode_attention(*arrays, run_on=run_on))
    want = codec.decode({"codes": codes}, np.float32)[:, 0]
    fine = np.isfinite(want)
    np.testing.assert_array_equal(o[fine], want[fine])
    assert not np.isfinite(o[~fine]).any() and (kind == "e5m2" or np.isnan(o[~fine]).all())


@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize("bits", [2, 4])
def test_every_small_code_in_every_place(bits, run_on):
    """Values of one key whose channels hold each code in turn, with a scale of 1."""
    codec, place = codecs.kivi(bits, 32), np.arange(64) % (1 << bits) + np.zeros((4, 1))
    x = np.concatenate([np.roll(place, i, axis=1)[:1] for i in range(32)])[None].astype(np.float32)
    k, v = (
        Codes(c, **{n: y[None] for n, y in c.encode(x).items()}) for c in (codec.keys, codec.values)
    )
    want = codec.values.decode(codec.values.encode(x), np.float32)
    for last in (0, 5, 31):
        q = np.zeros((1, 1, 64), np.float32)
        lens = np.array([last + 1], np.int32)
        o = back(decode_attention(*given(run_on, (q, k, v, lens)), window=1, run_on=run_on))
        np.testing.assert_allclose(o[0], want[:, last], atol=1e-6)


# A number, with its share of scales and zeros, in heads of 128.
BITS = {"int8": 8 + 32 / 128, "e4m3": 8, "e5m2": 8, "int4": 4 + 1, "int2": 2 + 1}


@pytest.mark.parametrize("name", CODECS)
def test_bytes_read_are_those_of_the_codes(name):
    """Each code once; a lane that reads its own scale is counted as many times as lanes do."""
    (q, k, v, lens, table), _ = case(5, name, dim=128, groups=4, lens=(256,))
    with watched() as found:
        decode_attention(q, k, v, lens, table, splits=1, run_on="processor")
    launch, traffic = found[0]
    arrays = [x for x in launch.args if isinstance(x, np.ndarray)]
    for x in (k, v):
        at = next(i for i, y in enumerate(arrays) if y is x.codes)
        bits = {"int4": 4, "int2": 2}.get(name, 8)
        assert traffic.read[at] == 256 * 2 * 128 * bits / 8
    assert traffic.efficiency > 0.5
    stored = 8 * sum(y.nbytes for x in (k, v) for y in x[1:] if y is not None)
    assert stored / (2 * 256 * 2 * 128) == BITS[name]


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"v": lambda x: x.codes}, TypeError, "both be Codes"),
        (
            {"v": lambda x: x._replace(codec=codecs.int8().keys)},
            TypeError,
            "PerChannel and PerToken",
        ),
        (
            {"v": lambda x: x._replace(codec=codecs.kivi(2).values)},
            ValueError,
            "the same number of bits",
        ),
        ({"k": lambda x: x._replace(scales=None)}, TypeError, "scales of k are missing"),
        ({"k": lambda x: x._replace(zeros=x.zeros.astype(np.float32))}, TypeError, "zeros of k"),
        ({"v": lambda x: x._replace(zeros=x.zeros[:, :, :3].copy())}, ValueError, "zeros of v"),
        ({"k": lambda x: x._replace(codes=x.codes.view(np.int8))}, TypeError, "must be uint8"),
        ({"k": lambda x: x._replace(codes=x.codes[..., :8].copy())}, ValueError, "codes of k"),
        ({"k": lambda x: x._replace(codec=codecs.kivi(4, 24).keys)}, ValueError, "power of two"),
        ({"k": lambda x: x._replace(codec=codecs.kivi(4, 2).keys)}, ValueError, "from 8 on"),
        ({"k": lambda x: x._replace(codec=codecs.kivi(4, 64).keys)}, ValueError, "divide blocks"),
        ({"lens": lambda x: x + np.int32(999)}, ValueError, "seq_lens must lie in"),
    ],
)
def test_codes_that_do_not_fit_are_refused(change, error, words):
    names = ("q", "k", "v", "lens", "table")
    arrays = dict(zip(names, case(6, "int4")[0], strict=True))
    for name, make in change.items():
        arrays[name] = make(arrays[name])
    with pytest.raises(error, match=words):
        decode_attention(*arrays.values())
