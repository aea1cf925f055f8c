"""The bytes that a paged cache reports: found by counting blocks, not by visiting them."""

from unittest.mock import patch

import numpy as np

from kvlib import BlockPool, LayerSpec, PagedCache, QuantizedCache
from kvlib.caches.store import PagedTensor
from kvlib.codecs import Codec, Field, Int8, int8

LAYERS = [LayerSpec(2, 8), LayerSpec(1, 16, 8, v_from_k=True)]


class OtherNames(Int8):
    """int8 whose fields are called otherwise."""

    def fields(self, dim, xp, dtype):
        steps = Field(1, (), xp.float32, payload=False)
        return {"levels": Field(1, (dim,), xp.int8), "steps": steps}

    def encode(self, x):
        return dict(zip(("levels", "steps"), super().encode(x).values()))

    def decode(self, parts, dtype):
        return super().decode({"codes": parts["levels"], "scales": parts["steps"]}, dtype)


def test_a_field_says_itself_whether_it_is_payload():
    """Not its name: of 8 codes and a scale of 4 bytes, 8 bytes are payload."""
    for codec in (int8(), Codec("levels", OtherNames(), OtherNames())):
        cache = QuantizedCache([LayerSpec(2, 8)], codec, 1, 16, xp=np)
        cache.add("a")
        cache.plan(["a"], [3])
        memory = cache.memory()
        assert (memory.payload, memory.metadata) == (3 * 2 * 2 * 8, 3 * 2 * 2 * 4), codec


def test_a_field_that_says_nothing_is_payload():
    """A codec that marks nothing, as before fields could: its cache is not called empty."""
    assert Field(1, (8,), np.uint8).payload is True


def test_memory_of_more_blocks_is_no_more_work():
    calls = []
    for blocks in (20, 2000):
        cache = PagedCache(LAYERS, BlockPool(blocks, 8), codec=int8(), xp=np)
        for i in range(2):
            cache.add(i)
            cache.plan([i], [blocks * 4 - 3])
        count = PagedTensor.payload_and_metadata
        with patch.object(
            PagedTensor, "payload_and_metadata", autospec=True, side_effect=count
        ) as of:
            repr(cache)
        calls.append(of.call_count)
    assert calls[0] == calls[1] < 40
