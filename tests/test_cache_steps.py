"""What a step may be used for: each layer once, and only over tokens that every pass has stored."""

import numpy as np
import pytest
from caches import CACHES, build, fitting, give, refused, snapshot
from schedules import check_run

from kvlib import BlockPool, LayerSpec, PagedCache
from kvlib.codecs import int8, int8_per_channel, kivi

F32 = np.float32
LAYERS = [LayerSpec(1, 16), LayerSpec(2, 8, window=6)]


def opened(name):
    cache = build(name, fitting(name, LAYERS), np, F32)
    cache.add("a")
    return cache


@pytest.fixture(params=CACHES)
def cache(request):
    return opened(request.param)


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def lacks_from(cache, step):
    """The first token that a layer lacks, as the error says."""
    rows = normal(1, 1, 1, 16)
    with pytest.raises(ValueError, match="request 'a' lacks keys from token") as said:
        cache.append(0, rows, rows, step)
    return int(str(said.value).split("from token ")[1].split()[0])


def attends(cache, step, layer):
    """`run` is attention over `read`, which holds no number that was never written."""
    spec = cache.layers[layer]
    q = normal(9, step.num_tokens, 2 * spec.num_kv_heads, spec.head_dim)
    check_run(cache, layer, q, step)


def test_a_layer_appends_once_in_a_step(cache):
    give(cache, cache.plan(["a"], [20]))
    step = cache.plan(["a"], [7])
    give(cache, step, 1)
    held = [[np.array(x) for x in cache.read(layer, "a")] for layer in (0, 1)]
    words = r"layer 0 has appended in this step already: .*plan"
    refused(cache, ValueError, words, lambda: give(cache, step, 2, (0,)))
    for layer in (0, 1):
        for x, y in zip(cache.read(layer, "a"), held[layer]):
            assert (x == y).all()
        attends(cache, step, layer)
    cache.truncate("a", 20)  # and so is a pass repeated: undone, planned again
    give(cache, cache.plan(["a"], [7]), 1)
    assert all((x == y).all() for x, y in zip(cache.read(0, "a"), held[0]))


def test_a_pass_that_one_layer_missed_is_not_attended_to(cache):
    give(cache, cache.plan(["a"], [2]))
    give(cache, cache.plan(["a"], [3]), layers=(0,))  # layer 1 never gets its keys
    step = cache.plan(["a"], [1])  # allowed: who plans blocks need not have keys
    rows, first = normal(1, 1, 2, 8), lacks_from(cache, step)
    words = rf"request 'a' lacks keys from token {first} on.*truncate\('a', {first}\)"
    for layer, x in ((0, normal(1, 1, 1, 16)), (1, rows)):  # one that has them may not go on alone
        refused(cache, ValueError, words, lambda layer=layer, x=x: cache.append(layer, x, x, step))
    refused(cache, ValueError, words, lambda: cache.run(1, rows, step))
    step = cache.plan(["a"], [1])
    refused(cache, ValueError, words, lambda: cache.append(1, rows, rows, step))
    cache.fork("a", "b")
    step = cache.plan(["b"], [1])
    words = words.replace("'a'", "'b'")
    refused(cache, ValueError, words, lambda: cache.append(1, rows, rows, step))


def test_a_pass_cut_short_is_not_a_pass(cache):
    """Truncation into tokens that were planned and never appended keeps none of them."""
    give(cache, cache.plan(["a"], [8]))
    cache.plan(["a"], [8])
    cache.truncate("a", 16)
    first = lacks_from(cache, cache.plan(["a"], [1]))
    assert first <= 8
    cache.truncate("a", first)
    step = cache.plan(["a"], [1])
    give(cache, step)
    attends(cache, step, 1)


def test_the_others_of_a_batch_go_on():
    cache = PagedCache(LAYERS, BlockPool(20, 4), xp=np)
    for name in "ab":
        cache.add(name)
        give(cache, cache.plan([name], [5]))
    cache.plan(["a"], [3])
    both = cache.plan(["b", "a"], [1, 1])
    with pytest.raises(ValueError, match="request 'a' lacks keys from token 5 on"):
        give(cache, both)
    cache.truncate("b", 5)
    step = cache.plan(["b"], [1])
    give(cache, step)
    attends(cache, step, 0)


@pytest.mark.parametrize("codec", [int8(residual=4), kivi(4, 4, 0), int8_per_channel(2)])
def test_tokens_that_no_layer_encoded_are_not_found(codec):
    cache = PagedCache([LayerSpec(1, 4)], BlockPool(16, codec.group), codec=codec, xp=np)
    cache.add("a")
    give(cache, cache.plan(["a"], [3], [5, 6, 7]), layers=(0,))
    held = [np.array(x) for x in cache.read(0, "a")]
    for _ in range(4):
        cache.plan(["a"], [1], [8])
    found = codec.coded(3)
    assert cache.add("b", [5, 6, 9]) <= found
    for x, y in zip(cache.read(0, "b"), held, strict=True):
        assert (x == y[: len(x)]).all()
    cache.truncate("a", 3)
    assert all((x == y).all() for x, y in zip(cache.read(0, "a"), held, strict=True))


@pytest.mark.untraced
def test_an_allocator_plans_without_changing_anything(cache):
    """Its moves follow from what it is asked, so asking twice gives the same moves."""
    if not cache.groups:
        pytest.skip("a cache without tables")
    give(cache, cache.plan(["a"], [11]))
    cache.fork("a", "b")
    asks = [cache._ask(r, n, True) for r, n in zip(cache._sequences.values(), (1, 9))]
    before = snapshot(cache)
    first, second = (repr(cache.allocator.plan(asks)) for _ in range(2))
    assert first == second and snapshot(cache) == before
