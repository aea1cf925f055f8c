"""Tests that catch the bugs of the museum: numbers, and what requests share. See `guards`."""

import math

import numpy as np

from kvbook.museum.tiny import close, prompt, small_model
from kvlib.attention import attend, attend_causal, attend_tiled, merge_state
from kvlib.caches import BlockPool, PagedCache
from kvlib.caches.allocation.prefixes import HashIndex
from kvlib.codecs import PerChannel, PerToken
from kvlib.codecs.packing import pack, unpack
from kvlib.serve import Scheduler

RNG_SHAPE = (2, 16, 8)


def lse_is_the_log_of_the_sum() -> None:
    """The lse is the natural logarithm of the sum of e^score."""
    q, k, v = random_qkv(3, 9)
    _, lse = attend(q, k, v, np.arange(6, 9), np.arange(9), return_lse=True)
    for i in range(3):
        scores = k[: 7 + i, 0].astype(float) @ q[i, 0] / math.sqrt(8)
        close(lse[i, 0], np.log(np.exp(scores).sum()))


def nothing_merged_with_nothing_is_nothing() -> None:
    """Merging two parts without a visible key gives (0, -inf) and no NaN."""
    o, lse = np.zeros((1, 2, 8), np.float32), np.full((1, 2), -np.inf, np.float32)
    with np.errstate(invalid="ignore"):
        merged, total = merge_state(o, lse, o, lse)
    assert (merged == 0).all() and (total == -np.inf).all()


def tiles_of_any_size_equal_the_whole() -> None:
    """Tiles from one key up to more keys than there are."""
    q, k, v = random_qkv(3, 9)
    at = (np.arange(6, 9), np.arange(9))
    for tile in (1, 2, 4, 9, 64):
        close(attend_tiled(q, k, v, *at, tile=tile), attend(q, k, v, *at))


def a_query_head_reads_its_own_kv_head() -> None:
    """Query head h over kv head h // G, computed alone."""
    q, k, v = random_qkv(3, 9)
    at, last = np.arange(9), np.arange(6, 9)
    forms = [
        attend(q, k, v, last, at),
        attend_causal(q, k.transpose(1, 0, 2), v.transpose(1, 0, 2)),
        attend_causal(q[2:], k.transpose(1, 0, 2), v.transpose(1, 0, 2)),
    ]
    for h in range(4):
        own = [h // 2]
        wanted = attend(q[:, [h]], k[:, own], v[:, own], last, at)
        for o in forms:
            close(np.asarray(o)[-1:, [h]], np.asarray(wanted)[-1:])


def codes_are_off_by_half_a_step_at_most() -> None:
    """2, 4 and 8 bits, keys per channel and values per token."""
    x = 3 * np.random.default_rng(0).standard_normal(RNG_SHAPE).astype(np.float32)
    for bits in (2, 4, 8):
        for codec, axis in ((PerChannel(bits, 16), 1), (PerToken(bits, 8), 2)):
            decoded = codec.decode(codec.encode(x), np.float32)
            step = np.ptp(x, axis=axis, keepdims=True) / (2**bits - 1)
            assert (np.abs(decoded - x) <= 0.51 * step + 0.006).all(), codec


def groups_of_one_number_survive() -> None:
    """Constant, zero, one-hot and huge groups come back without a 0/0 on the way."""
    x = np.zeros(RNG_SHAPE, np.float32)
    x[0, :, 0], x[0, 3, 1], x[1, :, 2] = 0.75, 1.0, 60000.0
    with np.errstate(invalid="raise", divide="raise"):
        for codec in (PerChannel(4, 16), PerToken(4, 8)):
            decoded = codec.decode(codec.encode(x), np.float32)
            assert np.isfinite(decoded).all(), codec
            close(decoded[0], x[0], 0.04)


def packed_codes_come_back_in_their_order() -> None:
    """Codes of two and four bits come back in the order in which they were packed."""
    for bits in (2, 4):
        codes = (np.arange(16, dtype=np.uint8) * 7) % (1 << bits)
        assert (unpack(pack(codes, bits), bits, np.uint8) == codes).all()


def a_pool_agrees_with_a_dict() -> None:
    """Blocks are allocated, published, freed and reused; a lookup finds what they hold now."""
    rng, pool = np.random.default_rng(0), BlockPool(3, 2)
    content: dict[int, tuple[int, ...]] = {}
    for _ in range(60):
        tokens = tuple(rng.integers(0, 3, 2).tolist())
        found = pool.lookup(tokens)
        assert all(content.get(block) == tokens for block in found), "another text's block"
        if not found:
            (block,) = pool.allocate(1)
            content[block] = tokens
            pool.publish(block, None, tokens)
            pool.free([block])


def equal_hashes_are_not_equal_texts() -> None:
    """With a hash that is the same for all, only equal tokens are found."""
    pool = BlockPool(4, 2, index=HashIndex(lambda before, tokens, extra: b"same"))
    (block,) = pool.allocate(1)
    pool.publish(block, None, (1, 2))
    assert pool.lookup((1, 2)) == [block] and pool.lookup((3, 4)) == []


def a_cached_prompt_leaves_a_token_to_compute() -> None:
    """Even if a prompt is cached as a whole, its last token is computed, for its logits."""
    model, ids = small_model(), prompt(8)
    cache = PagedCache(model.layer_specs, BlockPool(12, 4), xp=np)
    for name in "ab":
        held = cache.add(name, ids)
        assert held < len(ids), "nothing is left to compute"
        model.forward(ids[held:], cache, cache.plan([name], [8 - held], ids[held:]))
        cache.free(name)
    assert held == 4


def preemption_changes_no_token() -> None:
    """Two requests in a pool for one and a half, compared with each request alone."""
    model = small_model()
    for seed in range(4):  # a text that repeats itself may not miss a token
        texts = {"a": prompt(9, seed), "b": prompt(7, seed + 10)}
        alone = {name: _served(model, {name: ids}, 20) for name, ids in texts.items()}
        together = _served(model, texts, 6)
        assert together == {name: alone[name][name] for name in texts}


def _served(model: object, texts: dict[str, list[int]], blocks: int) -> dict[str, list[int]]:
    cache = PagedCache(model.layer_specs, BlockPool(blocks, 4), xp=np)  # type: ignore[attr-defined]
    server = Scheduler(model, cache, stop_tokens=())  # type: ignore[arg-type]
    for name, ids in texts.items():
        server.add(name, ids, max_new_tokens=8)
    return {str(name): tokens for name, tokens in server.run().items()}


def the_bill_is_what_arrays_weigh() -> None:
    """Grouped heads, a separate head size, windows, MLA: bytes compared with live arrays."""
    from dataclasses import replace

    from kvlib.costs import MODELS

    qwen, gemma, mla = (
        replace(MODELS[name]) for name in ("qwen3-0.6b", "gemma-3-27b", "deepseek-v3")
    )
    keys = np.zeros((28, 2, 8, 1, 128), np.float16)  # layers, k and v, kv heads, a token, head_dim
    assert int(qwen.kv_bytes_per_token()) == keys.nbytes
    latent = np.zeros((61, 1, 512 + 64), np.float16)  # layers, a token, latent and rotated key
    assert int(mla.kv_bytes_per_token()) == latent.nbytes
    seen = [1024 if (i + 1) % 6 else 2000 for i in range(62)]  # tokens that each layer keeps
    assert int(gemma.kv_bytes(1, 2000)) == sum(seen) * np.zeros((2, 16, 128), np.float16).nbytes


def random_qkv(t: int, s: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q (T, 4, 8), k and v (S, 2, 8): two query heads on each kv head."""
    rng = np.random.default_rng(7)
    q, k, v = (rng.standard_normal(x).astype(np.float32) for x in ((t, 4, 8), (s, 2, 8), (s, 2, 8)))
    return q, k, v
