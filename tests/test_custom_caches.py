"""Custom caches that lack methods, and what Python may do with any cache."""

import copy
import pickle

import numpy as np
import pytest
from caches import CACHES, build, feed, fitting
from outside.listed import ListCache

import kvlib
from kvlib import DenseCache, LayerSpec
from kvlib.caches.protocol import Cache

LAYERS = [LayerSpec(1, 16)]


class Bare(Cache):
    """What a step needs, and no more."""

    _open, append, _read = ListCache._open, ListCache.append, ListCache._read


class Later(Bare):
    """Gets its methods after the class was made, as the cells of a notebook add them."""


Later._read = lambda self, layer, seq_id: ListCache._read(self, layer, seq_id)
Later._truncate = ListCache._truncate


@pytest.mark.parametrize("kind", (ListCache, Bare, Later, DenseCache))
def test_unknown_layers_and_requests_are_not_read(kind):
    """The base class checks, so a custom cache need not."""
    more = {"max_seqs": 2, "max_seq_len": 8} if kind is DenseCache else {}
    cache = kind([LayerSpec(1, 16)] * 2, xp=np, **more)
    cache.add("a")
    feed(cache, ["a"], [3])
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
        _truncate = ListCache._truncate

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


def test_a_cache_that_defines_nothing_says_what_it_lacks():
    cache = Cache(LAYERS)
    cache.add("a")
    for call in (
        lambda: cache.fork("a", "b"), lambda: cache.storage(),
        lambda: cache.append(0, None, None, None), lambda: cache.read(0, "a"),
        lambda: cache.memory(),
    ):
        with pytest.raises(TypeError, match="Cache (cannot|does not)"):
            call()
    cache.plan(["a"], [3])
    cache.truncate("a", 1)
    assert cache.seq_len("a") == 1 and cache.seq_ids == ("a",)
    cache.free("a")
    assert cache.seq_ids == ()


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
    for record in (LAYERS[0], cache.memory(), kvlib.codecs.kivi(4), kvlib.caches.Window(4)):
        assert how(record)
