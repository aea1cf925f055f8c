"""Bits per byte and recall: computed by hand, and sensitive to what a cache does to keys."""

import math

import numpy as np
import pytest

from kvlib import CacheFull, DenseCache, quality
from kvlib.caches import BlockPool, PagedCache, QuantizedCache
from kvlib.codecs import Codec, PerChannel, PerToken, int8, kivi
from kvlib.reference import sample_text


@pytest.fixture(scope="module")
def plain(model):
    return quality.loss(model, dense(model))


def dense(model, kind=DenseCache):
    return kind(model.layer_specs, 1, 2048, xp=np)


def coded(model, codec):
    return QuantizedCache(model.layer_specs, codec, 1, 2048, xp=np)


class Forgetful(DenseCache):
    """Every key that is stored loses its second half."""

    def append(self, layer, k, v, step):
        k = k.copy()
        k[..., k.shape[-1] // 2 :] = 0
        super().append(layer, k, v, step)


def test_bits_are_those_of_one_pass_without_chunks(model):
    text = sample_text()[:300]
    tokens = list(text.encode())
    cache = dense(model)
    cache.add(0)
    logits = model.forward(tokens, cache, cache.plan([0], [300]), rows="all")
    needed = []
    for row, token in zip(logits.astype(float), tokens[1:]):
        p = np.exp(row - row.max())
        needed.append(-math.log2(p[token] / p.sum()))
    for chunk in (1, 7, 64, 1000):
        found = quality.loss(model, dense(model), text, chunk=chunk)
        assert found.bits.shape == (299,) and found.bits.dtype == np.float64
        np.testing.assert_allclose(found.bits, needed, atol=2e-4)
        assert found.bits_per_token == pytest.approx(sum(needed) / 299, abs=1e-4)
        assert found.kl is None and found.mean_kl is None
        np.testing.assert_allclose(found.logits, logits[:-1], atol=1e-3)
    for same in (tokens, text.encode(), np.asarray(tokens)):
        assert quality.loss(model, dense(model), same).bits_per_token == pytest.approx(
            found.bits_per_token, abs=1e-6
        )


def test_windows_are_read_from_nothing(model):
    text = sample_text().encode()[:450]
    whole = quality.loss(model, dense(model), text, window=200)
    parts = [quality.loss(model, dense(model), text[a : a + 200]) for a in (0, 200, 400)]
    np.testing.assert_allclose(whole.bits, np.concatenate([p.bits for p in parts]), atol=1e-4)
    assert len(whole.bits) == 450 - 3


def test_divergence(model):
    text = sample_text()[:500]
    a = quality.loss(model, dense(model), text)
    same = quality.loss(model, dense(model), text, reference=a)
    assert same.kl.shape == a.bits.shape and abs(same.kl).max() < 1e-6
    assert same.times(a) == pytest.approx(1, abs=1e-6)
    other = quality.loss(model, dense(model, Forgetful), text, reference=a)
    assert (other.kl > -1e-9).all() and other.mean_kl > 0.5
    x, y = (np.exp(r.logits.astype(float)) for r in (a, other))
    x, y = (p / p.sum(axis=1, keepdims=True) for p in (x, y))
    np.testing.assert_allclose(other.kl, (x * np.log2(x / y)).sum(axis=1), atol=1e-6)
    assert other.times(a) == other.bits.mean() / a.bits.mean() > 1.2


def test_codes_stay_within_what_the_book_says(model, plain):
    """int8 within 0.1 % of float32's bits per byte, KIVI's int4 within 1 %; int2 is worse."""
    losses = {
        name: quality.loss(model, coded(model, codec), reference=plain)
        for name, codec in (("int8", int8()), ("int4", kivi(4, 32, 32)), ("int2", kivi(2, 32, 32)))
    }
    assert abs(losses["int8"].times(plain) - 1) < 0.001
    assert abs(losses["int4"].times(plain) - 1) < 0.01
    assert losses["int8"].mean_kl < losses["int4"].mean_kl / 5 < losses["int2"].mean_kl / 25


def test_small_chunks_read_codes(model):
    """A cache that keeps the newest 512 as they came reads no codes until there are more."""
    text = sample_text().encode()[:512]
    first = quality.loss(model, dense(model), text)
    waiting = quality.loss(model, coded(model, kivi(2, 32, 512)), text, reference=first)
    assert abs(waiting.kl).max() < 1e-6
    apart = [
        quality.loss(model, coded(model, codec), text, chunk=16, reference=first).mean_kl
        for codec in (kivi(2, 32, 0), Codec("swapped", PerToken(2, 32), PerChannel(2, 32)))
    ]
    assert min(apart) > 0.05 and apart[0] != apart[1]


def test_recall(model, effort):
    found = quality.recall(model, dense(model), trials=10, distance=256)
    assert found.trials == len(found.answers) == 10 and found.distance == 256
    assert found.accuracy >= 0.9 and found.accuracy == sum(found.right) / 10
    assert all(len(a) == 4 for a in found.answers)
    few = len(effort.share("trials of recall", range(10), usual=4, quick=4))
    again = quality.recall(model, dense(model), trials=few, distance=256, chunk=9)
    assert again.right == found.right[:few] and again.answers == found.answers[:few]
    other = quality.recall(model, dense(model), trials=few, distance=256, seed=1)
    assert other.answers != found.answers[:few]
    lost = quality.recall(model, dense(model, Forgetful), trials=few, distance=256)
    assert lost.accuracy < 0.5


def test_any_cache_is_measured_and_then_empty(model, plain):
    pool = BlockPool(2048 // 64, 64)
    cache = PagedCache(model.layer_specs, pool, codec=int8(), xp=np)
    found = quality.loss(model, cache)
    assert abs(found.times(plain) - 1) < 0.001
    quality.recall(model, cache, trials=2)
    assert cache.seq_ids == () and pool.num_free == pool.num_blocks


def test_a_pass_that_fails_closes_its_request(model):
    cache = DenseCache(model.layer_specs, 1, 100, xp=np)
    for measure in (quality.loss, quality.recall):
        with pytest.raises(CacheFull, match="max_seq_len"):
            measure(model, cache)
        assert cache.seq_ids == ()


def test_logits_of_any_size_have_a_loss():
    """e^1000 is no number, and a loss must not pass through it."""
    near, far = np.log1p(np.exp(-1.0)), np.log1p(np.exp(1.0))
    for shift in (-1e4, 0.0, 1e4):
        found = quality._log_softmax(np.float32([[shift, shift - 1, shift - 900]]))
        np.testing.assert_allclose(found, [[-near, -far, -900 - near]], rtol=1e-12)


def test_refusals(model):
    cache, some = dense(model), b"some text"
    for settings, words in (
        ({"text": b"x"}, "at least 2 tokens, got 1"),
        ({"reference": quality.loss(model, cache, some)}, "2047 predictions, got 8"),
    ):
        with pytest.raises(ValueError, match=words):
            quality.loss(model, cache, **settings)
    with pytest.raises(ValueError, match="distance must be an integer of at least 16"):
        quality.recall(model, cache, distance=3)
    assert cache.seq_ids == ()


def test_recall_puts_other_code_before_the_bindings(model):
    short, long = ([], [])
    for lead, lengths in ((64, short), (600, long)):

        class Counting(DenseCache):
            def plan(self, seq_ids, q_lens, tokens=None, lengths=lengths):
                lengths.append(q_lens[0])
                return super().plan(seq_ids, q_lens, tokens)

        found = quality.recall(
            model, dense(model, Counting), trials=1, distance=64, chunk=2048, lead=lead
        )
        assert found.accuracy == 1
    assert 480 < long[0] - short[0] < 600
