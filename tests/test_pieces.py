"""attend_pieces against the float64 oracle: every setting, every size of piece."""

import itertools
import math
from unittest.mock import patch

import numpy as np
import oracle
import pytest
from schedules import close

from kvlib.attention import causal
from kvlib.attention.causal import attend_pieces
from kvlib.attention.pieces import Pieces
from kvlib.meter import Meter

SETTINGS = [
    {"window": window, "softcap": softcap, "sinks": sinks}
    for window, softcap, sinks in itertools.product(
        (None, 1, 4, 100), (None, 2.0), (None, (0.5, -1.0, 2.0, 0.0))
    )
]


class Arrays(Pieces):
    """Pieces of two arrays k (S, Hkv, Dk) and v (S, Hkv, Dv), cut at the sizes given."""

    def __init__(self, k, v, sizes):
        self.k, self.v = k.transpose(1, 0, 2), v.transpose(1, 0, 2)
        ends = np.cumsum(sizes).tolist()
        self.spans = list(zip([0, *ends[:-1]], ends))
        self.num_kv_heads, self.v_dim = k.shape[1], v.shape[2]
        self.read = []

    def scores(self, i, rows):
        self.read.append(i)
        return rows @ self.k[:, slice(*self.spans[i])].mT

    def weigh(self, i, p):
        assert i in self.read  # keys before values
        return p @ self.v[:, slice(*self.spans[i])]

    def nbytes(self, i):
        return self.k[:, slice(*self.spans[i])].nbytes + self.v[:, slice(*self.spans[i])].nbytes


def draw(t, s, heads=4, kv_heads=2, dk=8, dv=6, seed=0):
    rng = np.random.default_rng(seed)
    shapes = ((t, heads, dk), (s, kv_heads, dk), (s, kv_heads, dv))
    return (rng.standard_normal(shape).astype(np.float32) for shape in shapes)


def cuts(s):
    """Ones; sevens and a remainder; a small and a large one; one."""
    yield [1] * s
    yield [7] * (s // 7) + [s % 7] * (s % 7 > 0)
    if s > 3:
        yield [3, s - 3]
    yield [s]


def compare(t, s, settings, **shape):
    q, k, v = draw(t, s, **shape)
    sinks = settings["sinks"]
    sinks = None if sinks is None else np.resize(np.asarray(sinks, np.float32), q.shape[1])
    settings = settings | {"sinks": sinks}
    o, lse = oracle.attention(q, k, v, np.arange(s - t, s), np.arange(s), **settings)
    for sizes in cuts(s):
        for with_lse in (True, False):
            found = attend_pieces(q, Arrays(k, v, sizes), s, np, return_lse=with_lse, **settings)
            got = found[0] if with_lse else found
            assert got.dtype == np.float32
            close(got, o, f"o in pieces of {sizes[:2]}")
            if with_lse:
                assert found[1].dtype == np.float32
                close(found[1], lse, f"lse in pieces of {sizes[:2]}")


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("t, s", [(1, 1), (1, 23), (2, 23), (5, 5), (11, 23)])
def test_against_the_oracle(t, s, settings):
    compare(t, s, settings)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_seams_between_chunks_of_queries(settings):
    for rows in (1, 4, 6):
        with patch.object(causal, "CHUNK_ROWS", rows):
            compare(9, 17, settings)


def test_scale():
    q, k, v = draw(3, 9)
    for scale in (0.2, 1.0):
        needed, _ = oracle.attention(q, k, v, np.arange(6, 9), np.arange(9), sm_scale=scale)
        close(attend_pieces(q, Arrays(k, v, [4, 5]), 9, np, sm_scale=scale), needed, "o")


@pytest.mark.parametrize("t", [1, 6])
def test_scores_of_any_size(t):
    """The largest score is taken off before the exponential, across pieces."""
    q, k, v = draw(t, 20)
    for by in (1e-3, 30.0, 3e3):
        for order in (slice(None), slice(None, None, -1)):  # the largest score first, or last
            o, lse = oracle.attention(
                q * np.float32(by), k[order], v[order], np.arange(20 - t, 20), np.arange(20)
            )
            got = attend_pieces(
                q * np.float32(by), Arrays(k[order], v[order], [6] * 3 + [2]), 20, np,
                return_lse=True,
            )  # fmt: skip
            assert np.isfinite(got[0]).all()
            close(got[0], o, f"o at scores of {by}", 1e-2 if by > 1e3 else 1e-4)
            close(got[1], lse, f"lse at scores of {by}", 1e-5)


@pytest.mark.parametrize("t", [1, 3])
def test_what_no_query_sees_is_not_read(t):
    """Pieces behind the window, or after the last query of a chunk."""
    q, k, v = draw(t, 40)
    for x in (k, v):
        x[:28] = math.nan
    pieces = Arrays(k, v, [4] * 10)
    assert np.isfinite(attend_pieces(q, pieces, 40, np, window=8)).all()
    assert min(pieces.read) == (40 - t - 7) // 4
    whole = Arrays(*list(draw(9, 9))[1:], [3, 3, 3])
    with patch.object(causal, "CHUNK_ROWS", 6):  # three queries a chunk of two heads a kv head
        attend_pieces(next(iter(draw(9, 9))), whole, 9, np)
    assert whole.read == [0, 0, 1, 0, 1, 2]


def test_what_is_counted():
    q, k, v = draw(1, 20)
    pieces = Arrays(k, v, [8, 8, 4])
    with Meter() as m:
        attend_pieces(q, pieces, 20, np)
    count = m.by_label["attention"]
    assert count.read == k.nbytes + v.nbytes and count.flops == 2 * 4 * 20 * (8 + 6)


def test_the_queries_are_left_alone():
    for t in (1, 5):
        q, k, v = draw(t, 9)
        kept = [x.copy() for x in (q, k, v)]
        attend_pieces(q, Arrays(k, v, [4, 5]), 9, np, window=3, softcap=1.0)
        assert all((x == y).all() for x, y in zip((q, k, v), kept))
