"""Attention kernels, beyond the cases of the table: every code, random trees, calls of a device."""

import numpy as np
import pytest
from engines import HOSTS, RUNS, back, given, library
from rows_attention import TREE, case, prefill, prompts

from kvlib import codecs
from kvlib.kernels import decode_attention, prefill_attention
from kvlib.kernels.codes import Codes
from kvlib.kernels.prefill import split_work
from kvlib.kernels.trees import MOST_NODES, tree_of


@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_every_fp8_code(kind, run_on):
    """One key a request, whose values are therefore the result: all 256 codes, NaN among them.

    An infinite value, which no encoder writes, may give NaN: what remains of a weight is 0.
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


def test_random_trees(effort):
    for seed in effort.share("random trees in the kernels", range(60), usual=6):
        rng = np.random.default_rng(seed)
        new = tuple(rng.integers(1, 45, size=rng.integers(1, 4)).tolist())
        trees = [(-1, *(int(rng.integers(-1, j)) for j in range(1, n))) for n in new]
        chosen = {
            "new": new,
            "parents": tuple(None if rng.random() < 0.3 else tree for tree in trees),
            "held": tuple(rng.integers(0, 150, size=len(new)).tolist()),
            "last": tuple(int(rng.integers(1, n + 1)) for n in new) if rng.random() < 0.3 else None,
            "dtype": ("float32", "float16")[seed % 2],
            "groups": int(rng.integers(1, 4)),
            "splits": [None, 1, 2, 5][rng.integers(4)],
            "window": [None, 1, int(rng.integers(2, 12)), int(rng.integers(12, 150))][
                rng.integers(4)
            ],
        }
        for run_on in HOSTS:
            TREE.check({**chosen, "heads": 1, "seed": seed}, run_on)


@pytest.mark.parametrize("warpgroups", [False, True])
def test_keys_before_the_window_may_be_anything(warpgroups):
    inputs, _ = prompts((3,), held=(300,), dtype="float16", paged=False, size=512)
    results = []
    for _ in range(2):
        results.append(prefill(**inputs, window=70, warpgroups=warpgroups, run_on="processor"))
        inputs["k"][:, :, :231], inputs["v"][:, :, :231] = np.nan, np.nan
    for before, after in zip(*results, strict=True):
        np.testing.assert_array_equal(before, after)


def test_parents_and_lengths_that_do_not_fit_are_refused():
    assert tree_of([None, None]).bits.shape == (0, 1)
    assert tree_of([[-1, *range(MOST_NODES - 1)]]).bits[-1].tolist() == [2**32 - 1] * 32
    for parents, words in (
        ([[-1] * (MOST_NODES + 1)], "at most 1,024 new tokens, got 1,025"),
        ([[-1, 1]], r"parents\[0\]\[1\] must be .*, got 1"),
        ([None, [0]], r"parents\[1\]\[0\] must be .*, got 0"),
    ):
        with pytest.raises(ValueError, match=words):
            tree_of(parents)
    q, *rest = prompts((3,), held=(6,))[0].values()
    work = split_work(q[:2], 2, [2], [9], splits=2)
    with pytest.raises(ValueError, match=r"work.first must be \(T\+1\) with T\+1=4"):
        prefill_attention(q, *rest, work=work)
    with pytest.raises(ValueError, match="with 3 new tokens together, got 1 and 1 numbers and 2"):
        split_work(q, 2, [2], [9])


@pytest.mark.gpu
def test_tables_on_a_device_are_looked_at_where_asked(monkeypatch):
    *arrays, table = case()[0].values()
    arrays = given("device", (*arrays, table + np.int32(100)))
    monkeypatch.setenv("KVLIB_CHECK", "1")
    with pytest.raises(ValueError, match=r"block_table\[0, 0\] must be one of"):
        decode_attention(*arrays)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "uint16"])
def test_calls_can_be_recorded_and_replayed(dtype):
    """Nothing in a call waits for the host; while a graph is recorded, CUDA refuses what does."""
    cp = library("device")
    arrays = given("device", tuple(case(dtype, 128)[0].values()))
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        for _ in range(3):  # compiled, and memory for results is in the stream's pool
            wanted = decode_attention(*arrays, splits=2)
        stream.synchronize()
        stream.begin_capture(cp.cuda.runtime.streamCaptureModeRelaxed)
        try:
            found = decode_attention(*arrays, splits=2)
        finally:
            graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
    np.testing.assert_array_equal(back(found), back(wanted))
