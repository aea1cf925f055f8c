"""Softmax with top-k, the kernel and its twin, against a float64 sort: ties, −inf, NaN."""

import numpy as np
import pytest
from engines import HOSTS, RUNS, back, given, in_orders

from kvlib.kernels import softmax_topk, watched
from kvlib.kernels.plans_topk import (
    BLOCKS_PER_SM,
    LEAST_TILES,
    MOST_K,
    ROOM,
    SHARED,
    TILE,
    plan_topk,
    splits_for,
)
from kvlib.kernels.types import as_float, as_type

DTYPES = ("float32", "float16", "uint16")
KINDS = ("normal", "few values", "equal", "ascending", "descending", "one peak", "−inf between")


def case(kind, columns, dtype="float32", rows=2, seed=0):
    """Logits of one kind, as they are stored; odd numbers of columns shift rows off 16 bytes."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, columns)).astype(np.float32) * 3
    if kind == "few values":
        x = np.round(x)
    elif kind == "equal":
        x = np.zeros_like(x)
    elif kind in ("ascending", "descending"):
        x = np.sort(x, axis=1)[:, :: 1 if kind == "ascending" else -1]
    elif kind == "one peak":
        x[:, columns // 2] = 80.0
    elif kind == "−inf between":
        x[rng.random(x.shape) < 0.9] = -np.inf
        x[:, -1] = 0.0
    return as_type(np.ascontiguousarray(x), np.dtype(dtype))


def oracle(logits, k, temperature=1.0):
    """A stable sort and a softmax of the whole row in float64."""
    x = as_float(logits).astype(np.float64)
    order = np.argsort(-x, axis=-1, kind="stable")[..., :k]
    with np.errstate(invalid="ignore", divide="ignore"):
        top = np.fmax.reduce(x, axis=-1, initial=-np.inf)
        safe = np.where(np.isfinite(top), top, 0)
        total = np.exp((x - safe[..., None]) / temperature).sum(axis=-1)
        total = np.where(np.isposinf(top), np.nan, total)
        return (
            np.take_along_axis(x, order, axis=-1),
            order,
            top,
            total,
            safe / temperature + np.log(total),
        )


def agrees(logits, k, temperature=1.0, run_on="twin", splits=None):
    found = back(
        softmax_topk(
            given(run_on, logits), k, temperature=temperature, splits=splits, run_on=run_on
        )
    )
    near = 1e-4 if run_on == "device" else 3e-6  # 2^x of the special function unit
    values, order, top, total, lse = oracle(logits, k, temperature)
    assert found.indices.dtype == np.int32 and found.values.dtype == np.float32
    assert np.array_equal(found.indices, order)
    assert np.array_equal(found.values, values.astype(np.float32), equal_nan=True)
    assert np.array_equal(found.maximum, top.astype(np.float32))
    np.testing.assert_allclose(found.total, total, rtol=near)
    np.testing.assert_allclose(found.lse, lse, atol=near, rtol=near / 15)
    return found


@pytest.mark.pairwise
@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_row(kind, splits, run_on):
    agrees(case(kind, 3 * TILE - 1001), 50, run_on=run_on, splits=splits)


@pytest.mark.pairwise
@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("columns", "k"), [(1, 1), (7, 7), (300, 256), (4099, 255), (9001, 1)])
def test_every_type_and_size(columns, k, dtype, run_on):
    """Halves of logits repeat: ties all over."""
    agrees(case("normal", columns, dtype, rows=3), k, run_on=run_on)


@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize("splits", [1, 2, 7, 30])
def test_any_number_of_splits_and_more_than_columns_need(splits, run_on):
    agrees(case("normal", 65, rows=1), 5, run_on=run_on, splits=splits)
    agrees(case("few values", 2003), 40, run_on=run_on, splits=splits)


@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize("temperature", [0.01, 0.7, 30.0])
def test_temperature_enters_the_sum(temperature, run_on):
    found = agrees(case("normal", 501), 20, temperature, run_on)
    x = as_float(case("normal", 501)).astype(np.float64) / temperature
    p = np.exp(x - x.max(axis=1, keepdims=True))
    p = np.sort(p / p.sum(axis=1, keepdims=True), axis=1)[:, ::-1][:, :20]
    np.testing.assert_allclose(found.probabilities(), p, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("run_on", RUNS)
def test_no_number_and_no_end(run_on):
    """NaN last, in order; −inf before it; the sums say which rows are no distribution."""
    x = case("normal", 37, rows=5)
    x[0, 3::2] = np.nan
    x[1] = -np.inf
    x[2, 9], x[2, 20] = np.inf, -np.inf
    x[3] = np.nan
    x[4, :] = -np.inf
    x[4, 30] = 2.5
    with np.errstate(invalid="ignore"):
        found = agrees(x, 37, run_on=run_on, splits=2)
    assert np.isnan(found.total[[0, 2, 3]]).all() and np.isnan(found.lse[[0, 2, 3]]).all()
    assert found.total[1] == 0 and found.lse[1] == found.maximum[1] == -np.inf
    assert found.total[4] == 1 and found.lse[4] == 2.5
    assert found.maximum[3] == -np.inf and found.maximum[2] == np.inf


@pytest.mark.parametrize("run_on", RUNS)
def test_zeros_of_both_signs_are_equal(run_on):
    x = np.array([[-0.0, 0.0, -0.0, -1.0]], np.float32)
    assert softmax_topk(given(run_on, x), 3, run_on=run_on).indices.tolist() == [[0, 1, 2]]


@pytest.mark.parametrize("run_on", RUNS)
def test_large_logits_do_not_overflow_and_shapes_are_kept(run_on):
    x = (case("normal", 600, rows=6) + np.float32(1e4)).reshape(2, 3, 600)
    found = agrees(x, 9, run_on=run_on)
    assert found.values.shape == (2, 3, 9) and found.lse.shape == (2, 3)
    assert softmax_topk(given(run_on, x[:0]), 9, run_on=run_on).indices.shape == (0, 3, 9)


def test_the_order_of_threads_does_not_matter():
    """A missing barrier shows when threads run backwards, or far apart."""
    x = case("ascending", 2 * TILE + 77, "float16", rows=1)
    seen = in_orders(lambda: softmax_topk(x, 60, splits=2, run_on="processor"))
    for other in seen[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(seen[0], other, strict=True))


def traffic(x, k, splits):
    with watched() as seen:
        softmax_topk(x, k, splits=splits, run_on="processor")
    return [found for _, found in seen]


def on_a_line(x):
    """A copy that starts at a multiple of 128 bytes, as arrays on a device do."""
    room = np.empty(x.nbytes + 128, np.uint8)
    at = -room.ctypes.data % 128
    room[at : at + x.nbytes] = x.view(np.uint8).ravel()
    return room[at : at + x.nbytes].view(x.dtype).reshape(x.shape)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_logits_are_read_once_in_whole_sectors_and_little_is_written(dtype):
    x = on_a_line(case("normal", 2 * TILE, dtype))
    (one,) = traffic(x, 50, 1)
    assert one.read[3] == x.nbytes  # values, columns, totals, logits
    assert sum(one.written) == 2 * (50 * 8 + 12)
    assert one.sectors <= x.nbytes // 32 + 2 * (2 * 50 + 3)  # what is written is scattered
    parts, merged = traffic(x, 50, 2)
    assert parts.read[5] == x.nbytes and sum(parts.written) == 2 * 2 * (50 * 8 + 8)
    assert sum(merged.read) == sum(parts.written) + 2 * 2 * 8 * 255  # each thread reads the sums


def test_rows_off_alignment_are_read_once_too():
    x = case("normal", TILE + 3, rows=3)
    (one,) = traffic(x, 8, 1)
    assert one.read[3] == x.nbytes


def test_the_twin_passes_on_what_the_kernel_does():
    """Few logits get past the floor, and a row that rises all the way is the worst case."""
    from kvlib.kernels.sample import scale_of
    from kvlib.kernels.twins.sample import topk

    columns, k = 16 * TILE, 50
    found = {}
    for kind in ("normal", "ascending"):
        x, found[kind] = case(kind, columns, rows=1), {}
        topk(x, k, scale_of(1.0), plan_topk(1, columns, k, splits=1), found[kind])
        assert found[kind]["compared"] == columns
    assert k <= found["normal"]["passed"] < columns / 30 and found["normal"]["merges"] <= 3
    assert found["ascending"]["passed"] > columns * 0.9 and found["ascending"]["merges"] >= 15


def test_plans():
    """Two thousand rows fill a device alone; 64 do not; nothing is split into crumbs."""
    assert plan_topk(2048, 128_000, 50) == (1, 128_000, SHARED)
    few = plan_topk(64, 128_000, 50)
    assert few.splits == 8 and few.merges and 64 * few.splits <= 132 * BLOCKS_PER_SM
    assert few.each == 16_000 and few.each % 8 == 0
    assert plan_topk(1, 128_000, 50).splits == 128_000 // (LEAST_TILES * TILE)
    assert plan_topk(1, 5000, 50).splits == 1
    assert splits_for(1, 1 << 18, MOST_K, 132) * MOST_K <= ROOM
    assert SHARED <= 227 * 1024 // BLOCKS_PER_SM - 1024  # a multiprocessor keeps 1 KiB a block
    assert plan_topk(0, 100, 3).splits == 1


@pytest.mark.parametrize(
    ("logits", "settings", "error", "words"),
    [
        (np.zeros((2, 5), np.float32), {"k": 6}, ValueError, r"k must lie in 1 ... 5 .*got 6"),
        (np.zeros((2, 500), np.float32), {"k": 257}, ValueError, "1 ... 256 .*got 257"),
        (np.zeros((2, 5), np.float32), {"k": 0}, ValueError, "k must lie"),
        (np.zeros((2, 5)), {"k": 1}, TypeError, "float32, float16 or uint16"),
        (np.zeros(5, np.float32), {"k": 1}, ValueError, r"logits must be .*got shape \(5,\)"),
        (np.zeros((2, 0), np.float32), {"k": 1}, ValueError, "V in 1"),
        (np.zeros((5, 4), np.float32).T, {"k": 1}, ValueError, "in one piece"),
        (np.zeros(9, np.float32)[1:].reshape(2, 4), {"k": 1}, ValueError, "multiple of 16 bytes"),
        (np.zeros((70_000, 1), np.float16), {"k": 1}, ValueError, "65535 rows"),
        (np.zeros((2, 5), np.float32), {"k": 1, "temperature": 0}, ValueError, "temperature"),
        (np.zeros((2, 5), np.float32), {"k": 1, "splits": 0}, ValueError, "splits must lie"),
        (np.zeros((2, 5), np.float32), {"k": 5, "splits": 1025}, ValueError, "splits must lie"),
    ],
)
def test_what_does_not_fit_is_refused(logits, settings, error, words):
    for run_on in HOSTS:
        with pytest.raises(error, match=words):
            softmax_topk(logits, **settings, run_on=run_on)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_whole_vocabularies_on_a_device(kind, dtype):
    for rows, columns, k, splits in (
        (3, 50_257, 50, None),
        (2, 131_072, 256, 1),
        (1, 262_144, 256, 20),
    ):
        agrees(case(kind, columns, dtype, rows), k, run_on="device", splits=splits)
