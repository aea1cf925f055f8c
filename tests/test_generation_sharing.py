"""Prompts that begin alike: what they share is computed once, and the tokens are the same."""

import numpy as np
import pytest
from models import decoder, text

from kvlib import BlockPool, Meter, PagedCache, generate, stream
from kvlib.caches import RadixIndex

MODEL = decoder("llama", seed=3)
COMMON = text(7, 33)
SETTINGS = {"max_new_tokens": 5, "stop_tokens": ()}


def paged(blocks: int = 96, size: int = 4, **settings) -> PagedCache:
    return PagedCache(MODEL.layer_specs, BlockPool(blocks, size, **settings), xp=np)


def flops(call) -> tuple[object, int]:
    with Meter() as meter:
        result = call()
    return result, meter.by_label["linear"].flops


def one_by_one(prompts: list[list[int]], cache: PagedCache, **settings) -> list[list[int]]:
    return [generate(MODEL, [p], cache=cache, **SETTINGS, **settings)[0] for p in prompts]


FAMILIES = {
    "one beginning": [[*COMMON, *text(i, 3)] for i in range(8)],
    "two beginnings": [[*text(90 + i % 2, 17), *text(i, 2 + i)] for i in range(8)],
    "one is the other's beginning": [COMMON[:n] for n in (33, 9, 21, 20, 32)],
    "branches of branches": [
        [*COMMON[:8], *text(i // 2, 8), *text(50 + i, 1 + i)] for i in range(6)
    ],
    "the same prompt": [COMMON] * 4,
    "nothing in common": [text(i, 11) for i in range(4)],
    "shorter than a block": [[1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5]],
}


@pytest.mark.untraced
@pytest.mark.parametrize("chunk", [None, 5, 1])
@pytest.mark.parametrize("prompts", FAMILIES.values(), ids=FAMILIES)
def test_a_shared_beginning_is_computed_once(prompts, chunk):
    needed = generate(MODEL, prompts, **SETTINGS)
    alone, least = flops(lambda: one_by_one(prompts, paged()))
    cache = paged(index=RadixIndex())
    found, spent = flops(
        lambda: generate(MODEL, prompts, cache=cache, prefill_chunk=chunk, **SETTINGS)
    )
    assert found == alone == needed
    assert cache.seq_ids == () and cache.pool.num_free == 96
    # the logits of a chunk that ends no prompt are extra, so count whole prompts only
    assert chunk is not None or spent <= least


def test_what_is_known_already_is_not_waited_for():
    cache, prompts = paged(), FAMILIES["one beginning"]
    generate(MODEL, prompts[:1], cache=cache, **SETTINGS)
    order = [i for i, _ in stream(MODEL, prompts, cache=cache, **SETTINGS)]
    assert order == list(range(8)) * 5


def test_draws_do_not_depend_on_who_is_waited_for():
    prompts = FAMILIES["branches of branches"]
    settings = {"temperature": 1.3, "seed": 4, **SETTINGS}
    needed = generate(MODEL, prompts, **settings)
    assert generate(MODEL, prompts, cache=paged(), **settings) == needed


def test_the_cache_is_clean_after_an_end_while_some_wait():
    cache = paged()
    tokens = stream(MODEL, FAMILIES["one beginning"], cache=cache, **SETTINGS)
    assert next(tokens)[0] == 0
    assert len(cache.seq_ids) == 1
    tokens.close()
    assert cache.seq_ids == () and cache.pool.num_free == 96


@pytest.mark.parametrize("fails", ["forward", "the draw"])
def test_what_a_failed_pass_has_written_is_never_found(fails, monkeypatch):
    """NaN in the last layer's keys, and an error after that: no other prompt may meet them."""
    cache, append, forward = paged(), PagedCache.append, type(MODEL).forward

    def spoiled(self, layer, k, v, step):
        append(self, layer, k * np.float32(np.nan), v, step)

    def failing(self, *arguments):
        logits = forward(self, *arguments)
        if fails == "forward":
            raise RuntimeError("the device is gone")
        return logits

    prompts = FAMILIES["one beginning"]
    needed = generate(MODEL, prompts, **SETTINGS)
    with monkeypatch.context() as patched:
        patched.setattr(PagedCache, "append", spoiled)
        patched.setattr(type(MODEL), "forward", failing)
        with pytest.raises((RuntimeError, ValueError), match="the device is gone|finite number"):
            generate(MODEL, prompts, cache=cache, **SETTINGS)
    assert cache.seq_ids == () and cache.pool.num_published == 0
    assert generate(MODEL, prompts, cache=cache, **SETTINGS) == needed
