"""Whole models through the kernels: the tokens are those of the array path."""

import numpy as np
import pytest
from engines import library

from kvlib import (
    BlockPool,
    DenseCache,
    LayerSpec,
    PagedCache,
    QuantizedCache,
    generate,
    load_draft_model,
    load_reference_model,
)
from kvlib.codecs import int8, kivi
from kvlib.kernels import use_kernels, watched
from kvlib.speculation import DraftModel, branches

MODEL = load_reference_model(xp=np)
PROMPTS = [list(b"def mean(values):\n    return "), list(b"import os\n\n\nclass ")]


def caches(xp=np):
    layers = MODEL.layer_specs
    return {
        "dense": lambda: DenseCache(layers, 2, 64, xp=xp),
        "paged": lambda: PagedCache(layers, BlockPool(16, 8), xp=xp),
        "int8": lambda: PagedCache(layers, BlockPool(16, 8), codec=int8(), xp=xp),
        "int4": lambda: QuantizedCache(layers, kivi(4, 32, 32), 2, 64, xp=xp),
    }


@pytest.mark.parametrize("name", caches())
def test_generate_gives_the_same_tokens(name):
    make = caches()[name]
    needed = generate(MODEL, PROMPTS, max_new_tokens=8, cache=make())
    assert generate(MODEL, PROMPTS, max_new_tokens=8, cache=use_kernels(make())) == needed


@pytest.mark.parametrize("name", ["paged", "int8"])
def test_trees_of_guesses_give_the_same_tokens(name):
    make, drafter = caches()[name], DraftModel(load_draft_model(xp=np), tree=branches(2, 2))
    needed = generate(MODEL, PROMPTS, max_new_tokens=6, cache=make())
    cache = use_kernels(make())
    assert generate(MODEL, PROMPTS, max_new_tokens=6, cache=cache, drafter=drafter) == needed


@pytest.mark.gpu
@pytest.mark.parametrize("name", caches())
def test_a_device_gives_the_tokens_of_the_processor(name):
    xp = library("device")
    model, make = load_reference_model(xp=xp), caches(xp)[name]
    needed = generate(MODEL, PROMPTS, max_new_tokens=8, cache=caches()[name]())
    assert generate(model, PROMPTS, max_new_tokens=8, cache=use_kernels(make())) == needed


def test_the_cuda_sources_themselves_give_the_same_tokens():
    make = caches()["paged"]
    needed = generate(MODEL, [PROMPTS[0][:9]], max_new_tokens=3, cache=make())
    with watched() as seen:
        cache = use_kernels(make(), run_on="processor")
        assert generate(MODEL, [PROMPTS[0][:9]], max_new_tokens=3, cache=cache) == needed
    units = {launch.kernel.unit for launch, _ in seen}
    assert units == {"decode", "prefill_float"}


def test_a_cache_that_no_kernel_suits_is_refused():
    with pytest.raises(ValueError, match="head_dim must be one of"):
        use_kernels(DenseCache([LayerSpec(2, 48)], 1, 16))
