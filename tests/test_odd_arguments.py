"""Odd arrays, codecs that fail, odd names and odd tokenizers."""

import tempfile

import models
import numpy as np
import pytest

import kvlib
from kvlib import BlockPool, DenseCache, LayerSpec, PagedCache, Scheduler, attend, attend_causal
from kvlib.codecs import Codec, Int8

F32 = np.float32
SPEC = LayerSpec(1, 8)
K, V = np.random.default_rng(0).standard_normal((2, 9, 1, 8)).astype(F32)
CACHES = {
    "rows": lambda **more: DenseCache([SPEC], 3, 16, xp=np, **more),
    "blocks": lambda **more: PagedCache([SPEC], BlockPool(16, 4), xp=np, **more),
}
CODECS = (None, "int8", Codec("late", Int8(), Int8(), residual=3))


@pytest.fixture(params=CACHES)
def make(request):
    return CACHES[request.param]


def attended(cache, k, v):
    cache.add("a")
    step = cache.plan(["a"], [len(k)])
    cache.append(0, k, v, step)
    return cache.run(0, k, step)


ODD = {
    "negative strides": lambda x: x[::-1].copy()[::-1],
    "every second": lambda x: np.repeat(x, 2, axis=0)[::2],
    "columns first": np.asfortranarray,
    "read-only": lambda x: np.broadcast_to(x, x.shape),
    "one array in a larger": lambda x: np.pad(x, ((2, 2), (1, 1), (3, 3)))[2:-2, 1:-1, 3:-3],
    "a subclass": lambda x: x.view(type("Mine", (np.ndarray,), {})),
    "a file": lambda x: np.memmap.__new__(np.memmap, _file(x), F32, "r", shape=x.shape),
}


def _file(x):
    file = tempfile.TemporaryFile()  # noqa: SIM115 (it ends with the array)
    file.write(x.tobytes())
    file.flush()
    return file


@pytest.mark.parametrize("codec", CODECS, ids=str)
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_arrays_of_odd_layout(make, codec, odd):
    needed = attended(make(codec=codec), K, V)
    np.testing.assert_allclose(attended(make(codec=codec), odd(K), odd(V)), needed, atol=1e-6)


def test_arrays_with_a_mask(make):
    """Products would read what the mask hides."""
    masked, at = np.ma.masked_array(K, mask=K > 1), np.arange(9)
    cache = make()
    cache.add("a")
    step = cache.plan(["a"], [9])
    for call in (
        lambda: cache.append(0, masked, V, step), lambda: cache.append(0, K, masked, step),
        lambda: attend(masked, K, V, at, at), lambda: attend(K, K, masked, at, at),
        lambda: attend_causal(K, masked.transpose(1, 0, 2), V.transpose(1, 0, 2)),
    ):
        with pytest.raises(TypeError, match="must be a plain array, got a MaskedArray"):
            call()


def test_a_caches_memory_is_appended_with_keys_and_values_exchanged(make):
    """The keys are written first, over what the values are read from."""
    cache = make()
    attended(cache, K, V)
    k, v, _ = cache.read(0, "a")
    cache.truncate("a", 0)
    cache.append(0, v, k, cache.plan(["a"], [9]))
    for got, needed in zip(cache.read(0, "a"), (V, K, np.arange(9)), strict=True):
        np.testing.assert_array_equal(got, needed)


def test_a_caches_memory_is_appended_at_other_positions(make):
    cache = make()
    attended(cache, K, V)
    k, v, _ = cache.read(0, "a")
    cache.truncate("a", 0)
    cache.append(0, k[2:], v[2:], cache.plan(["a"], [7]))
    np.testing.assert_array_equal(cache.read(0, "a")[0], K[2:])


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_a_result_that_is_changed(make, codec):
    cache = make(codec=codec)
    cache.add("a")
    step = cache.plan(["a"], [9])
    cache.append(0, K, V, step)
    o = cache.run(0, K, step)
    needed = o.copy()
    o[...] = np.nan
    np.testing.assert_array_equal(cache.run(0, K, step), needed)


class Stumbling(Int8):
    """Values whose encoding fails once: the keys have been written by then."""

    def __init__(self):
        self.left = 0

    def encode(self, x):
        if self.left:
            self.left -= 1
            raise ZeroDivisionError("in the codec")
        return super().encode(x)


@pytest.mark.parametrize("taken_back", (False, True))
@pytest.mark.parametrize("residual", (0, 3))
def test_a_codec_that_fails_halfway(make, residual, taken_back):
    values = Stumbling()
    codec = Codec("stumbling", Int8(), values, residual)

    def life(failures):
        cache = make(codec=codec)
        attended(cache, K[:4], V[:4])
        step = cache.plan(["a"], [5])
        values.left = failures
        if failures:
            with pytest.raises(ZeroDivisionError):
                cache.append(0, K[4:], V[4:], step)
            if taken_back:
                cache.truncate("a", 4)
                step = cache.plan(["a"], [5])
        cache.append(0, K[4:], V[4:], step)
        return [cache.run(0, K[4:], step), *cache.read(0, "a")]

    for got, needed in zip(life(1), life(0), strict=True):
        np.testing.assert_array_equal(got, needed)


class Mute:
    def __repr__(self):
        raise RuntimeError("no words")


NAMES = {
    "None": None, "nan": float("nan"), "a tuple with nan": ("a", float("nan")), "bytes": b"x",
    "frozenset": frozenset({1}), "half a character": "\ud800", "a long text": "x" * 10**5,
    "an integer of 5,000 digits": 10**5000, "a tuple of such": (10**5000,),
    "an object that has no words": Mute(),
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_names(make, name):
    cache = make()
    attended_as = cache.add(name), cache.plan([name], [3])
    cache.append(0, K[:3], V[:3], attended_as[1])
    cache.fork(name, "twin")
    for call in (
        lambda: cache.add(name), lambda: cache.fork("twin", name),
        lambda: cache.plan([name], [1000]), lambda: cache.plan([name, name], [1, 1]),
        lambda: cache.truncate(name, 99),
    ):
        with pytest.raises((ValueError, kvlib.CacheFull, kvlib.OutOfBlocks)) as error:
            call()
        assert len(str(error.value)) < 300
    assert len(repr(attended_as[1])) < 300
    cache.free(name)
    for call in (lambda: cache.free(name), lambda: cache.seq_len(name)):
        with pytest.raises(ValueError, match="is not open; open are: 'twin'") as error:
            call()
        assert len(str(error.value)) < 300
    model = models.decoder("llama")
    scheduler = Scheduler(model, model.new_cache(1, 8))
    scheduler.add(name, [1, 2], max_new_tokens=2)
    with pytest.raises(ValueError, match="is known already") as error:
        scheduler.add(name, [1, 2])
    assert len(str(error.value)) < 300 and len(scheduler.run()[name]) == 2


class Tokenizer:
    def __init__(self, ids):
        self.ids = ids

    def encode(self, text):
        return self.ids

    def decode(self, ids):
        return repr(ids)


@pytest.mark.parametrize("ids", ([1.5], ["a"], "ab", None, 3, {1, 2}, [True], [999], [-1], []))
def test_tokenizers_that_give_no_tokens(ids):
    model = models.decoder("llama", tokenizer=Tokenizer(ids))
    with pytest.raises((TypeError, ValueError), match="prompt 0 "):
        kvlib.generate(model, ["x"], max_new_tokens=2)


def test_a_tokenizer_of_numpy():
    plain, numpy = (
        models.decoder("llama", tokenizer=Tokenizer(ids)) for ids in ([1, 2], np.uint8([1, 2]))
    )
    assert kvlib.generate(plain, ["x"]) == kvlib.generate(numpy, ["x"])
