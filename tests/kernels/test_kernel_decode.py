"""Decode attention, the kernel and its twin, against float64: ragged, poisoned, in any order."""

import numpy as np
import pytest
from engines import HOSTS, RUNS, back, given, in_orders, library
from exact import expect, rows_of

from kvlib.kernels import decode_attention, watched
from kvlib.kernels.types import as_type

DTYPES = ("float32", "float16", "uint16")


def case(seed, dtype, dim, groups, size=16, heads=2, lens=(1, 37, 130), rows=None):
    """Requests of ragged lengths in shuffled blocks; every position that is not theirs is NaN."""
    rng = np.random.default_rng(seed)
    width = -(-max(*lens, 1) // size)
    k, v = (np.full((len(lens) * width + 1, heads, size, dim), np.nan, np.float32) for _ in "kv")
    table = rng.permutation(len(lens) * width).astype(np.int32).reshape(len(lens), width)
    for b, n in enumerate(lens):
        for j in range(n):
            for x in (k, v):
                x[table[b, j // size], :, j % size] = rng.standard_normal((heads, dim))
    q = rng.standard_normal((len(lens), heads * groups, dim)).astype(np.float32)
    q, k, v = (as_type(x, np.dtype(dtype)) for x in (q, k, v))
    return q, k, v, np.array(lens, np.int32), table


def agrees(arrays, run_on, splits=None, tensor=None, **settings):
    q = arrays[0]
    o, lse = back(
        decode_attention(
            *given(run_on, arrays),
            splits=splits, tensor=tensor, return_lse=True, run_on=run_on, **settings,
        )
    )  # fmt: skip
    _, k, v, lens, table = arrays
    for b, n in enumerate(lens):
        own, found = (rows_of(x, table[b], n) for x in (k, v)), (o[b : b + 1], lse[b : b + 1])
        expect(found, q[b : b + 1], *own, [n - 1], run_on, **settings)
    assert o.dtype == q.dtype and lse.dtype == np.float32


@pytest.mark.untraced
@pytest.mark.pairwise
@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [64, 96, 128, 256])
def test_every_type_and_head_dim(dtype, dim, run_on):
    agrees(case(dim, dtype, dim, groups=4), run_on, splits=3)


@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize("groups", [1, 2, 3, 7, 8, 12])
def test_query_heads_of_a_kv_head(groups, run_on):
    agrees(case(groups, "float16", 64, groups), run_on, splits=2)


@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize(
    ("dtype", "tensor"), [("float16", False), ("uint16", False), ("uint16", True)]
)
def test_with_tensor_cores_and_without(dtype, tensor, run_on):
    """What the sizes do not choose can be asked for."""
    agrees(case(9, dtype, 128, groups=1 if tensor else 4), run_on, splits=2, tensor=tensor)


def test_tensor_cores_where_they_pay():
    """16-bit numbers that several query heads share, and codes; the plan follows the registers."""
    from kvlib.kernels.decode import instantiations
    from kvlib.kernels.plans import blocks_that_fit, plan_decode, suits_tensor_cores
    from kvlib.kernels.results import registers_of

    assert suits_tensor_cores(4, 128, 16, True) and suits_tensor_cores(1, 128, 8, False)
    assert not suits_tensor_cores(4, 128, 32, True) and not suits_tensor_cores(1, 128, 16, True)
    assert suits_tensor_cores(1, 96, 16, True)  # there is no other kernel
    assert [blocks_that_fit(n, 16_640) for n in (255, 168, 162, 128, 64)] == [2, 3, 3, 4, 8]
    assert blocks_that_fit(64, 100_000) == 2  # of shared memory
    known = {kernel.name: registers_of(kernel.name) for kernel in instantiations()}
    assert min(known.values()) > 0
    assert blocks_that_fit(known["decode_tensor<Numbers<BFloat16>, 128>"], 16_640) == 3
    for registers, splits in ((None, 49), ({8: 255}, 33), ({8: 168}, 49), ({8: 100}, 66)):
        plan = plan_decode(1, 8, 4, 128, 65_536, choices=(8,), registers=registers)
        assert (plan.splits, plan.rows, plan.tiles) == ((splits,), 8, 1)


@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize("splits", [1, 2, 5, 40])
def test_any_number_of_splits(splits, run_on):
    agrees(case(splits, "float32", 64, 4), run_on, splits=splits)


@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize("window", [1, 5, 36, 37, 38, 500])
def test_window(window, run_on):
    agrees(case(window, "float32", 64, 2), run_on, splits=2, window=window)


@pytest.mark.parametrize("run_on", RUNS)
def test_softcap_and_scale(run_on):
    agrees(case(1, "float32", 64, 2), run_on, splits=2, softcap=1.5, sm_scale=0.4)


@pytest.mark.parametrize("run_on", RUNS)
def test_a_request_without_keys_is_neutral(run_on):
    arrays = given(run_on, case(2, "float32", 64, 2, lens=(0, 3)))
    o, lse = back(decode_attention(*arrays, splits=3, return_lse=True, run_on=run_on))
    assert np.all(o[0] == 0) and np.all(lse[0] == -np.inf) and np.all(np.isfinite(o[1]))


@pytest.mark.parametrize("run_on", RUNS)
def test_dense_rows_of_any_length(run_on):
    rng = np.random.default_rng(3)
    k, v = (np.full((3, 2, 45, 64), np.nan, np.float32) for _ in "kv")
    lens = np.array([45, 7], np.int32)
    for b, n in enumerate(lens):
        for x in (k, v):
            x[b, :, :n] = rng.standard_normal((2, n, 64))
    q = rng.standard_normal((2, 4, 64)).astype(np.float32)
    o = back(decode_attention(*given(run_on, (q, k, v, lens)), splits=2, run_on=run_on))
    for b, n in enumerate(lens):
        own = (x[b, :, :n].swapaxes(0, 1) for x in (k, v))
        expect((o[b : b + 1], None), q[b : b + 1], *own, [n - 1], run_on)


def test_the_order_of_threads_does_not_matter():
    """A missing barrier shows when threads run backwards, or far apart."""
    q, k, v, lens, table = case(4, "float16", 128, 4)
    seen = in_orders(lambda: decode_attention(q, k, v, lens, table, splits=2, run_on="processor"))
    assert np.array_equal(seen[0], seen[1]) and np.array_equal(seen[0], seen[2])


@pytest.mark.gpu
def test_tables_on_a_device_are_looked_at_where_asked(monkeypatch):
    *arrays, table = case(6, "float32", 64, 2)
    arrays = given("device", (*arrays, table + np.int32(100)))
    monkeypatch.setenv("KVLIB_CHECK", "1")
    with pytest.raises(ValueError, match=r"block_table\[0, 0\] must be one of"):
        decode_attention(*arrays)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "uint16"])
def test_calls_can_be_recorded_and_replayed(dtype):
    """Nothing in a call waits for the host; while a graph is recorded, CUDA refuses what does."""
    cp = library("device")
    arrays = given("device", case(8, dtype, 128, 4))
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


def test_loads_use_whole_sectors_and_read_each_key_once():
    """16 bytes a lane side by side: what is asked for is what is moved."""
    q, k, v, lens, table = case(5, "float16", 128, 4, lens=(512,))
    with watched() as seen:
        decode_attention(q, k, v, lens, table, splits=1, run_on="processor")
    found, read = seen[0][1], seen[0][1].read
    assert read[3] == read[4] == 512 * 2 * 128 * 2  # keys, values: 512 tokens, 2 heads, 128 halves
    assert found.efficiency > 0.8  # q, the table and lengths are small loads


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"q": lambda x: x[:, :3].copy()}, ValueError, "multiple of kv heads"),
        ({"k": lambda x: x[..., :32].copy()}, ValueError, "k must be .*D=64"),
        ({"k": lambda x: x.astype(np.float16)}, TypeError, "v must be float16"),
        ({"q": lambda x: x.astype(np.float64)}, TypeError, "float32, float16 or uint16"),
        ({"table": lambda x: x.astype(np.int64)}, TypeError, "block_table must be int32"),
        ({"table": lambda x: x + np.int32(100)}, ValueError, r"block_table\[0, 0\]"),
        ({"table": lambda x: x - np.int32(100)}, ValueError, "must be one of"),
        ({"lens": lambda x: x + np.int32(999)}, ValueError, "seq_lens must lie in"),
        ({"q": lambda x: x[:, ::-1]}, ValueError, "in one piece"),
    ],
)
def test_what_does_not_fit_is_refused(change, error, words):
    names = ("q", "k", "v", "lens", "table")
    arrays = dict(zip(names, case(6, "float32", 64, 2), strict=True))
    for name, make in change.items():
        arrays[name] = make(arrays[name])
    for run_on in HOSTS:
        with pytest.raises(error, match=words):
            decode_attention(*arrays.values(), run_on=run_on)


def test_settings_that_mean_nothing_are_refused():
    arrays = case(7, "float32", 64, 2)
    for settings in ({"window": 0}, {"softcap": -1.0}, {"sm_scale": float("nan")}):
        with pytest.raises(ValueError):
            decode_attention(*arrays, **settings)
    with pytest.raises(ValueError, match="tensor cores take 16-bit"):
        decode_attention(*arrays, tensor=True)
    with pytest.raises(ValueError, match="Half in heads of 96"):
        decode_attention(*case(7, "float16", 96, 2), tensor=False)
    with pytest.raises(ValueError, match="engine"):
        decode_attention(*arrays, run_on="gpu")
    with pytest.raises(TypeError, match="CuPy arrays"):
        decode_attention(*arrays, run_on="device")
