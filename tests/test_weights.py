"""Names and shapes, the one allocation, and random weights of a useful scale."""

from pathlib import Path

import array_api_strict
import numpy as np
import pytest

from kvlib.arrays import to_numpy
from kvlib.model import Decoder, ModelConfig, num_parameters, random_weights, weight_shapes
from kvlib.model.weights import allocate

GOLDEN = Path(__file__).parent / "golden"
CONFIGS = {path.parent.name: path.parent for path in sorted(GOLDEN.glob("*/config.json"))}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_one_buffer_aligned_and_apart(dtype):
    shapes = {"a": (3, 5), "b": (7,), "c": (1, 1), "d": (2, 3, 4), "none": (0, 3)}
    arrays = allocate(shapes, dtype)
    for i, (name, shape) in enumerate(shapes.items()):
        assert arrays[name].shape == shape and arrays[name].dtype == dtype
        assert arrays[name].ctypes.data % 64 == 0 or not arrays[name].size
        arrays[name][...] = i
    for i, name in enumerate(shapes):
        assert (arrays[name] == i).all()


def test_a_library_without_views_gets_separate_arrays():
    arrays = allocate({"a": (3, 5), "b": (7,)}, xp=array_api_strict)
    assert arrays["a"].shape == (3, 5) and arrays["b"].dtype == array_api_strict.float32


@pytest.mark.parametrize("name", CONFIGS)
def test_random_weights(name):
    """Repeatable, the same in every library, of the listed shapes; logits of scale about 1."""
    config = ModelConfig.from_folder(CONFIGS[name])
    weights = random_weights(config, seed=3)
    assert {key: value.shape for key, value in weights.items()} == weight_shapes(config)
    assert sum(value.size for value in weights.values()) == num_parameters(config)
    again, other = random_weights(config, seed=3), random_weights(config, seed=4)
    assert all(np.array_equal(weights[key], again[key]) for key in weights)
    assert not np.array_equal(weights["embed.weight"], other["embed.weight"])
    strict = random_weights(config, seed=3, xp=array_api_strict)
    assert all(np.array_equal(weights[key], to_numpy(strict[key])) for key in weights)
    model = Decoder(config, weights)
    cache = model.new_cache(max_seqs=1, max_seq_len=40)
    cache.add(0)
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, 40)
    logits = model.forward(tokens, cache, cache.plan([0], [40]), rows="all")
    assert 0.5 < np.sqrt(np.mean(logits**2)) < 2
