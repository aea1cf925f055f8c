"""How a request's pages are cut into the pieces that attention reads, and what each piece costs."""

import numpy as np
import oracle
import pytest
from schedules import close

from kvlib import BlockPool, LayerSpec, Meter, PagedCache, QuantizedCache
from kvlib.attention.pieces import cut
from kvlib.codecs import PLAIN, Codec, Int8, PerChannel, PerToken, Plain, fp8, int8, kivi

F16, F32 = np.float16, np.float32
SPEC = LayerSpec(2, 16, 8)


def pieces(size, end, codec=PLAIN, dtype=F32, first=0):
    """Of a request of `end` tokens whose pages are 0, 1, 2, ..."""
    pages = -(-end // size)
    coded = codec.coded(end) if codec.waits else end
    together = codec.group if dtype == F16 or not codec.plain else 0
    sizes = SPEC.num_kv_heads, size, together
    return cut(np, range(pages), np.arange(pages), *sizes, first=first, last=coded, end=end)


def groups_of(tokens):
    return Codec("grouped", PerChannel(8, tokens), PerToken(8, 8))


CUTS = {
    "small pages, gathered": (dict(size=16, end=1000), [256, 512, 768, 1000]),
    "as many as fill no more": (dict(size=48, end=500), [240, 480, 500]),
    "pages as they lie": (dict(size=64, end=200), [64, 128, 192, 200]),
    "large pages as they lie": (dict(size=1024, end=1500), [1024, 1500]),
    "narrow ones are widened": (dict(size=1024, end=700, dtype=F16), [256, 512, 700]),
    "codes are decoded": (dict(size=1024, end=600, codec=int8()), [256, 512, 600]),
    "codes that are called plain": (
        dict(size=1024, end=600, codec=Codec("plain", Int8(), Int8())), [256, 512, 600]
    ),
    "numbers as they lie": (
        dict(size=1024, end=1500, codec=Codec("mine", Plain(), Plain())), [1024, 1500]
    ),
    "not over the end of a page": (dict(size=384, end=700, codec=int8()), [256, 384, 640, 700]),
    "whole groups": (dict(size=480, end=528, codec=groups_of(48)), [240, 480, 528]),
    "groups longer than a piece": (dict(size=640, end=640, codec=groups_of(320)), [320, 640]),
    "one token a page": (dict(size=1, end=300), [256, 300]),
    "the newest apart": (dict(size=16, end=300, codec=kivi(4, 8, 5)), [256, 288, 300]),
    "all of them new": (dict(size=16, end=9, codec=kivi(4, 8, 5)), [9]),
}  # fmt: skip


@pytest.mark.parametrize("request_, ends", CUTS.values(), ids=CUTS)
def test_where_pieces_end(request_, ends):
    assert pieces(**request_).spans == list(zip([0, *ends[:-1]], ends))


@pytest.mark.parametrize("size, begin", [(16, 512), (48, 480), (64, 576), (1024, 0)])
def test_pieces_begin_where_the_window_does(size, begin):
    spans = pieces(size, 700, first=600).spans
    assert spans[0][0] == begin and spans[-1][1] == 700


@pytest.mark.parametrize("size", [8, 64, 384])
@pytest.mark.parametrize(
    "codec", [PLAIN, int8(), int8(7), kivi(4, 8, 5), fp8()], ids=lambda c: f"{c.name} {c.residual}"
)
def test_reading_costs_what_is_stored(size, codec):
    """Bytes of codes and scales, and of the newest tokens as they came; values only if they are."""
    layers = [SPEC, LayerSpec(1, 16, 8, v_from_k=True)]
    for cache in (
        PagedCache(layers, BlockPool(768 // size, size), codec=codec, xp=np),
        QuantizedCache(layers, codec, 1, 768, xp=np),
    ):
        cache.add("a")
        rng, done = np.random.default_rng(0), 0
        for n in (500, 1, 6):
            step, done = cache.plan(["a"], [n]), done + n
            for layer, spec in enumerate(layers):
                k, v, q = (
                    rng.standard_normal((n, heads, dim)).astype(F32)
                    for heads, dim in (
                        (spec.num_kv_heads, 16), (spec.num_kv_heads, spec.v_dim), (4, 16),
                    )
                )
                cache.append(layer, k, None if spec.v_from_k else v, step)
                if n == 500:
                    continue
                with Meter() as meter:
                    o = cache.run(layer, q, step)
                k, v, at = cache.read(layer, "a")
                close(o, oracle.attention(q, k, v, step.positions, at)[0], f"layer {layer}")
                coded = codec.coded(done) if codec.waits else done
                needed = (done - coded) * spec.num_kv_heads * (16 if layer else 16 + 8) * 4
                for part, dim in ((codec.keys, 16), (codec.values, 8))[: 2 - layer]:
                    fields = part.encode(np.ones((spec.num_kv_heads, coded, dim), F32))
                    needed += sum(x.nbytes for x in fields.values())
                assert meter.by_label["attention"].read == needed
