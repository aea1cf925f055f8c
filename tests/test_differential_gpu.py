"""The differential test on a graphics card (make gpu); needs neither hypothesis nor .venv."""

import importlib.util

import pytest
from caches import CACHES
from models import decoder, text
from schedules import Schedule, close, seeded

from kvlib import generate
from kvlib.arrays import default_namespace, namespace, nbytes, put, to_numpy

pytestmark = pytest.mark.gpu


@pytest.fixture
def cupy():
    if importlib.util.find_spec("cupy") is None:
        pytest.skip("CuPy is not installed")
    import array_api_compat.cupy as cp

    try:
        cp.cuda.runtime.getDeviceCount()
    except cp.cuda.runtime.CUDARuntimeError as error:
        pytest.skip(f"CuPy finds no CUDA device: {error}")
    return cp


def test_the_library_where_there_is_a_device(cupy, monkeypatch):
    for wish in ("", "cupy"):
        monkeypatch.setenv("KVLIB_BACKEND", wish)
        assert default_namespace() is cupy
    x = cupy.arange(3, dtype=cupy.float32)
    assert namespace(x) is cupy and to_numpy(x).tolist() == [0, 1, 2] and nbytes(x) == 12
    put(x, cupy.asarray([2, 0]), cupy.asarray([5, 7], dtype=cupy.float32))
    assert to_numpy(x).tolist() == [7, 1, 5]


@pytest.mark.parametrize("kind", ["llama", "hybrid", "gpt2", "qwen3"])
def test_decoder_and_generate(kind, cupy):
    host, device = decoder(kind), decoder(kind, xp=cupy)
    prompts = [text(2, 5), text(3, 9)]
    assert generate(device, prompts, max_new_tokens=8) == generate(host, prompts, max_new_tokens=8)
    logits = []
    for model in (host, device):
        cache = model.new_cache()
        cache.add("a")
        out = model.forward(text(1, 12), cache, cache.plan(["a"], [12]), last_only=False)
        assert out.dtype == model.xp.float32
        logits.append(to_numpy(out))
    close(logits[1], logits[0], "logits", 1e-3)  # TF32 products where CuPy allows them


@pytest.mark.parametrize("name", CACHES)
def test_any_schedule_equals_the_oracle(name, cupy):
    for seed in range(200, 212):
        Schedule(name, seeded(seed), cupy).play(20)
