"""A cache of somebody's own, written by protocol.py's words; and what any cache is to Python."""

import copy
import doctest
import pickle

import numpy as np
import pytest
from caches import CACHES, build

from kvlib import DenseCache, LayerSpec
from kvlib.caches import protocol
from kvlib.caches.layouts import from_dense, to_dense
from kvlib.caches.protocol import Cache, Request
from kvlib.exercises import kit

LAYERS = [LayerSpec(1, 16)]


def documented():
    """The class in the module's docstring, as it stands there."""
    (test,) = (t for t in doctest.DocTestFinder().find(protocol) if t.name == protocol.__name__)
    space = dict(test.globs)
    exec(test.examples[0].source, space)
    return space["Growing"]


@pytest.mark.untraced
def test_the_documented_cache_is_whole():
    own = documented()
    assert kit.check_cache(
        lambda layers: own(layers, xp=np), max_seq_len=None, v_from_k=False, xp=np
    )
    lines = [
        line for line in protocol.__doc__.splitlines() if line.startswith(("...", ">>> class"))
    ]
    assert len(lines) < 35


class Bare(Cache):
    """Of the documented one only what a pass needs."""

    _open, append, read = (documented().__dict__[name] for name in ("_open", "append", "read"))


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
    cache = build(name, LAYERS, np, np.float32)
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
    request = Request("place")
    assert (request.length, request.begun, request.gap, request.ticket) == (0, 0, None, None)
