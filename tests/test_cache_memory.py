"""What a paged cache says of its bytes: exact, and by counting blocks, not by visiting them."""

from unittest.mock import patch

import numpy as np
import pytest

from kvlib import BlockPool, LayerSpec, PagedCache, QuantizedCache
from kvlib.attention.pieces import Fields
from kvlib.codecs import Codec, Field, Int8, int8, kivi

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


CODECS = {
    "plain": None,
    "int8": int8(),
    "int8, 5 wait": int8(5),
    "kivi": kivi(4, 8, 3),
    "other names": Codec("levels", OtherNames(), OtherNames()),
}


def visited(cache):
    """Payload and metadata in the blocks, block by block and layer by layer."""
    filled = {}
    for seq in cache._sequences.values():
        held = seq.state.num_encoded
        for n, block in enumerate(seq.state.tables[0].pages):
            here = max(0, min(cache.block_size, held - n * cache.block_size))
            filled[block] = max(filled.get(block, 0), here)
    found = {True: 0, False: 0}
    for store in cache.stores:
        for fields in store.fields:
            for name, field in fields.fields.items():
                for block, tokens in filled.items():
                    part = fields.arrays[name][block, :, : -(-tokens // field.per)]
                    found[field.payload] += part.nbytes
    return found[True], found[False]


def waiting(cache):
    """Bytes of the tokens that no block holds yet."""
    return sum(
        (seq.length - seq.state.num_encoded) * x.shape[0] * x.shape[2] * x.itemsize
        for seq in cache._sequences.values()
        for tail in seq.state.residuals
        for x in tail.waiting
    )


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_bytes_are_those_of_the_blocks(codec):
    rng = np.random.default_rng(0)
    cache = PagedCache(LAYERS, BlockPool(60, 8), codec=codec, xp=np)
    for i in range(5):
        cache.add(i)
        cache.plan([i], [int(rng.integers(1, 60))])
    for i in range(5):
        cache.fork(i, 10 + i)
        cache.truncate(i, cache.seq_len(i) // 16 * 8)
        memory, (payload, metadata) = cache.memory(), visited(cache)
        assert (memory.payload, memory.metadata) == (payload + waiting(cache), metadata)
        assert memory.reserved == sum(x.nbytes for x in cache.storage())
        assert memory.free >= 0 and memory.wasted >= 0


def test_a_field_says_itself_whether_it_is_payload():
    """Not its name: of 8 codes and a scale of 4 bytes, 8 bytes are payload."""
    for codec in (int8(), CODECS["other names"]):
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
        with patch.object(
            Fields, "payload_and_metadata", autospec=True, side_effect=Fields.payload_and_metadata
        ) as of:
            repr(cache)
        calls.append(of.call_count)
    assert calls[0] == calls[1] < 40
