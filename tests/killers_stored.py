"""What mutants of blocks, codes, chunks and bills must not survive; see killers.py."""

import itertools
from contextlib import suppress
from dataclasses import replace
from unittest.mock import patch

import killers_shared
import numpy as np
import test_cascade
import test_dense_batched
import test_layouts
import test_paged_batched
from models import decoder, text
from schedules import Schedule, check_run, close, seeded
from test_blocks import INDEXES as POOL_INDEXES
from test_blocks import Model

from kvlib import BlockPool, DenseCache, LayerSpec, PagedCache, QuantizedCache, generate
from kvlib.attention import causal, pieces
from kvlib.codecs import Int8, PerChannel, PerToken, fp8, kivi
from kvlib.costs import MODELS
from kvlib.serve import Scheduler


def pool_and_its_model() -> None:
    for index in POOL_INDEXES:
        for seed in range(6):
            Model(seed, index).play(60)


def stored_schedules() -> None:
    for name in (
        "paged, blocks of 4", "int8, residual 5, rows", "int4, residual 3, rows",
        "int4, residual 3, blocks of 8",
    ):
        for seed in range(6):
            Schedule(name, seeded(seed), np).play(25)


def layouts_agree() -> None:
    test_layouts.test_a_slot_is_where_the_token_is(np, 4)
    test_layouts.test_csr_of_a_small_table()


def codecs_round_trip() -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, 16, 16)).astype(np.float32) * 3
    x[0, :8] = 0.7  # constant groups, of tokens and of channels
    x[1, 8:, 0] = 0.0
    q = rng.standard_normal((2, 3, 16)).astype(np.float32)
    p = rng.random((2, 3, 16)).astype(np.float32)
    with np.errstate(all="raise", under="ignore"):
        for bits, size in itertools.product((2, 4, 8), (2, 8)):
            for codec in (PerChannel(bits, size), PerToken(bits, size)):
                decoded = codec.decode(codec.encode(x), np.float32)
                axis = 2 if isinstance(codec, PerChannel) else 3
                shape = (2, 16 // size, size, 16) if axis == 2 else (2, 16, 16 // size, size)
                spread = np.ptp(x.reshape(shape), axis=axis, keepdims=True)
                allowed = 0.51 * spread / (2**bits - 1) + 0.006
                error = np.abs(decoded - x).reshape(shape)
                assert (error <= allowed).all(), f"{codec} is off by {error.max()}"
        for codec, allowed in ((Int8(), 0.06), (fp8().keys, 0.7)):
            fields = codec.encode(x)
            decoded = codec.decode(fields, np.float32)
            assert np.abs(decoded - x).max() < allowed
            close(codec.scores(q, fields), q @ decoded.swapaxes(1, 2), "scores", 1e-4)
            close(codec.weigh(p, fields, 16), p @ decoded, "weighed", 1e-4)
        for kind, top in (("e4m3", 448), ("e5m2", 57344)):
            codec = fp8(kind).keys
            huge = codec.encode(np.full((1, 1, 2), 1e6, np.float32))
            assert (codec.decode(huge, np.float32) == top).all()


def pieces_in_every_form() -> None:
    """Pages smaller and larger than what is read uncopied, tails, lengths round the window."""
    window = 6
    sinks = np.asarray([0, 1, -1, 2], np.float32)
    layers = (LayerSpec(1, 8), LayerSpec(2, 8, window=window, sinks=sinks))
    for size, codec in itertools.product((2, 4, 16), (None, kivi(4, 2, 3), fp8())):
        for q_lens in ([window - 1, 1, 1, 1, 4 * window, 1], [2 * window + 1, 3, 5, 1, 1, 9]):
            paged = PagedCache(layers, BlockPool(40, size), codec=codec, xp=np)
            rows = QuantizedCache(layers, codec or kivi(8, 2, 5), 1, 48, xp=np)
            with (
                patch.object(pieces, "STORED_PIECE", 4),
                patch.object(pieces, "VIEWED", 8),
                patch.object(causal, "CHUNK_ROWS", 6),
            ):
                paged.pool.free(paged.pool.allocate(40))  # from now on allocated backwards
                _attend(paged, layers, q_lens)
                _attend(rows, layers, q_lens)


def _attend(cache, layers, q_lens: list[int]) -> None:
    rng = np.random.default_rng(sum(q_lens))
    cache.add("a")
    for n in q_lens:
        step = cache.plan(["a"], [n])
        for layer, spec in enumerate(layers):
            shape = (n, spec.num_kv_heads, spec.head_dim)
            k, v = (rng.standard_normal(shape).astype(np.float32) for _ in "kv")
            cache.append(layer, k, v, step)
            q = rng.standard_normal((n, 2 * shape[1], shape[2])).astype(np.float32) * 3
            check_run(cache, layer, q, step)


def batches_of_some() -> None:
    """Decode steps of which some requests attend in one product and others alone."""
    lengths = [9, 600, 7, 30, 601, 8]
    spec = LayerSpec(2, 8, sinks=np.asarray([0, 3, -1, 2], np.float32))
    for new in (1, [3, 1, 3, 3, 3, 2]):
        cache, step, q = test_dense_batched.decoding(lengths, new=new, sinks=True)
        check_run(cache, 0, q, step)
        cache, step, q = test_paged_batched.filled(lengths, spec, 8, new)
        check_run(cache, 0, q, step)


def shared_parts_merge() -> None:
    """Three requests that begin alike, in two merged parts and with a learned sink."""
    sinks = np.asarray([0, 1, -1, 2], np.float32)
    cache, step, rng = test_cascade.shared_prompt(3, 48, 3, sinks=sinks)
    test_cascade.check(cache, 0, step, 2, rng)


def chunks_and_schedules() -> None:
    for seed in range(3):  # a text that repeats itself may not miss a token
        prompts = [text(seed + 10 * i, n) for i, n in enumerate((11, 3, 14), 1)]
        _chunks_and_schedules(decoder("llama", seed=seed + 3), prompts)


def _chunks_and_schedules(model, prompts: list[list[int]]) -> None:
    needed = generate(model, prompts, max_new_tokens=8, stop_tokens=())
    for chunk in (1, 4):
        settings = dict(max_new_tokens=8, stop_tokens=(), prefill_chunk=chunk)
        assert generate(model, prompts, **settings) == needed
    cache = PagedCache(model.layer_specs, BlockPool(24, 4), xp=np)
    with patch.object(PagedCache, "append", _spoils), suppress(ValueError):
        generate(model, prompts, cache=cache)
    assert cache.seq_ids == ()
    assert generate(model, prompts, max_new_tokens=8, stop_tokens=(), cache=cache) == needed
    for budget in (None, 3):
        cache = PagedCache(model.layer_specs, BlockPool(6, 4), xp=np)
        scheduler = Scheduler(model, cache, budget=budget, stop_tokens=())
        for i, prompt in enumerate(prompts):
            scheduler.add(i, prompt, 8)
        with patch.object(PagedCache, "run", _fails), suppress(ZeroDivisionError):
            scheduler.step()
        while scheduler.busy:
            fed = [e.tokens for e in scheduler.step() if e.kind in ("prefill", "decode")]
            assert budget is None or sum(fed) <= budget
        assert [r.new for r in scheduler.requests.values()] == needed
    assert any(e.kind == "preempt" for e in scheduler.events)


def bills() -> None:
    """Bytes against live arrays, whose shapes come from the models' cards."""

    def weighs(spec: LayerSpec, layers: int, tokens: int = 1) -> int:
        cache = DenseCache([spec] * layers, 1, tokens, dtype=np.float16, xp=np)
        return sum(x.nbytes for x in cache.storage())

    qwen, mla, gemma = (
        replace(MODELS[name]) for name in ("qwen3-0.6b", "deepseek-v3", "gemma-3-27b")
    )
    assert int(qwen.kv_bytes_per_token()) == weighs(LayerSpec(8, 128), 28)
    assert int(mla.kv_bytes_per_token()) == weighs(LayerSpec(1, 576, 512, v_from_k=True), 61)
    head = LayerSpec(16, 128)
    for seq in (1, 1024, 1025, 3000):
        held = weighs(head, 52, min(seq, 1024)) + weighs(head, 10, seq)
        assert int(gemma.kv_bytes(1, seq)) == held


def _fails(self, layer, q, step, return_lse=False):
    raise ZeroDivisionError


def _spoils(self, layer, k, v, step, append=PagedCache.append):
    append(self, layer, k * np.float32(np.nan), v, step)


CHECKS = (
    batches_of_some, shared_parts_merge, codecs_round_trip, pieces_in_every_form, layouts_agree,
    chunks_and_schedules, pool_and_its_model, stored_schedules, bills, *killers_shared.CHECKS,
)
