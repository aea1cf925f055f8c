"""Eviction by score, and what it saves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kvbook.museum import guards_forgetting, guards_stores, looks_forgetting
from kvbook.museum.exhibit import Exhibit, collector
from kvbook.museum.mutation import Call
from kvbook.museum.positions import starting_at, starts
from kvlib.arrays import Array, namespace
from kvlib.caches import Cache, LayerSpec, Seen, Step
from kvlib.caches.allocation.blocks import Blocks
from kvlib.config.shape import Shape
from kvlib.costs.spec import LayerGroup
from kvlib.model.grouped_query import GroupedQuery

CORNER = 8  # queries

EXHIBITS: list[Exhibit] = []
shipped = collector("forgetting", EXHIBITS)


@shipped(
    "kvlib.caches.retention.scored",
    "Seen.probabilities",
    cite="KVCache-Factory #49 (fixed in 9f9aa2e)",
    caught_by=guards_forgetting.the_future_changes_no_score,
)
def scores_see_the_future(probabilities: Call, seen: Seen) -> Array:
    """The causal mask covered only the newest queries, so tokens collected attention from queries
    before them."""
    p: Array = probabilities(seen)
    xp, older = namespace(p), max(0, seen.q.shape[0] - CORNER)
    leak: Any = probabilities(replace(seen, slot=seen.k.shape[1]))  # as if every key came first
    leak = leak / xp.sum(leak, axis=-1, keepdims=True)
    return xp.concat([leak[:, :, :older, :], p[:, :, older:, :]], axis=2)


@shipped(
    "kvlib.model.grouped_query",
    "GroupedQuery.__init__",
    cite="KVCache-Factory #49, SnapKV #16",
    caught_by=guards_forgetting.a_budget_bounds_the_bytes,
    look=looks_forgetting.bytes_under_a_budget,
)
def one_set_per_query_head(init: Call, mixer: GroupedQuery, *config: Any) -> None:
    """Keys were repeated for each query head before they were stored, so the cache took G times the
    bytes."""
    init(mixer, *config)
    heads, project = mixer.num_qo_heads, mixer.project
    times = heads // mixer.num_kv_heads

    def repeated(h: Array, angles: Any) -> Any:
        q, k, v = project(h, angles)
        return q, *(namespace(x).repeat(x, times, axis=1) for x in (k, v))

    mixer.project = repeated  # type: ignore[method-assign]
    mixer.spec = LayerSpec(heads, mixer.head_dim)


@shipped(
    "kvlib.caches.allocation.blocks",
    "Blocks.free",
    cite="FMInference/H2O #6, #12, h2o_hf/README.md",
    caught_by=guards_forgetting.a_budget_bounds_the_bytes,
    look=looks_forgetting.bytes_under_a_budget,
    lines=("return  # without self.pool.free(pages)", "self.pool.free(pages)"),
)
def evicted_blocks_stay_held(free: Call, blocks: Blocks, pages: Sequence[int]) -> None:
    """Evicted tokens were hidden by a mask and stayed in memory."""
    return  # without self.pool.free(pages)


@shipped(
    "kvlib.caches.protocol",
    "Cache.plan",
    cite="rajveer43/VeloxQuant-MLX #171, kvpress #16",
    caught_by=guards_forgetting.the_next_token_stands_at_the_end_of_the_text,
)
def positions_count_what_is_kept(plan: Call, cache: Cache, *asked: Any) -> Step:
    """After an eviction, the next position was the number of cached tokens, which is too small."""
    step: Step = plan(cache, *asked)
    gone = [state.tables[0].freed for state in step.states]
    return starting_at([a - n for a, n in zip(starts(step), gone, strict=True)], step)


@shipped(
    "kvlib.costs.spec",
    "layer_groups",
    cite="alvarobartt/hf-mem #60 (fixed in #61, #70)",
    caught_by=guards_stores.the_bill_is_what_arrays_weigh,
)
def bill_leaves_out_windows(layer_groups: Call, shape: Shape) -> list[LayerGroup]:
    """A calculator counted only the layers without a window."""
    return [g for g in layer_groups(shape) if not g.window]
