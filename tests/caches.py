"""Every cache that the differential test runs. **A new cache joins by one line in CACHES, a new
codec by one line in CODECS**, one that evicts or grows without end by one line in ON_TERMS.

A factory takes (layers, xp, dtype) and returns a cache with room for MAX_SEQS requests of
MAX_SEQ_LEN tokens each, whose arrays are filled with NaN before the first use.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kvlib import Cache, DenseCache, LayerSpec
from kvlib.caches import BlockPool, PagedCache, QuantizedCache, Sinks, layer_groups
from kvlib.caches.allocation.table import State, Table
from kvlib.codecs import PLAIN, Codec, bfloat16, fp8, int8, int8_per_channel, kivi
from kvlib.testing.memory import poison_all

MAX_SEQS, MAX_SEQ_LEN = 4, 40
CODECS = (
    int8(), int8(residual=5), int8_per_channel(4), kivi(4, group=8, residual=3),
    kivi(2, group=4, residual=8), kivi(4, group=32, residual=0), fp8("e4m3"), fp8("e5m2"),
    bfloat16(),
)


class ReadBack(DenseCache):
    """A dense cache with the protocol's own ``attend``: attention over ``read``."""

    attend = Cache.attend


def paged(block_size: int, requests: float = MAX_SEQS, codec: Codec | None = None) -> "Factory":
    """A paged cache with just enough blocks of whole groups for `requests` of full length."""
    block_size = whole_groups(block_size, codec)
    blocks = int(requests * -(-MAX_SEQ_LEN // block_size))
    return lambda layers, xp, dtype: PagedCache(
        layers,
        BlockPool(blocks * len(layer_groups(layers)), block_size),
        codec=codec, dtype=dtype, xp=xp,
    )


def quantized(codec: Codec) -> "Factory":
    """Rows of codes, of whole groups of the tokens that the codec encodes together."""
    length = whole_groups(MAX_SEQ_LEN, codec)
    return lambda layers, xp, dtype: QuantizedCache(
        layers, codec, MAX_SEQS, length, dtype=dtype, xp=xp
    )


def whole_groups(tokens: int, codec: Codec | None) -> int:
    """So many tokens, rounded up to whole groups of those that the codec encodes together."""
    group = 1 if codec is None else codec.group
    return -(-tokens // group) * group


def of_every_codec(where: str, make: Callable[[Codec], "Factory"]) -> dict[str, "Factory"]:
    """A cache for each of CODECS, by the codec's name and residual."""
    found = {f"{c.name}, residual {c.residual}, {where}": make(c) for c in CODECS}
    assert len(found) == len(CODECS), "two of CODECS share their name and their residual"
    return found


Factory = Callable[[Sequence[LayerSpec], Any, Any], Cache]

CACHES: dict[str, Factory] = {
    "dense": lambda layers, xp, dtype: DenseCache(
        layers, MAX_SEQS, MAX_SEQ_LEN, dtype=dtype, xp=xp
    ),
    "attention over read": lambda layers, xp, dtype: ReadBack(
        layers, MAX_SEQS, MAX_SEQ_LEN, dtype=dtype, xp=xp
    ),
    "paged, blocks of 1": paged(1),
    "paged, blocks of 4": paged(4),
    "paged, blocks of 64": paged(64),
    "paged, a small pool": paged(3, requests=1.5),
    **of_every_codec("rows", quantized),
    **of_every_codec("blocks of 8", lambda codec: paged(8, codec=codec)),
    "int4, blocks of 64": paged(64, codec=kivi(4, 8, 3)),
}


# Caches of other terms than room for MAX_SEQS requests of MAX_SEQ_LEN tokens, all of them kept: a
# factory, and what the kit's `Terms` say of them. The differential test alone plays them.
ON_TERMS: dict[str, tuple[Factory, dict[str, Any]]] = {
    "dense, 2 sinks and 8 recent": (
        lambda layers, xp, dtype: DenseCache(
            layers, MAX_SEQS, MAX_SEQ_LEN, retention=Sinks(2, 8), dtype=dtype, xp=xp
        ),
        {"keeps": lambda length: [p for p in range(length) if p < 2 or p > length - 8]},
    ),
    "blocks of a pool without end": (paged(4, requests=40), {"max_seq_len": None}),
}


def factory(name: str) -> Factory:
    return CACHES[name] if name in CACHES else ON_TERMS[name][0]


def coded(name: str) -> bool:
    """Whether the cache of that name writes codes, and not numbers as they come."""
    cache = factory(name)(fitting(name, [LayerSpec(1, 8)]), np, np.float32)
    return not getattr(cache, "codec", PLAIN).plain


def takes(name: str, layers: Sequence[LayerSpec]) -> bool:
    """Whether the cache of that name can hold such layers: some codecs want longer vectors."""
    try:
        factory(name)([replace(x, sinks=None) for x in layers], np, np.float32)
    except ValueError:
        return False
    return True


def fitting(name: str, layers: Sequence[LayerSpec]) -> list[LayerSpec]:
    """The layers, with vectors 2, 4, 8 or 16 times as long if the cache of that name needs them."""
    for n in (1, 2, 4, 8, 16):
        longer = [
            replace(x, head_dim=n * x.head_dim, v_head_dim=x.v_head_dim and n * x.v_head_dim)
            for x in layers
        ]
        if takes(name, longer):
            return longer
    raise ValueError(f"{name} takes no vectors of {layers} or up to 16 times as long")


CODED = [name for name in CACHES if coded(name)]


def build(name: str, layers: Sequence[LayerSpec], xp: Any, dtype: Any) -> Cache:
    """The cache of that name, every floating number in it NaN."""
    cache = factory(name)(layers, xp, dtype)
    poison_all(cache)
    return cache


def give(cache: Any, step: Any, rng: Any = 0, layers: Any = None) -> list[tuple[Any, Any]]:
    """Append random keys and values to some layers, or all, and return them; rng: or a seed."""
    rng, pairs = np.random.default_rng(rng), []
    for layer in range(len(cache.layers)) if layers is None else layers:
        spec = cache.layers[layer]
        k, v = (
            rng.standard_normal((step.num_tokens, spec.num_kv_heads, dim)).astype(np.float32)
            for dim in (spec.head_dim, spec.v_dim)
        )
        pairs.append((k, None if spec.v_from_k else v))
        cache.append(layer, *(x if x is None else cache.xp.asarray(x) for x in pairs[-1]), step)
    return pairs


def feed(cache: Any, names: Any, q_lens: Any, rng: Any = 0, tokens: Any = None) -> tuple[Any, Any]:
    """Plan a step of random keys and values; the step, and what each layer was given."""
    step = cache.plan(list(names), q_lens, tokens)
    return step, give(cache, step, rng)


def snapshot(cache: Cache) -> Any:
    """All that a refused call must leave alone: arrays, lengths, slots, steps, and every order."""
    arrays = [np.array(x, copy=True).tobytes() for x in cache.storage()]
    requests = [
        (
            name,
            r,
            (r.name, r.start, r.gap, r.plans, r.tree),
            r.length,
            type(r.length),
            _state(r.state),
            r.ticket,
            None if r.ticket is None else (r.ticket.live, frozenset(r.ticket.appended)),
        )
        for name, r in cache._sequences.items()
    ]
    rest = {k: repr(v) for k, v in vars(cache).items() if k in ("dtype", "layers")}
    allocator = getattr(cache, "allocator", None)
    rest["rows"] = [repr(getattr(allocator, name, None)) for name in ("_free", "_next_unused")]
    if isinstance(cache, PagedCache):
        pool = cache.pool
        held = [(pool.ref_count(b), b in pool.index) for b in range(pool.num_blocks)]
        rest["pool"] = repr((pool, held, pool._next_unused, pool._free_blank, pool._free_published))
    return arrays, requests, rest


def refused(cache, error, words, call) -> pytest.ExceptionInfo[Any]:
    """Check that a call raises the error and changes nothing of the cache."""
    before = snapshot(cache)
    with pytest.raises(error, match=words) as raised:
        call()
    assert snapshot(cache) == before, "a refused call changed the cache"
    return raised


def _state(state: Any) -> Any:
    """Where a request is stored, as plain values."""
    if isinstance(state, State):
        tables = [_state(table) for table in state.tables]
        return tables, {x: repr(getattr(state, x)) for x in state.__slots__ if x[:2] != "ta"}
    if isinstance(state, Table):
        return {x: repr(getattr(state, x)) for x in state.__slots__ if x != "own"}
    return state
