"""The layers of a decoder against their formulas in float64."""

import math
import os
import subprocess
import sys

import numpy as np
import oracle
import pytest
from models import config
from schedules import close

from kvlib import blas
from kvlib.attention.partials import cap
from kvlib.model import RopeConfig, products, rope
from kvlib.model.layers import ACTIVATIONS, by_rows, erf, linear
from kvlib.model.mlp import GatedMLP, PlainMLP

pytestmark = pytest.mark.filterwarnings("error")
WIDE = np.concatenate([np.linspace(-12, 12, 481), [-1e4, -200, 200, 1e4]]).astype(np.float32)


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("rows", [*range(21), 63, 64, 65, 130])
def test_linear_for_every_number_of_rows(rows):
    x, w, b = normal(rows, rows, 48), normal(100, 40, 48), normal(200, 40)
    needed = x.astype(float) @ w.T.astype(float)
    close(linear(x, w), needed, "x Wᵀ")
    y = linear(x, w, b)
    close(y, needed + b, "x Wᵀ + b")
    assert y.dtype == np.float32 and y.shape == (rows, 40) and y.flags.c_contiguous


@pytest.mark.parametrize("rows", range(2, 8))
def test_linear_of_few_rows_gives_each_row_the_bits_it_gets_alone(rows):
    w, x = normal(1, 96, 64), normal(2, rows, 64)
    together = linear(x, w)
    for i in range(rows):
        assert (together[i] == linear(x[i : i + 1], w)[0]).all()


@pytest.mark.parametrize("lead", [0, 5_000, 1 << 30])
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("rows, out, width", [(8, 700, 48), (13, 5, 48), (32, 96, 8), (9, 256, 64)])
def test_linear_shares_a_large_product_between_threads(
    monkeypatch, threads, rows, out, width, lead
):
    monkeypatch.setattr(products, "LEAD_BYTES", lead)
    monkeypatch.setattr(products, "LARGE_BYTES", 0)
    for most in ("SMALL_PRODUCT", "ALONG_PRODUCT"):
        monkeypatch.setattr(products, most, 9 * 64 * 16)
    monkeypatch.setattr(products, "threads", lambda: threads)
    submit, shared = products._helpers.__wrapped__(), []
    counted = lambda *a: shared.append(a[0].nbytes) or submit(*a)  # noqa: E731
    monkeypatch.setattr(products, "_helpers", lambda: counted)
    x, w = normal(1, rows, width), normal(2, out, width)
    y = linear(x, w)
    close(y, x.astype(float) @ w.T.astype(float), "x Wᵀ")
    assert y.dtype == np.float32 and y.flags.c_contiguous
    if threads == 1 or lead > w.nbytes:
        assert not shared, "the caller is done before another thread would be awake"
    else:  # in whole blocks, of which the caller takes the odd one
        assert sum(shared) <= (w.nbytes - lead) * (threads - 1) / threads
        assert shared or out < 16 or lead


def test_an_error_in_another_thread_reaches_the_caller(monkeypatch):
    monkeypatch.setattr(products, "threads", lambda: 2)
    submit, a = products._helpers.__wrapped__(), normal(1, 4, 3)
    with pytest.raises(ValueError, match="mismatch"):
        submit(a, a, np.empty((4, 4), np.float32))()
    out = np.empty((4, 4), np.float32)
    submit(a, a.T, out)()  # the thread works on
    close(out, a.astype(float) @ a.T.astype(float), "a aᵀ")


LARGE = {"LARGE_BYTES": 0, "threads": lambda: 1}
QUICK, SLOW = ({"multiplies_small": lambda x=x: x} for x in (True, False))
SMALL = {"SMALL_PRODUCT": 5 * 64 * 16, "ALONG_PRODUCT": 4 * 64 * 16}
WAYS = [
    *((n, LARGE | SMALL | QUICK) for n in (2, 3, 5, 7, 10, 11, 19, 26, 32)),
    *((n, LARGE | SLOW) for n in (8, 10, 11)),
    (5, {"CACHED_BYTES": 256 * 64 * 4}),  # blocks of 256 rows of a larger weight
]


@pytest.mark.parametrize("rows, settings", WAYS, ids=lambda x: str(x) if type(x) is int else "")
def test_linear_in_every_form_of_its_product(monkeypatch, rows, settings):
    """As on a processor whose OpenBLAS multiplies small matrices as they are, and on others."""
    for name, value in settings.items():
        monkeypatch.setattr(products, name, value)
    x, w = normal(1, rows, 64), normal(2, 700, 64)
    y = linear(x, w)
    close(y, x.astype(float) @ w.T.astype(float), "x Wᵀ")
    assert y.dtype == np.float32 and y.shape == (rows, 700) and y.flags.c_contiguous


def test_kernels_for_small_products_follow_the_environment(monkeypatch):
    def found(kernels):
        monkeypatch.setenv("OPENBLAS_CORETYPE", kernels)
        blas.multiplies_small.cache_clear()
        try:
            return blas.multiplies_small()
        finally:
            blas.multiplies_small.cache_clear()

    assert not found("Haswell")
    assert found("") == found("SkylakeX")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
def test_a_forked_child_has_threads_of_its_own():
    script = """
import os, numpy as np
from kvlib.model import products
products.threads = lambda: 2
x, w = np.ones((16, 1024), np.float32), np.ones((1024, 1024), np.float32)
products.product(x, w)  # the pool's thread is running
child = os.fork()
if child == 0:
    os._exit(0 if (products.product(x, w) == 1024).all() else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, timeout=60)


def test_threads_of_products_follow_the_environment(monkeypatch):
    def count(**environment):
        with monkeypatch.context() as patch:
            for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
                patch.delenv(name, raising=False)
            for name, value in environment.items():
                patch.setenv(name, value)
            blas.threads.cache_clear()
            try:
                return blas.threads()
            finally:
                blas.threads.cache_clear()

    free = count()
    assert free >= 1
    assert count(OMP_NUM_THREADS="1") == count(OPENBLAS_NUM_THREADS="1") == 1
    assert count(OMP_NUM_THREADS="many", OPENBLAS_NUM_THREADS="0") == free


def test_linear_leaves_its_input_alone():
    x, w, b = normal(1, 3, 4), normal(2, 5, 4), normal(3, 5)
    before = [a.copy() for a in (x, w, b)]
    linear(x, w, b)
    assert all((a == c).all() for a, c in zip((x, w, b), before))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_near_and_far(name):
    with np.errstate(over="ignore"):
        needed = oracle.activation(name, WIDE.astype(float))
    y = ACTIVATIONS[name](WIDE)
    close(y, needed, name, 2e-6)
    assert y.dtype == np.float32


def test_erf():
    x = np.linspace(-5, 5, 2001)
    needed = np.asarray([math.erf(a) for a in x])
    assert np.abs(erf(x) - needed).max() < 1.5e-7
    assert np.abs(erf(x.astype(np.float32)) - needed).max() < 5e-7
    assert erf(np.zeros(1)).item() == 0


def test_mlp_gated_and_not():
    x, gate, up, down = (normal(1, 3, 4), normal(2, 6, 4), normal(3, 6, 4), normal(4, 4, 6))
    x64 = x.astype(float)
    gated = {"gate_up.weight": np.concatenate([gate, up]), "down.weight": down}
    needed = (oracle.activation("silu", x64 @ gate.T) * (x64 @ up.T)) @ down.T
    close(GatedMLP(config("llama"), gated).forward(x), needed, "gated")
    plain = {"up.weight": up, "up.bias": up[:, 0], "down.weight": down, "down.bias": down[:, 0]}
    needed = oracle.activation("gelu", x64 @ up.T + up[:, 0]) @ down.T + down[:, 0]
    gpt2 = config("gpt2", hidden_act="gelu")
    close(PlainMLP(gpt2, plain).forward(x), needed, "not gated")


def test_softcap_keeps_small_numbers_and_bounds_large_ones():
    x = np.asarray([-1e4, -1.0, 0.0, 0.01, 3.0, 1e4], np.float32)
    capped = cap(np, x, 30.0)
    close(capped, 30 * np.tanh(x.astype(float) / 30), "capped")
    assert capped.dtype == np.float32 and (np.abs(capped) <= 30).all()


ROPES = [
    RopeConfig(), RopeConfig(theta=500000.0), RopeConfig(kind="linear", factor=4.0),
    RopeConfig(500000.0, "llama3", 8.0, 1.0, 4.0, 8192),
    RopeConfig(10000.0, "llama3", 32.0, 1.0, 4.0, 64),
]


@pytest.mark.parametrize("turn", ROPES, ids=str)
@pytest.mark.parametrize("dim", [2, 10, 64])
def test_rope_is_a_turn_of_complex_numbers(turn, dim):
    needed = oracle.rope_frequencies(turn, dim)
    np.testing.assert_allclose(rope.frequencies(turn, dim), needed, rtol=1e-12)
    cos, sin = rope.tables(turn, dim, 400, np, np.float32)
    assert cos.shape == sin.shape == (400, dim) and cos.dtype == sin.dtype == np.float32
    positions, x = np.asarray([0, 1, 2, 399]), normal(1, 4, 3, dim)
    turned = rope.rotate(x, cos[positions][:, None], sin[positions][:, None])
    close(turned, oracle.rotate(x.astype(float), positions, needed), "turned", 2e-6)
    assert (turned[0] == x[0]).all() and turned.dtype == np.float32


def test_llama3_frequencies_by_hand():
    # dim 4, theta 256: frequencies 1 and 1/16, wavelengths 2π and 32π = 100.53. In a text of
    # 256 tokens the second turns 2.5465 times, 0.51549 of the way from 1 to 4 turns: it keeps
    # that part, and the rest is slowed 8 times: (0.51549 + 0.48451 / 8) / 16.
    long = RopeConfig(256.0, "llama3", 8.0, 1.0, 4.0, 256)
    assert rope.frequencies(long, 4).tolist() == pytest.approx([1.0, 0.0360035], rel=1e-5)
    slow = RopeConfig(256.0, "llama3", 8.0, 1.0, 4.0, 64)  # less than one turn: all of it slowed
    assert rope.frequencies(slow, 4).tolist() == pytest.approx([1.0, 1 / 128])


def test_a_distant_position_is_turned_as_exactly_as_a_near_one():
    cos, _ = rope.tables(RopeConfig(), 2, 100_001, np, np.float32)
    assert cos[100_000, 0] == pytest.approx(math.cos(100_000), abs=1e-7)


def test_rows_by_tiles_are_the_rows_at_once(monkeypatch):
    """Every row once and in order, whatever remains for the last tile; no tile is too large."""
    monkeypatch.setattr("kvlib.model.layers.TILE", 12)
    x, y = np.arange(44.0, dtype=np.float32).reshape(11, 4), np.arange(11.0)[:, None]
    seen = []

    def function(a, b):
        seen.append(a.shape[0])
        return (a * b)[:, :3]

    found = by_rows(function, x, y)
    np.testing.assert_array_equal(found, (x * y)[:, :3])
    assert found.dtype == np.float64 and seen == [3, 3, 3, 2]
    seen.clear()
    by_rows(function, x[:3], y[:3])
    assert seen == [3]
    monkeypatch.setattr("kvlib.model.layers.TILE", 3)  # less than a row
    np.testing.assert_array_equal(by_rows(np.negative, x), -x)
