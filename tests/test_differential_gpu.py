"""The differential test on a graphics card (make gpu); needs neither hypothesis nor .venv."""

import importlib.util
from functools import partial

import device_copies
import numpy as np
import pytest
from caches import CACHES, CODECS
from models import KINDS, decoder, text
from narrow_lives import live
from schedules import Schedule, close, seeded

from kvlib import BlockPool, PagedCache, generate, load_reference_model
from kvlib.arrays import default_namespace, namespace, nbytes, to_numpy
from kvlib.caches import run_cascade
from kvlib.devices import trouble

pytestmark = pytest.mark.gpu
# Nanoseconds of the clock, however fast the card is and however many programs share it.
SPIN = r"""
extern "C" __global__ void spin(unsigned long long nanoseconds) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begin < nanoseconds);
}
"""


@pytest.fixture
def cupy():
    if importlib.util.find_spec("cupy") is None or (reason := trouble()):
        pytest.skip("CuPy is not installed" if importlib.util.find_spec("cupy") is None else reason)
    import array_api_compat.cupy as cp

    return cp


def test_the_library_where_there_is_a_device(cupy, monkeypatch):
    for wish in ("", "cupy"):
        monkeypatch.setenv("KVLIB_BACKEND", wish)
        assert default_namespace() is cupy
    x = cupy.arange(3, dtype=cupy.float32)
    assert namespace(x) is cupy and to_numpy(x).tolist() == [0, 1, 2] and nbytes(x) == 12


@pytest.mark.parametrize("kind", KINDS)
def test_decoder_and_generate(kind, cupy):
    host, device = decoder(kind), decoder(kind, xp=cupy)
    prompts = [text(2, 5), text(3, 9)]
    assert generate(device, prompts, max_new_tokens=8) == generate(host, prompts, max_new_tokens=8)
    logits = []
    for model in (host, device):
        cache = model.new_cache()
        cache.add("a")
        out = model.forward(text(1, 12), cache, cache.plan(["a"], [12]), rows="all")
        assert out.dtype == model.xp.float32
        logits.append(to_numpy(out))
    close(logits[1], logits[0], "logits", 1e-3)  # TF32 products where CuPy allows them


@pytest.mark.parametrize("name", CACHES)
def test_any_schedule_equals_the_oracle(name, cupy):
    for seed in range(200, 212):
        Schedule(name, seeded(seed), cupy).play(20)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", CACHES)
def test_every_cache_in_every_dtype(name, dtype, cupy):
    live(name, cupy, dtype)


@pytest.mark.parametrize("codec", CODECS, ids=lambda c: f"{c.name}, residual {c.residual}")
def test_codes_are_those_of_the_processor(codec, cupy):
    """Bit for bit: logarithms, powers and roundings of a device may not move a code."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 64, 64)) * 10.0 ** rng.integers(-6, 4, (2, 64, 1))
    x = x.astype(np.float32)
    x[0, :8] = 2.0 ** rng.integers(-12, 9, (8, 64))  # powers of two, where exponents turn
    for part in (codec.keys, codec.values):
        host, device = part.encode(x), part.encode(cupy.asarray(x))
        for name, field in host.items():
            np.testing.assert_array_equal(to_numpy(device[name]), field, err_msg=name)
        decoded = to_numpy(part.decode(device, cupy.float32))
        close(decoded, part.decode(host, np.float32), "decoded", 1e-6)


def test_shared_blocks_are_read_once(cupy):
    model, logits = decoder("llama", xp=cupy), []
    for cls in (PagedCache, type("Cascade", (PagedCache,), {"run": run_cascade})):
        cache = cls(model.layer_specs, BlockPool(24, 4), xp=cupy)
        cache.add("a")
        model.forward(text(1, 13), cache, cache.plan(["a"], [13], text(1, 13)))
        cache.fork("a", "b")
        step = cache.plan(["a", "b"], [1, 1], [1, 2])
        logits.append(to_numpy(model.forward([1, 2], cache, step)))
    close(logits[1], logits[0], "logits", 1e-3)


def test_the_reference_model_says_the_same(cupy):
    host, device = load_reference_model(xp=np), load_reference_model(xp=cupy)
    prompts = ["class Stack:\n    def push(self, ", "def add(a, b):\n    return "]
    settings = {"max_new_tokens": 32, "progress": False}
    assert generate(device, prompts, **settings) == generate(host, prompts, **settings)


@pytest.fixture
def busy(cupy):
    """Start a second of work on the current stream; the result says whether it goes on."""
    kernel = cupy.RawKernel(SPIN, "spin")

    def start():
        kernel((1,), (1,), (np.uint64(10**9),))
        end = cupy.cuda.Event()
        end.record()
        return lambda: not end.done

    return start


@pytest.mark.parametrize("name", device_copies.CACHES)
def test_a_forward_pass_never_waits_for_the_host(name, cupy, busy):
    """As a hidden copy does; a first pass goes before, which compiles and takes memory."""
    planned = device_copies.forward_pass(name, cupy)
    planned()()
    assert not all(device_copies.waits(planned(), busy) for _ in range(3))


@pytest.mark.parametrize("how", device_copies.HIDDEN)
def test_a_hidden_copy_does_wait(how, cupy, busy):
    x = cupy.arange(8, dtype=cupy.float32)
    copy = partial(device_copies.HIDDEN[how], cupy, x)
    copy()
    assert device_copies.waits(copy, busy)


def test_what_computes_on_the_device_does_not_wait(cupy, busy):
    """The test of hidden copies can fail: products by cuBLAS and CuPy's own kernels."""
    x = cupy.ones((64, 64), dtype=cupy.float32)

    def compute():
        return cupy.where(x @ x > 3, x, 0 * x).sum()

    compute()
    assert not all(device_copies.waits(compute, busy) for _ in range(3))
