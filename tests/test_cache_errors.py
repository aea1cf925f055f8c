"""What a cache refuses: the error, its words, and that not a byte changed.

Of an argument that is a number, one bad value is here and the others in test_arguments_integers.py.
"""

import math
from functools import partial

import array_api_strict
import numpy as np
import pytest
from caches import CACHES, MAX_SEQ_LEN, MAX_SEQS, build, feed, give, refused, takes

from kvlib import BlockPool, CacheFull, DenseCache, LayerSpec, OutOfBlocks, PagedCache

F32 = np.float32
FULL = (CacheFull, OutOfBlocks)
LAYERS = [
    LayerSpec(2, 4, 3), LayerSpec(1, 6, 4, v_from_k=True), LayerSpec(2, 4, sinks=np.zeros(4, F32)),
]
# What encodes channels in groups needs longer vectors than these layers have.
SHORT = [name for name in CACHES if takes(name, LAYERS)]


# Each cache meets a third of the mistakes and each mistake a third of the caches, in turn.
every_third = pytest.mark.every(3)


def ones(*shape, dtype=F32):
    return np.ones(shape, dtype=dtype)


@pytest.fixture(params=SHORT)
def cache(request):
    """ "a" holds 5 tokens, "b" 2, "c" none; a step of "a" and "b" (1 token each) is under way."""
    cache = build(request.param, LAYERS, np, F32)
    for name, n in (("a", 4), ("b", 1)):
        cache.add(name)
        feed(cache, [name], [n])
    cache.add("c")
    cache.step = cache.plan(["a", "b"], [1, 1])
    give(cache, cache.step, layers=[0])
    return cache


PLAN = {
    "unknown": (["z"], [1], None, ValueError, "'z' is not open; open are: 'a', 'b', 'c'"),
    "unknown after known": (["a", "z"], [1, 1], None, ValueError, "'z' is not open"),
    "twice": (["a", "b", "a"], [1, 1, 1], None, ValueError, "'a' appears twice"),
    "none": ([], [], None, ValueError, "got 0 seq_ids and 0 q_lens"),
    "one length too few": (["a", "b"], [1], None, ValueError, "got 2 seq_ids and 1 q_lens"),
    "length 0": (["a", "b"], [1, 0], None, ValueError, "q_lens .*got 0 for request 'b'"),
    "no name": ([["a"]], [1], None, TypeError, "must be hashable"),
    "too few tokens": (["a"], [3], [1, 2], ValueError, "3 new tokens of the plan, got 2"),
    "too many tokens": (["a"], [1], [1, 2], ValueError, "1 new tokens of the plan, got 2"),
    "too long": (["a"], [900], None, FULL, "'a' holds 5 .* 900 more .* (too many|lacks)"),
    "too long after others": (["b", "a"], [1, 900], None, FULL, "'a' holds 5"),
}


@every_third
@pytest.mark.parametrize("names, q_lens, tokens, error, words", PLAN.values(), ids=PLAN)
def test_plan(cache, names, q_lens, tokens, error, words):
    refused(cache, error, words, lambda: cache.plan(names, q_lens, tokens))
    give(cache, cache.step, layers=[1, 2])  # the step under way is still good


KV1, KV3 = ones(2, 2, 4), ones(2, 2, 3)
APPEND = {
    "layer 3": (3, KV1, KV3, ValueError, r"layer must be 0 \.\.\. 2, got 3"),
    "too few tokens": (0, KV1[:1], KV3[:1], ValueError, r"k .*\(2, 2, 4\), got \(1, 2, 4\)"),
    "other heads": (0, KV1[:, :1], KV3[:, :1], ValueError, r"k .*got \(2, 1, 4\)"),
    "other dim": (0, KV3, KV3, ValueError, r"k of layer 0 .*got \(2, 2, 3\)"),
    "other dim of v": (0, KV1, KV1, ValueError, r"v of layer 0 .*\(2, 2, 3\), got \(2, 2, 4\)"),
    "fewer tokens in v": (0, KV1, KV3[:1], ValueError, r"v of layer 0 .*got \(1, 2, 3\)"),
    "two axes": (0, KV1[0], KV3[0], ValueError, r"k of layer 0 .*got \(2, 4\)"),
    "float64": (0, KV1.astype(float), KV3, TypeError, "k of layer 0 has dtype float64, .*float32"),
    "float64 values": (0, KV1, KV3.astype(float), TypeError, "v of layer 0 has dtype float64"),
    "integers": (0, KV1.astype(int), KV3, TypeError, "k of layer 0 has dtype int64"),
    **{f"as {kind}": (0, KV1.astype(kind), KV3, TypeError, "k of layer 0 has .*cast it first")
       for kind in (np.float16, ">f4", np.longdouble, np.complex64, object, "S4", np.int32)},
    "a list": (0, KV1.tolist(), KV3, TypeError, "k of layer 0 must be an array.*got a list"),
    "a list of values": (0, KV1, KV3.tolist(), TypeError, "v of layer 0 .*got a list"),
    "another library": (0, array_api_strict.ones((2, 2, 4)), KV3, TypeError, "k of layer 0"),
    "v missing": (0, KV1, None, ValueError, "layer 0 .*v must be given, got None"),
    "v where there is none": (1, ones(2, 1, 6), ones(2, 1, 4), ValueError, "v must be None"),
}


@every_third
@pytest.mark.parametrize("layer, k, v, error, words", APPEND.values(), ids=APPEND)
def test_append(cache, layer, k, v, error, words):
    refused(cache, error, words, lambda: cache.append(layer, k, v, cache.step))


Q = ones(2, 4, 4)
RUN = {
    "layer 3": (3, Q, ValueError, "layer must be .*got 3"),
    "not appended": (2, Q, ValueError, "layer 2 has not appended its keys"),
    "too many tokens": (0, ones(3, 4, 4), ValueError, r"q of layer 0 .*T=2.*got \(3, 4, 4\)"),
    "heads not a multiple": (0, ones(2, 3, 4), ValueError, r"multiple of 2 .*got \(2, 3, 4\)"),
    "no heads": (0, ones(2, 0, 4), ValueError, r"got \(2, 0, 4\)"),
    "other dim": (0, ones(2, 4, 5), ValueError, r"D=4\), got \(2, 4, 5\)"),
    "two axes": (0, ones(2, 4), ValueError, r"got \(2, 4\)"),
    "float64": (0, Q.astype(float), TypeError, "q of layer 0 has dtype float64"),
    "integers": (0, Q.astype(int), TypeError, "q of layer 0 has dtype int64"),
    "a list": (0, Q.tolist(), TypeError, "q of layer 0 must be an array.*got a list"),
    "another library": (0, array_api_strict.ones((2, 4, 4)), TypeError, "q of layer 0"),
}


@every_third
@pytest.mark.parametrize("layer, q, error, words", RUN.values(), ids=RUN)
def test_run(cache, layer, q, error, words):
    refused(cache, error, words, lambda: cache.run(layer, q, cache.step))


def test_run_with_other_heads_than_the_sinks(cache):
    give(cache, cache.step, layers=[2])
    refused(
        cache, ValueError, r"sinks .*\(8,\), got \(4,\)",
        lambda: cache.run(2, ones(2, 8, 4), cache.step),
    )  # fmt: skip


def test_steps(cache):
    def use(step):
        rows = ones(step.num_tokens, 2, 4)
        refused(cache, ValueError, words, lambda: cache.append(0, rows, rows[..., :3], step))
        refused(cache, ValueError, words, lambda: cache.run(0, rows, step))

    words = "planned by another cache"
    other = DenseCache(LAYERS)
    other.add("a")
    use(other.plan(["a"], [1]))
    words = r"the step of requests \['a', 'b'\] is over"
    for end in (
        lambda: cache.plan(["b"], [1]), lambda: cache.truncate("a", 1), lambda: cache.free("b"),
    ):
        step = cache.step
        assert "over" not in repr(step)
        end()
        use(step)
        assert repr(step).endswith(", over)")
        if "b" in cache.seq_ids:
            cache.step = cache.plan(["a", "b"], [1, 1])


def test_last_rows_of_a_step_are_not_appended(cache):
    step = cache.plan(["c"], [3])
    refused(cache, ValueError, "last rows", lambda: cache.append(0, KV1[:1], KV3[:1], step.last()))


def test_names(cache):
    words = "request 'z' is not open"
    refused(cache, ValueError, words, lambda: cache.free("z"))
    refused(cache, ValueError, words, lambda: cache.seq_len("z"))
    refused(cache, ValueError, words, lambda: cache.truncate("z", 0))
    refused(cache, ValueError, words, lambda: cache.fork("z", "y"))
    refused(cache, ValueError, words, lambda: cache.read(0, "z"))
    refused(cache, ValueError, "request 'a' is open already", lambda: cache.add("a"))
    refused(cache, ValueError, "request 'b' is open already", lambda: cache.fork("a", "b"))
    refused(cache, ValueError, "request 'a' is open already", lambda: cache.fork("a", "a"))
    words = r"the name of a request must be hashable, got \['x'\]"
    refused(cache, TypeError, words, lambda: cache.add(["x"]))
    refused(cache, TypeError, words, lambda: cache.fork("a", ["x"]))
    refused(cache, TypeError, words, lambda: cache.fork(["x"], "y"))
    refused(cache, TypeError, words, lambda: cache.plan([["x"]], [1]))
    refused(cache, TypeError, words, lambda: cache.truncate(["x"], 0))
    refused(cache, TypeError, words, lambda: cache.free(["x"]))
    refused(cache, TypeError, words, lambda: cache.read(0, ["x"]))
    words = r"extra must hold hashable keys, got \(\['x'\],\)"
    for prompt in ([1], [1, 2, 3, 4, 5]):
        refused(cache, TypeError, words, lambda p=prompt: cache.add("y", p, extra=(["x"],)))
    words = r"tuple of keys, such as \('tenant',\), got 'tenant'"
    refused(cache, TypeError, words, lambda: cache.add("y", [1], extra="tenant"))


def test_no_room(cache):
    if not hasattr(cache, "max_seqs"):  # no rows to run out of, but blocks
        refused(cache, OutOfBlocks, "request 'c' holds 0", lambda: cache.plan(["c"], [10**4]))
        return
    for i in range(len(cache.seq_ids), MAX_SEQS):
        cache.add(i)
    refused(cache, CacheFull, "no row for request 'z'.* 4 rows", lambda: cache.add("z"))
    refused(cache, CacheFull, "no row for request 'z'", lambda: cache.fork("a", "z"))
    cache.free("c")
    cache.add("z")  # and there is room again
    cache.plan(["z"], [MAX_SEQ_LEN])


@pytest.mark.parametrize("length", [-1, 6, 1.0, True, None, "1", math.nan])
def test_truncate(cache, length):
    words = rf"'a' holds 5 tokens .* 0 \.\.\. 5, got {length!r}"
    refused(cache, ValueError, words, lambda: cache.truncate("a", length))


@pytest.mark.parametrize("layer", [-1, 3, True, 0.0, None])
def test_read(cache, layer):
    refused(cache, ValueError, f"layer must be .*got {layer!r}", lambda: cache.read(layer, "a"))


def test_construction():
    spec = LayerSpec(1, 2)
    for layers in ([], iter([])):
        with pytest.raises(ValueError, match="layers must hold at least one LayerSpec"):
            DenseCache(layers)
    with pytest.raises(TypeError, match="layers .*LayerSpec, got a tuple"):
        DenseCache([spec, (1, 2)])
    with pytest.raises(ValueError, match="got 5 and 4"):
        LayerSpec(2, 4, 5, v_from_k=True)
    for dtype in (np.int8, np.int32, bool, np.complex64, ">f4", "no", object, int, "S4", 3, [1]):
        for make in (DenseCache, partial(PagedCache, pool=BlockPool(4, 4))):
            with pytest.raises(TypeError, match="dtype must be floating"):
                make([spec], dtype=dtype, xp=np)
    assert DenseCache(iter([spec])).layers == (spec,)
