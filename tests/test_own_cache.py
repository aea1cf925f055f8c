"""A cache of somebody's own, written by the words of hooks.py; and what any cache is to Python."""

import copy
import pickle

import numpy as np
import pytest
from caches import CACHES, build, fitting

from kvlib import DenseCache, LayerSpec, Memory, testing
from kvlib.caches.layouts import from_dense, to_dense
from kvlib.caches.protocol import Cache
from kvlib.caches.step import CachedSequence

LAYERS = [LayerSpec(1, 16)]


class Growing(Cache):
    """All that a cache of one's own needs, after the list in kvlib/caches/protocol.py."""

    def _open(self, seq_id, tokens, extra):
        shapes = [
            ((0, s.num_kv_heads, s.head_dim), (0, s.num_kv_heads, s.v_dim)) for s in self.layers
        ]
        return CachedSequence([[np.zeros(x, self.dtype) for x in pair] for pair in shapes])

    def _truncate(self, seq, length):
        seq.state = [[x[:length] for x in pair] for pair in seq.state]

    def _copy(self, source, seq_id):
        return CachedSequence([list(pair) for pair in source.state])

    def append(self, layer, k, v, step):
        self._check_append(layer, k, v, step)
        for i, seq_id in enumerate(step.seq_ids):
            new = slice(step.qo_indptr[i], step.qo_indptr[i + 1])
            pair = self._sequences[seq_id].state[layer]
            pair[:] = [np.concatenate([x, y[new]]) for x, y in zip(pair, (k, v))]
        step.ticket.appended.add(layer)

    def _read(self, layer, seq_id):
        k, v = self._sequences[seq_id].state[layer]
        return k, v, np.arange(len(k))

    def storage(self):
        return (x for r in self._sequences.values() for pair in r.state for x in pair)

    def memory(self):
        held = sum(x.nbytes for x in self.storage())
        return Memory(payload=held, metadata=0, reserved=held, wasted=0)


@pytest.mark.untraced
def test_a_cache_of_these_methods_is_whole():
    assert testing.check_cache(
        lambda layers: Growing(layers, xp=np), max_seq_len=None, v_from_k=False, xp=np
    )


class Bare(Cache):
    """Of these methods only what a step needs."""

    _open, append, _read = Growing._open, Growing.append, Growing._read


class Later(Bare):
    """Gets its methods after the class was made, as the cells of a notebook add them."""


Later._read = lambda self, layer, seq_id: Growing._read(self, layer, seq_id)
Later._truncate = Growing._truncate


@pytest.mark.parametrize("kind", (Growing, Bare, Later, DenseCache))
def test_unknown_layers_and_requests_are_not_read(kind):
    """The base class checks, so a custom cache need not."""
    more = {"max_seqs": 2, "max_seq_len": 8} if kind is DenseCache else {}
    cache = kind([LayerSpec(1, 16)] * 2, xp=np, **more)
    cache.add("a")
    x = np.ones((3, 1, 16), np.float32)
    step = cache.plan(["a"], [3])
    for layer in (0, 1):
        cache.append(layer, x, x, step)
    for layer in (-1, 2, True, 1.0, None, "0"):
        with pytest.raises(ValueError, match="layer must be 0 ... 1"):
            cache.read(layer, "a")
    with pytest.raises(ValueError, match="request 'b' is not open; open are: 'a'"):
        cache.read(0, "b")
    with pytest.raises(TypeError, match="must be hashable"):
        cache.read(0, [])
    assert cache.read(layer=np.int64(1), seq_id="a")[0].shape == (3, 1, 16)


def test_truncation_is_checked_and_made_or_refused():
    class Checks(Bare):
        def _check_truncate(self, seq, length):
            raise ValueError("no way back")

    with pytest.raises(TypeError, match="Checks writes _check_truncate and not _truncate"):
        Checks(LAYERS, xp=np)

    class Both(Checks):
        _truncate = Growing._truncate

    for kind, error in ((Bare, TypeError), (Both, ValueError)):
        cache = kind(LAYERS, xp=np)
        cache.add("a")
        x = np.ones((3, 1, 16), np.float32)
        step = cache.plan(["a"], [3])
        cache.append(0, x, x, step)
        with pytest.raises(error, match="Bare cannot truncate requests: write|no way back"):
            cache.truncate("a", 2)
        assert cache.seq_len("a") == len(cache.read(0, "a")[0]) == 3
        assert cache.run(0, x, step).shape == x.shape, "the step goes on"


class Broken(Bare):
    def memory(self):
        return 1 / 0


@pytest.mark.parametrize("kind", (Cache, Bare, Broken))
def test_repr_never_raises(kind):
    cache = kind(LAYERS, xp=np)
    assert repr(cache) == f"{kind.__name__}(1 layers, 0 requests, 0 tokens, bytes not measured)"


def test_a_pass_without_memory_or_truncation():
    cache = Bare(LAYERS, xp=np)
    cache.add("a")
    x = np.ones((3, 1, 16), np.float32)
    step = cache.plan(["a"], [3])
    cache.append(0, x, x, step)
    assert cache.run(0, x, step).shape == (3, 1, 16)
    with pytest.raises(ValueError, match="layer 0 has appended in this step already"):
        cache.append(0, x, x, step)


@pytest.mark.parametrize("name", CACHES)
def test_requests_are_counted_and_found(name):
    cache = build(name, fitting(name, LAYERS), np, np.float32)
    assert len(cache) == 0 and "a" not in cache and cache, "an empty cache is still a cache"
    cache.add("a")
    cache.add(7)
    assert len(cache) == 2 and "a" in cache and 7 in cache and "b" not in cache
    cache.free("a")
    assert len(cache) == 1 and "a" not in cache
    with pytest.raises(TypeError, match="unhashable"):
        [] in cache  # noqa: B015


@pytest.mark.parametrize("name", ("dense", "paged, blocks of 4", "int8, residual 5, rows"))
@pytest.mark.parametrize("how", (copy.copy, copy.deepcopy, pickle.dumps))
def test_copies_are_refused_in_words(name, how):
    cache = build(name, LAYERS, np, np.float32)
    cache.add("a")
    step = cache.plan(["a"], [1])
    for thing in (cache, [cache]):
        if how is copy.copy and thing is not cache:
            continue
        with pytest.raises(TypeError, match="cannot be copied or pickled.*fork.*to_dense"):
            how(thing)
    if how is not copy.copy:
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            how(step)


def test_what_the_refusal_offers_works():
    cache = DenseCache([LayerSpec(2, 4)], 1, 8, xp=np)
    cache.add("a")
    x = np.random.default_rng(0).standard_normal((5, 2, 4)).astype(np.float32)
    cache.append(0, x, -x, cache.plan(["a"], [5]))
    k, v, lengths = pickle.loads(pickle.dumps(to_dense(cache, 0, ["a"])))
    other = DenseCache([LayerSpec(2, 4)], 1, 8, xp=np)
    from_dense(other, ["a"], [(k, v)], lengths)
    assert all((x == y).all() for x, y in zip(other.read(0, "a"), cache.read(0, "a")))


def test_requests_know_where_they_stand():
    seq = CachedSequence("place")
    assert (seq.length, seq.start, seq.gap, seq.ticket) == (0, 0, None, None)
