"""Every public list: a set would pair its members at random, a generator is read only once."""

from collections import deque
from contextlib import suppress

import numpy as np
import pytest
from arguments_integers import (
    drawn,
    forward,
    kernel_decode,
    kernel_sample,
    model,
    paged,
    pool_with,
    published,
    with_step,
)
from caches import snapshot
from plainly import check_outcomes, plain

import kvlib
from kvlib import BlockPool, DenseCache, LayerSpec, PagedCache, Scheduler, caches, quality
from kvlib.caches import layouts

ONE = LayerSpec(1, 64)


def two_requests(size=4):
    cache = PagedCache([LayerSpec(1, 64), LayerSpec(1, 64, window=8)], BlockPool(32, size), xp=np)
    for name in (0, 1):
        cache.add(name)
    return cache


def planned(seq_ids=(0, 1), q_lens=(2, 3), tokens=None, parents=None):
    cache = two_requests()
    before = snapshot(cache)
    try:
        step = cache.plan(seq_ids, q_lens, tokens, parents)
    except (ValueError, TypeError):
        assert snapshot(cache) == before, "a refused plan changed the cache"
        raise
    ends = cache.seq_len(0), cache.seq_len(1)
    return list(map(int, step.seq_ids)), step.q_lens, step.parents, ends


def kept(path):
    cache = two_requests()
    cache.plan([0], [3])
    cache.keep(0, path)
    return cache.seq_len(0)


def filled(seq_ids, read):
    cache = DenseCache([ONE], 2, 8, xp=np)
    for name in (0, 1):
        with_step((3,), cache, name)
    return read(cache, seq_ids)


def from_dense(**given):
    x = drawn(2, 1, 4, 64)
    given = {"seq_ids": [0, 1], "layers": [(x, x)], "lengths": [3, 4], "tokens": None, **given}
    cache = DenseCache([ONE], 2, 8, xp=np)
    layouts.from_dense(cache, **given)
    return list(map(str, cache.seq_ids)), [cache.read(0, name) for name in cache.seq_ids]


def cache_of(layers):
    return [spec.window for spec in DenseCache(layers, 1, 8, xp=np).layers]


def served(prompt=(105, 112), stops=None):
    scheduler = Scheduler(model(), model().new_cache(1, 16), stop_tokens=stops)
    scheduler.add("a", prompt, max_new_tokens=2)
    return scheduler.run()


def generated(prompts=((105, 112), (3, 4, 5)), **given):
    return kvlib.generate(model(), prompts, max_new_tokens=2, **given)


def last(counts):
    cache = two_requests()
    return cache.plan([0, 1], [2, 3]).last(counts).q_lens


def seen_whole(seq_ids=(0, 1), q_lens=(2, 3)):
    cache, x = PagedCache([ONE], BlockPool(8, 4), xp=np), np.ones((5, 1, 64), np.float32)
    for name in (0, 1):
        cache.add(name)
    cache.append(0, x, x, cache.plan([0, 1], [2, 3]))
    return list(map(int, caches.cross_step(cache, seq_ids, q_lens).seq_ids))


def scheduled(running):
    return kvlib.serve.schedule(running, budget=5)


class Half:
    """A generator of one number."""

    def random(self):
        return 0.5


PENDING = [kvlib.serve.Pending(name, 3) for name in "ab"]
SPECS = [LayerSpec(1, 64), LayerSpec(1, 64, window=8)]
# A call with the list, and a good one. Names end with the argument, as errors call it.
LISTS = {
    "Cache.plan seq_ids": (lambda x: planned(seq_ids=x), [0, 1]),
    "Cache.plan q_lens": (lambda x: planned(q_lens=x), [2, 3]),
    "Cache.plan tokens": (lambda x: planned(tokens=x), [5, 6, 7, 8, 9]),
    "Cache.plan parents": (lambda x: planned(parents=x), [[-1, -1], [-1, 0, 0]]),
    "Cache.keep path": (kept, [0, 1]),
    "Cache.add tokens": (lambda x: paged().add("a", x), [5, 6, 7]),
    "Step.last counts": (last, [1, 2]),
    "cross_step seq_ids": (lambda x: seen_whole(seq_ids=x), [0, 1]),
    "cross_step q_lens": (lambda x: seen_whole(q_lens=x), [2, 3]),
    "DenseCache layers": (cache_of, SPECS),
    "PagedCache layers": (lambda x: PagedCache(x, BlockPool(8, 4), xp=np).group_of, SPECS),
    "layer_groups layers": (lambda x: caches.layer_groups(x), SPECS),
    "DenseCache retention": (
        lambda x: repr(DenseCache(SPECS, 1, 8, retention=x, xp=np).groups),
        [caches.KeepAll(), caches.Window(8)],
    ),
    "BlockPool.free blocks": (lambda x: pool_with(lambda p, _: p.free(x)), [1, 3]),
    "BlockPool.touch blocks": (lambda x: pool_with(lambda p, _: p.touch(x)), [1, 3]),
    "BlockPool.publish tokens": (lambda x: pool_with(lambda p, _: published(p, 3, 1, x)), [7, 8]),
    "BlockPool.lookup tokens": (
        lambda x: pool_with(lambda p, _: (published(p, 3, 1), p.lookup(x))), [1, 2, 7, 8],
    ),
    "block_table seq_ids": (lambda x: layouts.block_table(_planned_cache(), x), [0, 1]),
    "to_dense seq_ids": (lambda x: filled(x, lambda c, n: layouts.to_dense(c, 0, n)), [0, 1]),
    "from_dense seq_ids": (lambda x: from_dense(seq_ids=x), [0, 1]),
    "from_dense layers": (lambda x: from_dense(layers=x), [(drawn(2, 1, 4, 64),) * 2]),
    "from_dense lengths": (lambda x: from_dense(lengths=x), [3, 4]),
    "from_dense tokens": (lambda x: from_dense(tokens=x), [[1, 2, 3], [4, 5, 6, 7]]),
    "to_csr seq_lens": (
        lambda x: layouts.to_csr(np.array([[3, 1], [7, 8]], np.int32), x, 4), [7, 8],
    ),
    "decode_attention lens": (lambda x: kernel_decode(lens=x), [13, 16]),
    "sample_tokens streams": (lambda x: kernel_sample(streams=x), [4, 3, 2, 1]),
    "sample rngs": (lambda x: kvlib.sample(drawn(2, 64), rngs=x), [Half(), Half()]),
    "Decoder.forward tokens": (lambda x: forward(tokens=x), [105, 112]),
    "Decoder.forward rows": (lambda x: forward(rows=x), [0, 1]),
    "generate prompts": (lambda x: generated(x), [[105, 112], [3, 4, 5]]),
    "generate prompt 0": (lambda x: generated([x]), [105, 112]),
    "generate stop_tokens": (lambda x: generated(stop_tokens=x), [3, 4]),
    "generate seed": (lambda x: generated(seed=x, temperature=0.7), [3, 4]),
    "Scheduler.add prompt": (lambda x: served(x), [105, 112]),
    "Scheduler stop_tokens": (lambda x: served(stops=x), [3, 4]),
    "schedule running": (scheduled, PENDING),
    "quality.teacher_forced tokens": (
        lambda x: quality.teacher_forced(model(), model().new_cache(1, 8), x), [105, 112],
    ),
}  # fmt: skip


def _planned_cache():
    cache = two_requests()
    cache.plan([0, 1], [2, 3])
    return cache


def keyed(x):
    return {n if type(y) in (list, tuple, Half) else y: y for n, y in enumerate(x)}


def hashed(x):
    return {n if type(y) in (list, tuple) else y for n, y in enumerate(x)}


UNORDERED = {
    "set": hashed, "frozenset": lambda x: frozenset(hashed(x)), "dict": keyed,
    "keys of a dict": lambda x: keyed(x).keys(), "items of a dict": lambda x: keyed(x).items(),
    "text": lambda x: "ab", "one letter": lambda x: "a", "number": lambda x: 3,
    "float": lambda x: 0.5, "object": lambda x: object(), "list of lists": lambda x: [x],
    "list of texts": lambda x: ["a", "b"],
    "array of two axes": lambda x: np.zeros((2, 1, 1), int),
    "array of floats": lambda x: np.zeros(len(x)),
    "array of texts": lambda x: np.array(["a"] * len(x)),
    "array without axes": lambda x: np.array(3), "None in it": lambda x: [None] * len(x),
}
AS_GOOD = {
    "tuple": tuple, "generator": lambda x: (y for y in x), "iterator": iter, "deque": deque,
    "values of a dict": lambda x: keyed(x).values(), "array": np.array,
    "array of uint8": lambda x: np.array(x, np.uint8),
    "reversed twice": lambda x: np.array(x)[::-1][::-1],
    "bytes": bytes,
}
ANY_ORDER = ("generate stop_tokens", "Scheduler stop_tokens")
TAKEN = {  # what is documented
    **dict.fromkeys(  # 0.0 is 0 where it is a name
        ("Cache.plan seq_ids", "block_table seq_ids", "to_dense seq_ids"), ("array of floats",)
    ),
    "Cache.plan parents": ("None in it",),
    "from_dense seq_ids": ("list of texts", "array of texts", "None in it"),
    "generate seed": ("number",),
    **dict.fromkeys(ANY_ORDER, ("set", "frozenset", "keys of a dict")),
    "sample_tokens streams": ("list of lists",),
}


@pytest.mark.parametrize("name", LISTS)
def test_lists(name):
    call, good = LISTS[name]
    taken, as_good = TAKEN.get(name, ()), {}
    for what, make in AS_GOOD.items():
        with suppress(ValueError, TypeError):  # no array and no bytes of such things
            as_good[what] = make(good)
    check_outcomes(call, {x: UNORDERED[x](good) for x in UNORDERED if x not in taken}, name)
    check_outcomes(call, as_good, name, plain(call(good)))


@pytest.mark.parametrize("name", ANY_ORDER)
def test_tokens_that_end_a_request_need_no_order(name):
    call, good = LISTS[name]
    assert call(set(good)) == call(frozenset(good)) == call(good)
    assert call(set()) == call([])


def test_a_rule_for_lists_that_a_reader_gets_in_words():
    cache = two_requests()
    with pytest.raises(TypeError, match="seq_ids must be a list .* no order; pass a list, such as"):
        cache.plan({0, 1}, [2, 3])
    with pytest.raises(TypeError, match="q_lens must be a list of .* per request, got .*generator"):
        cache.plan([0, 1], (n for n in [2, 3]))


def test_a_list_may_be_changed_after_the_call():
    cache = PagedCache([ONE], BlockPool(8, 2), xp=np)
    text, prompt = [1, 2, 3], [105, 112]
    cache.add("a", text)
    text.clear()
    tokens = [1, 2, 3]
    step = cache.plan(["a"], [3], tokens)
    tokens[:] = [9, 9, 9]
    x = drawn(3, 1, 64)
    cache.append(0, x, x, step)
    cache.free("a")
    assert cache.add("b", [1, 2, 3]) == 2 and cache.add("c", [9, 9, 9]) == 0
    scheduler = Scheduler(model(), model().new_cache(1, 16))
    scheduler.add("a", prompt, max_new_tokens=2)
    prompt.append(7)
    assert scheduler.run() == served()
