"""What one device keeps of the cache, against a table of who holds which number."""

import pytest

from kvlib.costs import MODELS, kv_on_one

NAMES = ["llama-3.1-70b", "llama-2-7b", "gemma-3-27b", "deepseek-v3", "qwen3-8b"]


def held(name, way, devices, context):
    """Numbers of one request on each device, counted token by token and layer by layer."""
    spec = MODELS[name]
    kinds = {i: g for g in spec.layers for i in g.indices}
    total = [0] * devices
    for i, g in sorted(kinds.items()):
        heads = 1 if g.latent else g.num_kv_heads
        dims = g.head_dim if g.latent else g.head_dim + g.v_dim
        tokens = range(max(0, context - g.window) if g.window else 0, context)
        for d in range(devices):
            if way == "tensor":
                total[d] += len(tokens) * dims * max(1, heads // devices)
            elif way == "pipeline":
                last = (d + 1) * len(kinds) // devices
                total[d] += len(tokens) * heads * dims * (d * len(kinds) // devices <= i < last)
            elif way == "context":  # the newest stretch is whole
                each = -(-context // devices)
                end = context - (devices - 1 - d) * each
                total[d] += heads * dims * len([t for t in tokens if end - each <= t < end])
    return max(total)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", ["tensor", "pipeline", "context"])
@pytest.mark.parametrize("devices", [1, 2, 8, 16])
def test_bytes_of_the_fullest_device(name, way, devices):
    got = kv_on_one(name, way, devices, batch=3, context=2000)
    assert got.value == 3 * 2 * held(name, way, devices, 2000)


def test_data_parallel_attention_keeps_requests_whole():
    one = kv_on_one("deepseek-v3", "data", 1, batch=1, context=500)
    assert kv_on_one("deepseek-v3", "data", 8, batch=20, context=500) == 3 * one


def test_more_devices_than_heads_gain_nothing():
    few, many = (kv_on_one("llama-3.1-8b", "tensor", n, 1, 100) for n in (8, 32))
    assert few == many


@pytest.mark.parametrize(("arguments", "error", "words"), [
    (("llama-3.1-8b", "expert", 2, 1, 10), ValueError, "way must be one of"),
    (("llama-3.1-8b", "tensor", 3, 1, 10), ValueError, "evenly"),
    (("llama-3.1-8b", "pipeline", 33, 1, 10), ValueError, "at most 32"),
    (("llama-3.1-8b", "tensor", 0, 1, 10), ValueError, "devices is 0"),
    (("llama-3.1-8b", "tensor", 2, 1.5, 10), TypeError, "batch is 1.5"),
])
def test_what_makes_no_sense_is_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        kv_on_one(*arguments)
