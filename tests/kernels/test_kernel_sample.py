"""Drawing a token on the device: known bits, twin equal to kernel, the right distribution."""

import numpy as np
import pytest
from engines import HOSTS, given
from rows_logits import DTYPES, KINDS, SETTINGS, TILE, TOPK, case

from kvlib import sample
from kvlib.kernels import engine, sample_tokens
from kvlib.kernels.launch import Launch
from kvlib.kernels.plans_topk import plan_topk
from kvlib.kernels.sample import scale_of
from kvlib.kernels.source import Kernel
from kvlib.kernels.twins import sample as twin
from kvlib.kernels.twins.sample import WEIGHT_BITS, philox, random_bits, weights
from kvlib.kernels.types import LOG2E
from kvlib.serve import probabilities

# kat_vectors of Random123 (Salmon et al. 2011): counter, key, answer
KNOWN = (
    ("00000000 00000000 00000000 00000000", "00000000 00000000",
     "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
     "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
     "d16cfe09 94fdcceb 5001e420 24126ea1"),
)  # fmt: skip


def words(column):
    return np.array([[int(w, 16) for w in row[column].split()] for row in KNOWN], np.uint32)


def rows(columns, n=4, seed=0):
    return case("normal", columns, rows=n, seed=seed)[0]["logits"]


def test_the_generators_known_answers():
    counters, keys, answers = (words(i) for i in range(3))
    assert np.array_equal(philox(counters, keys), answers)
    out = np.empty_like(counters)
    args = (out, counters, keys, np.int32(len(KNOWN)))
    engine.start("processor", Launch(Kernel("sample", "philox_words"), (1, 1, 1), 256, 0, args))
    assert np.array_equal(out, answers)


def test_bits_are_decided_by_seed_stream_and_step():
    seeds, streams = np.array([3, 3, 4, 3 << 40], np.uint64), np.array([0, 1, 0, 0], np.uint32)
    found = np.concatenate([random_bits(seeds, streams, step) for step in range(50)])
    assert len(set(found.tolist())) == 200
    assert random_bits(seeds[2:3], streams[2:3], 7)[0] == random_bits(seeds, streams, 7)[2]


def test_weights_are_exponentials():
    x = -np.geomspace(1e-7, 27, 20_000).astype(np.float32)
    t = (x * np.float32(LOG2E)).astype(np.float64)
    found = weights(x, np.float32(0), LOG2E).astype(np.float64) / 2.0**WEIGHT_BITS
    np.testing.assert_allclose(found, np.exp2(t), atol=2.0**-WEIGHT_BITS, rtol=3e-9)
    ends = weights(np.array([0, -1e-30, -27.8, -np.inf], np.float32), np.float32(0), LOG2E)
    assert ends.tolist() == [1 << WEIGHT_BITS, 1 << WEIGHT_BITS, 0, 0]


@pytest.mark.untraced
@pytest.mark.parametrize("settings", [SETTINGS[i] for i in (0, 2, 4, 6, 7, 8)], ids=str)
def test_draws_follow_the_probabilities(settings, monkeypatch):
    """Chi-square against the float64 distribution; cells of fewer than 10 are taken together.

    All rows are alike, so the best of the first are the best of all.
    """
    healthy = twin.topk

    def once(x, *args):
        values, columns, totals = healthy(x[:1], *args)
        n = len(x)
        return values.repeat(n, axis=0), columns.repeat(n, axis=0), totals.repeat(n, axis=1)

    monkeypatch.setattr(twin, "topk", once)
    logits, n = rows(columns=400, n=1, seed=3), 1200
    p = probabilities(logits, **settings)[0]
    drawn = sample_tokens(np.repeat(logits, n, axis=0), **settings, seeds=5)
    counts = np.bincount(drawn, minlength=400).astype(float)
    assert (counts[p == 0] == 0).all()
    rare = n * p < 10
    counts, needed = (np.append(x[~rare], x[rare].sum()) for x in (counts, n * p))
    counts, needed = counts[needed > 0], needed[needed > 0]
    chi_square, degrees = ((counts - needed) ** 2 / needed).sum(), len(needed) - 1
    # Wilson and Hilferty 1931: the cube root of chi-square over its degrees is nearly normal
    z = 0.0
    if degrees:
        spread = 2 / (9 * degrees)
        z = ((chi_square / degrees) ** (1 / 3) - (1 - spread)) / spread**0.5
    assert z < 4.5  # exceeded by one seed in 300,000


@pytest.mark.parametrize("run_on", HOSTS)
def test_who_shares_the_batch_does_not_matter(run_on):
    x, streams = rows(columns=700), np.array([9, 2, 77, 4])
    for settings in ({}, {"top_k": 20}, {"top_p": 0.9}):
        given = {**settings, "step": 6, "run_on": run_on}
        together = sample_tokens(x, **given, seeds=[1, 2, 3, 4], streams=streams)
        alone = [
            sample_tokens(x[i : i + 1].copy(), **given, seeds=i + 1, streams=streams[i])[0]
            for i in range(4)
        ]
        assert together == alone


@pytest.mark.parametrize("run_on", HOSTS)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_same_bits_draw_what_sample_draws(settings, run_on):
    """Random bits instead of a seed: the token is that of the host's float64."""
    x = rows(columns=600, n=12)
    want = sample(x, **settings, rngs=[np.random.default_rng([7, i]) for i in range(12)])
    bits = [int(np.random.default_rng([7, i]).random() * 2.0**64) for i in range(12)]
    assert sample_tokens(x, **settings, bits=bits, run_on=run_on) == want


def test_a_nucleus_beyond_the_candidates_is_drawn_on_the_host_from_the_same_bits():
    flat = np.zeros((80, 1000), np.float32)
    drawn = sample_tokens(flat, top_p=0.5, seeds=1)
    assert max(drawn) < 500 and sum(t >= 256 for t in drawn) > 25
    assert drawn == sample_tokens(flat, top_p=0.5, seeds=1, run_on="processor")
    # wide and narrow rows side by side
    flat[::2, 3] = 30.0
    assert set(sample_tokens(flat, top_p=0.5, seeds=1)[::2]) == {3}
    assert sample_tokens(flat, top_p=0.5, seeds=1)[1::2] == drawn[1::2]


@pytest.mark.gpu
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_device_draws_what_the_host_draws(settings):
    """`sample` itself; a limit of top_p may round another way once in many rows."""
    x = rows(columns=32_000, n=64)
    host, device = (
        sample(logits, **settings, rngs=np.random.default_rng(1))
        for logits in (x, given("device", x))
    )
    assert sum(a != b for a, b in zip(host, device, strict=True)) <= 1


def test_the_twin_passes_on_what_the_kernel_does():
    """Few logits get past the floor, and a row that rises all the way is the worst case."""
    columns, k = 16 * TILE, 50
    found = {}
    for kind in ("normal", "ascending"):
        found[kind], x = {}, case(kind, columns, rows=1)[0]["logits"]
        twin.topk(x, k, scale_of(1.0), plan_topk(1, columns, k, splits=1), found[kind])
        assert found[kind]["compared"] == columns
    vectors = columns // 4
    assert k <= found["normal"]["passed"] < vectors / 25 and found["normal"]["merges"] <= 5
    assert found["ascending"]["passed"] > vectors * 0.9 and found["ascending"]["merges"] >= 15


def test_a_batch_of_nobody():
    assert sample_tokens(np.zeros((0, 7), np.float32), top_k=3) == []


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_whole_vocabularies_on_a_device(kind, dtype):
    for rows, columns, k, splits in (
        (3, 50_257, 50, None), (2, 131_072, 256, 1), (1, 262_144, 256, 10),
    ):
        size = {"kind": kind, "columns": columns, "dtype": dtype, "rows": rows}
        TOPK.check({**size, "k": k, "splits": splits}, "device")
