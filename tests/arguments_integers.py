"""Every integer that a public function of kvlib takes: a call with it, and a good value.

A new argument joins by one line in INTEGERS, or in APART with the reason why no user passes it.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import models
import numpy as np

import kvlib
from kvlib import (
    BlockPool,
    DenseCache,
    LayerSpec,
    PagedCache,
    QuantizedCache,
    Scheduler,
    caches,
    codecs,
    costs,
    kernels,
    quality,
    serve,
    speculation,
)
from kvlib.caches import layouts
from kvlib.model import random_weights

F32 = np.float32
Call = Callable[[Any], Any]


@cache
def model() -> Any:
    return models.decoder("llama", vocab_size=128, max_position_embeddings=256)


@cache
def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(F32)


def paged(block_size: Any = 4, num_blocks: Any = 8, **spec: Any) -> PagedCache:
    return PagedCache([LayerSpec(1, 64, **spec)], BlockPool(num_blocks, block_size), xp=np)


def with_step(tokens: Any = (3,), cache: Any = None, name: str = "a") -> tuple[Any, Any]:
    """A cache whose one request has appended to its only layer."""
    cache = paged() if cache is None else cache
    cache.add(name)
    step = cache.plan([name], tokens)
    x = drawn(step.num_tokens, 1, 64)
    cache.append(0, x, x, step)
    return cache, step


def attended(cache: Any) -> np.ndarray:
    cache, step = with_step((10,), cache)
    return cache.run(0, drawn(10, 2, 64), step)


def planned(cache: Any, *args: Any) -> tuple[Any, ...]:
    cache.add("a")
    step = cache.plan(["a"], *args)
    return step.q_lens, step.seq_lens, step.positions, {type(n) for n in step.q_lens}


def planned_tree(parent: Any) -> tuple[Any, ...]:
    cache = paged()
    cache.add("a")
    step = cache.plan(["a"], [4], parents=[[-1, 0, 0, parent]])
    return step.parents, step.positions, {type(n) for n in step.parents[0]}


def kept(number: Any) -> Any:
    cache, _ = with_step((5,))
    cache.keep("a", [0, 1, number])
    return cache.seq_len("a"), cache.read(0, "a")


def truncated(cache: Any, length: Any) -> Any:
    cache, _ = with_step((5,), cache)
    cache.truncate("a", length)
    return cache.seq_len("a"), type(cache.seq_len("a")), cache.read(0, "a")


def on_step(call: Callable[[Any, Any, Any], Any]) -> Call:
    def with_one(n: Any) -> Any:
        cache, step = with_step()
        return call(cache, step, n)

    return with_one


def append_layer(n: Any) -> Any:
    cache = PagedCache([LayerSpec(1, 64)] * 2, BlockPool(8, 4), xp=np)
    cache.add("a")
    step, x = cache.plan(["a"], [3]), drawn(3, 1, 64)
    cache.append(n, x, x, step)
    return 1 in step.ticket.appended, cache.read(1, "a")[0]


def scheduler(**limits: Any) -> Any:
    found = Scheduler(model(), model().new_cache(2, 32), **limits)
    for name in "ab":
        found.add(name, [105, 109, 112], max_new_tokens=2)
    return found.run(), found.events


def submitted(**settings: Any) -> Any:
    found = Scheduler(model(), model().new_cache(1, 16))
    settings = {"max_new_tokens": 2, "temperature": 0.7, **settings}
    found.add("a", [105] * 9, **settings)
    return found.run()


def generated(**settings: Any) -> Any:
    settings = {"max_new_tokens": 2, "temperature": 0.7, **settings}
    return kvlib.generate(model(), [[105] * 9], **settings)


def streamed(**settings: Any) -> Any:
    settings = {"max_new_tokens": 2, "temperature": 0.7, **settings}
    return list(kvlib.stream(model(), [[105] * 9], **settings))


def pool_with(call: Callable[[BlockPool, list[int]], Any]) -> Any:
    pool = BlockPool(8, 2)
    held = pool.allocate(4)
    found = call(pool, held)
    pool.check()
    return found, repr(pool), [pool.ref_count(b) for b in range(8)]


def published(pool: BlockPool, block: Any, parent: Any, tokens: Any = (7, 8)) -> Any:
    pool.publish(1, None, [1, 2])
    return pool.publish(block, parent, tokens), pool.lookup([1, 2, 7, 8])


def forward(tokens: Any = (105, 109), rows: Any = "last", call: Any = None) -> Any:
    cache = model().new_cache(1, 8)
    cache.add("a")
    step = cache.plan(["a"], [2])
    return call(tokens, step) if call else model().forward(tokens, cache, step, rows)


def compiled(**given: Any) -> Any:
    return kernels.compile_step(model(), model().new_cache(1, 8), **given)


def attention(form: Any, **given: Any) -> Any:
    q, k, at = drawn(20, 2, 8), drawn(20, 1, 8), np.arange(20)
    if form is kvlib.attend_causal:
        return form(q, k.transpose(1, 0, 2), k.transpose(1, 0, 2), **given)
    return form(q, k, k, at, at, **given)


def kernel_decode(**given: Any) -> Any:
    q, k = drawn(2, 1, 64), drawn(4, 1, 8, 64)
    table, lens = np.array([[3, 1], [0, 2]], np.int32), np.array([13, 16], np.int32)
    return kernels.decode_attention(q, k, k, lens, table, **given)


def kernel_prefill(**given: Any) -> Any:
    q, k = drawn(6, 1, 64), drawn(1, 1, 8, 64)
    offsets, lens = np.array([0, 6], np.int32), np.array([8], np.int32)
    return kernels.prefill_attention(q, k, k, offsets, lens, **given)


def kernel_sample(**given: Any) -> Any:
    return kernels.sample_tokens(drawn(4, 64), 0.8, **given)


def norm_backward(form: Any, forward: Any, groups: Any) -> Any:
    x, one = drawn(6, 8), np.ones(8, F32)
    rest = (one, one) if "layer" in form.__name__ else (one,)
    return form(x, forward(x, *rest)[1], groups=groups)


TWICE = """
#include "portable.cuh"
extern __shared__ float mine[];
__global__ void twice(float* x) { store(x + threadIdx.x, 2 * load(x + threadIdx.x)); }"""


def table_of(block_size: Any) -> Any:
    table = np.array([[3, 1, -1], [7, 8, 9]], np.int32)
    return layouts.to_csr(table, [190, 290], block_size)


def back(block_size: Any = 100, max_blocks: Any = 3) -> Any:
    return layouts.from_csr(table_of(100), block_size, max_blocks)


def loss(**given: Any) -> Any:
    return quality.loss(model(), model().new_cache(1, 64), b"import os\n", **given)


def recall(**given: Any) -> Any:
    settings = {"trials": 1, "distance": 20, "names": 2, **given}
    return quality.recall(model(), model().new_cache(1, 256), **settings)


def codec_of(codec: Any) -> Any:
    parts = codec.keys.group, codec.values.group, codec.residual, codec.coded(1000)
    return parts, repr(codec), codec.made_by, {type(n) for n in parts}


def spec(**given: Any) -> Any:
    found = LayerSpec(**{"num_kv_heads": 2, "head_dim": 8, **given})
    return [(x, type(x)) for x in (found.num_kv_heads, found.head_dim, found.v_dim, found.window)]


def rows(cache: Any) -> Any:
    return cache.max_seqs, cache.max_seq_len, cache.memory(), type(cache.max_seq_len)


def scheduled(left: Any = 9, **limits: Any) -> Any:
    running = [serve.Pending("a", 1, True), serve.Pending("b", left)]
    return serve.schedule(running, [serve.Pending("c", left)], **limits)


def guessed(**settings: Any) -> Any:
    drafter = speculation.PromptLookup(**settings)
    return drafter.draft([speculation.Text("a", [1, 2, 3, 4] * 3, most=5)])[0].tokens


def branched(tree: Any) -> Any:
    return rehearsed(100, tree=tree), speculation.DraftModel(model(), max_seqs=1, tree=tree).tree


def accepted(parents: Any) -> Any:
    p = np.full((len(parents) + 1, 4), 0.25)
    return speculation.accept_tree(p, [0, 1, 2], parents, p[1:], [0.5] * 3, [0.5] * 4)


def rehearsed(vocabulary: Any, **settings: Any) -> Any:
    drafter = speculation.Rehearsed({"a": [1, 2, 3, 4]}, 0.5, vocabulary, **settings)
    return drafter.draft([speculation.Text("a", [1], most=3)])[0].tokens


def removed(start: Any, stop: Any) -> Any:
    cache = model().new_cache(1, 8)
    cache.add("a")
    model().forward([1, 2, 3, 4, 5], cache, cache.plan(["a"], [5]))
    kvlib.remove_span(model(), cache, "a", start, stop)
    return cache.seq_len("a"), cache.read(1, "a")


ONE = [LayerSpec(1, 64)]
LLAMA, H100 = "llama-3.1-8b", "h100-sxm"

def each(owner, call, given, **goods) -> dict[str, tuple[Call, int]]:
    """Entries for arguments of one callable, by keyword; `given`: what it needs beside them."""
    return {
        f"{owner} {name}": (lambda n, name=name: call(**{**given, name: n}), good)
        for name, good in goods.items()
    }


# What is called, with which argument: a call with its value, and a good value.
INTEGERS: dict[str, tuple[Call, int]] = {
    # codecs
    "pack bits": (lambda n: codecs.pack(np.ones((2, 24), np.uint8), n), 4),
    "unpack bits": (lambda n: codecs.unpack(np.ones((2, 24), np.uint8), n, np.uint8), 4),
    # caches
    "LayerSpec window": (lambda n: (spec(window=n), attended(paged(window=n))), 5),
    "BlockPool num_blocks": (lambda n: paged(num_blocks=n).memory(), 100),
    "BlockPool block_size": (lambda n: (attended(paged(n)), paged(n).memory()), 100),
    "BlockPool.allocate count": (lambda n: pool_with(lambda p, _: p.allocate(n)), 2),
    "BlockPool.ref_count block": (lambda n: pool_with(lambda p, _: p.ref_count(n)), 3),
    "BlockPool.writable block": (lambda n: pool_with(lambda p, _: p.writable(n)), 3),
    "BlockPool.free blocks": (lambda n: pool_with(lambda p, _: p.free([n])), 3),
    "BlockPool.touch blocks": (lambda n: pool_with(lambda p, _: p.touch([n])), 3),
    "BlockPool.publish block": (lambda n: pool_with(lambda p, _: published(p, n, 1)), 3),
    "BlockPool.publish parent": (lambda n: pool_with(lambda p, _: published(p, 3, n)), 1),
    "BlockPool.publish tokens": (lambda n: pool_with(lambda p, _: published(p, 3, 1, [n, 8])), 7),
    "BlockPool.lookup tokens": (
        lambda n: pool_with(lambda p, _: (published(p, 3, 1), p.lookup([1, n, 7, 8]))), 2,
    ),
    "DenseCache max_seqs": (lambda n: rows(DenseCache(ONE, n, 9, xp=np)), 100),
    "DenseCache max_seq_len": (lambda n: rows(DenseCache(ONE, 3, n, xp=np)), 100),
    "QuantizedCache max_seqs": (lambda n: rows(QuantizedCache(ONE, "int8", n, 9, xp=np)), 100),
    "QuantizedCache max_seq_len": (lambda n: rows(QuantizedCache(ONE, "int8", 3, n, xp=np)), 100),
    "Rows max_seqs": (lambda n: caches.Rows(n, 9).max_seqs, 100),
    "Rows max_seq_len": (lambda n: caches.Rows(9, n).size, 100),
    "KNorm recent": (lambda n: caches.KNorm(recent=n), 100),
    "H2O recent": (lambda n: caches.H2O(recent=n), 100),
    "remove_span start": (lambda n: removed(n, 4), 2),
    "remove_span stop": (lambda n: removed(2, n), 4),
    "Window size": (lambda n: caches.Window(n).first(1000), 100),
    "Cache.add tokens": (lambda n: paged().add("a", [n, 1]), 100),
    "Cache.plan q_lens": (lambda n: planned(paged(), [n]), 7),
    "Cache.plan tokens": (lambda n: planned(paged(), [2], [n, 1]), 100),
    "Cache.plan parents": (planned_tree, 1),
    "Cache.keep path": (kept, 2),
    "Cache.truncate length": (lambda n: truncated(paged(), n), 3),
    "Cache.append layer": (append_layer, 1),
    "Cache.run layer": (on_step(lambda c, s, n: c.run(n, drawn(3, 2, 64), s)), 0),
    "Cache.read layer": (on_step(lambda c, s, n: c.read(n, "a")), 0),
    "Cache.check_room length": (lambda n: paged().check_room("a", n), 30),
    "PagedCache.blocks layer": (on_step(lambda c, s, n: c.blocks("a", n)), 0),
    "Step.last counts": (on_step(lambda c, s, n: (s.last([n]).q_lens, repr(s.last([n])))), 2),
    "run_cascade layer": (on_step(lambda c, s, n: caches.run_cascade(c, n, drawn(3, 2, 64), s)), 0),
    "cross_step q_lens": (on_step(lambda c, s, n: caches.cross_step(c, ["a"], [n]).seq_ids), 3),
    "run_alone layer": (on_step(lambda c, s, n: caches.run_alone(c, n, drawn(3, 2, 64), s)), 0),
    "block_table layer": (on_step(lambda c, s, n: layouts.block_table(c, ["a"], n)), 0),
    "slot_mapping layer": (on_step(lambda c, s, n: layouts.slot_mapping(c, s, n)), 0),
    "to_dense layer": (on_step(lambda c, s, n: layouts.to_dense(c, n, ["a"])), 0),
    "to_csr seq_lens": (
        lambda n: layouts.to_csr(np.array([[3, 1], [7, 8]], np.int32), [n, 8], 4), 7,
    ),
    "to_csr block_size": (table_of, 100),
    "from_csr block_size": (lambda n: back(block_size=n), 100),
    "from_csr max_blocks": (lambda n: back(max_blocks=n), 5),
    "from_dense lengths": (
        lambda n: layouts.from_dense(
            paged(), ["a"], [(drawn(1, 1, 8, 64), drawn(1, 1, 8, 64))], [n],
        ), 7,
    ),
    "from_dense tokens": (
        lambda n: layouts.from_dense(
            paged(), ["a"], [(drawn(1, 1, 8, 64), drawn(1, 1, 8, 64))], [2], [[n, 1]],
        ), 100,
    ),
    # attention
    "attend window": (lambda n: attention(kvlib.attend, window=n), 5),
    "attend_causal window": (lambda n: attention(kvlib.attend_causal, window=n), 5),
    # codecs
    "int8 residual": (lambda n: codec_of(codecs.int8(n)), 100),
    "PerChannel bits": (lambda n: codecs.PerChannel(n, 8).bits, 4),
    "PerChannel size": (lambda n: codecs.PerChannel(4, n).group, 100),
    "PerToken bits": (lambda n: codecs.PerToken(n, 8).bits, 4),
    "PerToken size": (lambda n: codecs.PerToken(4, n).size, 100),
    "Codec residual": (
        lambda n: codec_of(codecs.Codec("own", codecs.Int8(), codecs.Int8(), n)), 100,
    ),
    "Codec.coded length": (lambda n: codecs.kivi(4, 32, 100).coded(n), 120),
    # kernels
    "decode_attention lens": (lambda n: kernel_decode(lens=[n, 16]), 13),
    "rms_norm_backward groups": (
        lambda n: norm_backward(kernels.rms_norm_backward, kernels.rms_norm_forward, n), 2,
    ),
    "layer_norm_backward groups": (
        lambda n: norm_backward(kernels.layer_norm_backward, kernels.layer_norm_forward, n), 2,
    ),
    "softmax_topk k": (lambda n: kernels.softmax_topk(drawn(3, 64), n), 5),
    "softmax_topk splits": (lambda n: kernels.softmax_topk(drawn(3, 64), 5, splits=n), 2),
    "sample_tokens streams": (lambda n: kernel_sample(streams=[n, 1, 2, 3]), 100),
    # from logits to tokens
    "sample top_k": (
        lambda n: kvlib.sample(drawn(4, 64), top_k=n, rngs=np.random.default_rng(0)), 5,
    ),
    "probabilities top_k": (lambda n: serve.probabilities(drawn(4, 64), top_k=n), 5),
    "check_settings top_k": (lambda n: serve.check_settings(1.0, n, None), 5),
    "rng_at seed": (lambda n: serve.rng_at(n, 3).random(), 100),
    "rng_at position": (lambda n: serve.rng_at(3, n).random(), 100),
    "generate seeds": (lambda n: generated(seed=[n]), 100),
    "generate stop_tokens": (lambda n: generated(stop_tokens=[n]), 100),
    "generate prompts": (lambda n: kvlib.generate(model(), [[n, 112]], max_new_tokens=2), 109),
    "stream stop_tokens": (lambda n: streamed(stop_tokens=[n]), 100),
    "generate gamma": (lambda n: generated(gamma=n, drafter=speculation.PromptLookup()), 2),
    "stream gamma": (lambda n: streamed(gamma=n, drafter=speculation.PromptLookup()), 2),
    # serving
    "Scheduler gamma": (lambda n: scheduler(gamma=n, drafter=speculation.PromptLookup()), 2),
    "PromptLookup shortest": (lambda n: guessed(longest=300, shortest=n), 2),
    "Rehearsed vocabulary": (lambda n: rehearsed(n), 100),
    "branches counts": (lambda n: speculation.branches(2, n), 3),
    "DraftModel tree": (lambda n: branched([-1, -1, n]), 1),
    "accept_tree parents": (lambda n: accepted([-1, -1, n]), 1),
    "expected_tree_tokens tree": (
        lambda n: speculation.expected_tree_tokens([-1, -1, n], [0.5, 0.2]), 1,
    ),
    "best_tree guesses": (lambda n: speculation.best_tree([0.6, 0.3], n), 9),
    "best_tree levels": (lambda n: speculation.best_tree([0.6, 0.3], 20, n), 3),
    "lower_layers layers": (lambda n: len(speculation.lower_layers(model(), n).layer_specs), 1),
    "DraftModel max_seqs": (lambda n: rows(speculation.DraftModel(model(), max_seqs=n).cache), 2),
    "expected_tokens gamma": (lambda n: speculation.expected_tokens(0.5, n), 100),
    "checking_time gamma": (lambda n: speculation.checking_time(n, 8, 295.0), 100),
    "checking_time batch": (lambda n: speculation.checking_time(7, n, 295.0), 100),
    "speed_up gamma": (lambda n: speculation.speed_up(0.5, n, 0.1), 100),
    "best_gamma most": (lambda n: speculation.best_gamma(0.9, 0.0, n), 100),
    "adaptive most": (lambda n: speculation.adaptive(n)(serve.Request("a", [1], lately=0.99)), 100),
    "rng_at stream": (lambda n: float(serve.rng_at(7, 3, n).random()), 1),
    "Scheduler stop_tokens": (lambda n: scheduler(stop_tokens=[n]), 100),
    "Scheduler.add prompt": (lambda n: kvlib.generate(model(), [[n, 105]], max_new_tokens=2), 112),
    "Pending left": (lambda n: scheduled(left=n, budget=5), 4),
    # the model
    "Decoder.forward tokens": (lambda n: forward(tokens=[n, 109]), 105),
    "Decoder.check tokens": (lambda n: forward([n, 109], call=model().check), 105),
    "compile_step max_batch": (lambda n: compiled(max_batch=n).max_batch, 3),
    "Decoder.forward rows": (lambda n: forward(rows=[n]), 1),
    "Decoder.new_cache max_seqs": (lambda n: rows(model().new_cache(n, 9)), 3),
    "Decoder.new_cache max_seq_len": (lambda n: rows(model().new_cache(1, n)), 100),
    "random_weights seed": (lambda n: random_weights(model().config, n, xp=np)["norm.weight"], 100),
    # quality
    "quality.teacher_forced chunk": (
        lambda n: quality.teacher_forced(model(), model().new_cache(1, 16), [105] * 5, n), 4,
    ),
    "quality.teacher_forced tokens": (
        lambda n: quality.teacher_forced(model(), model().new_cache(1, 16), [n, 105]), 100,
    ),
    # costs
    "costs.max_context step": (lambda n: costs.max_context("gemma-3-27b", H100, step=n), 16),
    "Work.floor gpus": (lambda n: costs.decode(LLAMA, 1, 100).floor(H100, n), 2),
    "Tokens value": (lambda n: costs.Tokens(n), 100),
    **each("LayerSpec", spec, {}, num_kv_heads=2, head_dim=100, v_head_dim=100),
    **each("Sinks", caches.Sinks, dict(first_tokens=9, recent=9),
           first_tokens=100, recent=100, every=100),
    **each("Quest", caches.Quest, dict(budget=64), budget=100, dense_layers=100),
    **each("Scored", partial(caches.Scored, caches.KNorm(recent=4)), dict(budget=9),
           budget=100, every=100),
    **each("Tova", caches.Tova, {}, recent=100, queries=100),
    **each("SnapKV", caches.SnapKV, {}, window=100, kernel=101),
    **each("ExpectedAttention", partial(caches.ExpectedAttention, (1.0,)), {},
           future=100, sinks=100, recent=100),
    **each("pyramid", caches.pyramid, dict(budget=100, layers=4),
           budget=100, layers=5, beta=20, recent=8),
    **each("attend_tiled", partial(attention, kvlib.attention.attend_tiled), {}, window=5, tile=7),
    **each("int8_per_channel", lambda **x: codec_of(codecs.int8_per_channel(**x)), dict(group=8),
           group=100, residual=100),
    **each("kivi", lambda **x: codec_of(codecs.kivi(**x)), dict(bits=4, group=8),
           bits=4, group=100, residual=100),
    **each("sample_tokens", kernel_sample, {}, top_k=5, step=100, seeds=100),
    **each("decode_attention", kernel_decode, {}, window=5, max_len=16, splits=2),
    **each("prefill_attention", kernel_prefill, {}, window=5, max_new=6),
    **each("generate", generated, {}, max_new_tokens=3, top_k=5, seed=100, prefill_chunk=100),
    **each("stream", streamed, {}, max_new_tokens=3, top_k=5, seed=100, prefill_chunk=7),
    **each("Scheduler.add", submitted, {}, max_new_tokens=3, top_k=5, seed=100),
    **each("Scheduler", scheduler, {}, budget=2, prefill_chunk=2, max_prefills=2),
    **each("schedule", scheduled, {}, budget=8, prefill_chunk=4, max_prefills=2),
    **each("PromptLookup", guessed, {}, longest=4, places=2),
    **each("quality.loss", loss, {}, window=7, chunk=4),
    **each("quality.recall", recall, {},
           trials=1, distance=24, names=2, chunk=50, seed=100, lead=64),
    **each("costs.decode", partial(costs.decode, LLAMA), dict(batch=2, context=120),
           batch=100, context=100, shared=100, budget=20),
    **each("costs.prefill", partial(costs.prefill, LLAMA), dict(batch=1, prompt=100),
           batch=100, prompt=100),
    **each("costs.uncached", partial(costs.uncached, LLAMA), dict(prompt=10, new=10),
           prompt=100, new=100),
    **each("costs.fit", partial(costs.fit, LLAMA, H100), dict(batch=2, context=100),
           batch=100, context=100, gpus=2, block_size=16, step=16, budget=16),
    **each("costs.max_context", partial(costs.max_context, LLAMA, H100), {},
           batch=100, gpus=2, block_size=16, budget=16),
    **each("costs.gpus_needed", partial(costs.gpus_needed, LLAMA, H100),
           dict(batch=1, context=1000), batch=100, context=100, block_size=16, step=16, budget=16),
    **each("costs.kv_on_one", partial(costs.kv_on_one, LLAMA, "tensor"),
           dict(devices=4, batch=3, context=100), devices=4, batch=100, context=100),
    **each("ModelSpec.kv_bytes", costs.MODELS[LLAMA].kv_bytes, dict(batch=1, seq=100),
           batch=100, seq=100, block_size=16, step=16, budget=16),
}  # fmt: skip


# What kvlib itself passes: to the methods of parts that can be custom (a codec, a rule, an
# allocator, an index), and to records of what it found.
PARTS = (
    *("BFloat16", "Fp8", "Int8", "PerChannel", "PerToken", "Plain", "TensorCodec"),
    *("KeepAll", "Retention", "Scored", "Sinks", "Window"),
    *("Blocks", "Rows", "HashIndex", "RadixIndex"),
)
RECORDS = (
    *("CachedSequence", "Event", "Field", "Memory", "Meter", "ModelConfig", "Recall"),
    *("Request", "RopeConfig"), *("Seen", "Step"),
)
HOOKS = (
    *("attend", "attend_one", "num_paged_in", "fields", "paged_lens", "record"),
    *("observe_queries", "pages", "pieces_of", "placement", "store", "stored_lens", "tables"),
    "waits_for",
)
CACHES = ("DenseCache", "PagedCache", "QuantizedCache", "StoredCache")


def apart(name: str, argument: str) -> bool:
    """Whether a user does not hand this argument in, or it is checked where it is listed."""
    owner, _, method = name.partition(".")
    if owner in CACHES and method:  # the methods of all caches are listed as Cache's
        return apart(f"Cache.{method}", argument) or f"Cache.{method} {argument}" in INTEGERS
    starts_a_program = name == "run_cuda"  # test_what_run_cuda_refuses
    part = owner in PARTS and (method or argument == "hash_block")
    return bool(part or starts_a_program or owner in RECORDS or method in HOOKS)
