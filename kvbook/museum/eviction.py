"""Room six, continued: eviction by score, and what it saves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kvbook.museum import guards_forgetting, guards_stores, looks_forgetting
from kvbook.museum.exhibit import Exhibit
from kvbook.museum.mutation import Call
from kvbook.museum.positions import starting_at, starts
from kvlib.arrays import Array, namespace
from kvlib.caches import Cache, LayerSpec, Seen, Step
from kvlib.caches.allocation.blocks import Blocks
from kvlib.config.shape import Shape
from kvlib.costs.spec import LayerGroup
from kvlib.model.grouped_query import GroupedQuery

CORNER = 8  # queries


def masked_in_the_corner(probabilities: Call, seen: Seen) -> Array:
    p: Array = probabilities(seen)
    xp, older = namespace(p), max(0, seen.q.shape[0] - CORNER)
    leak: Any = probabilities(replace(seen, slot=seen.k.shape[1]))  # as if every key came first
    leak = leak / xp.sum(leak, axis=-1, keepdims=True)
    return xp.concat([leak[:, :, :older, :], p[:, :, older:, :]], axis=2)


def repeated_before_they_are_stored(init: Call, mixer: GroupedQuery, *config: Any) -> None:
    init(mixer, *config)
    heads, project = mixer.num_qo_heads, mixer.project
    times = heads // mixer.num_kv_heads

    def repeated(h: Array, angles: Any) -> Any:
        q, k, v = project(h, angles)
        return q, *(namespace(x).repeat(x, times, axis=1) for x in (k, v))

    mixer.project = repeated  # type: ignore[method-assign]
    mixer.spec = LayerSpec(heads, mixer.head_dim)


def still_held(free: Call, blocks: Blocks, pages: Sequence[int]) -> None:
    pass  # they keep their holder, and nobody else gets them


def number_of_what_is_kept(plan: Call, cache: Cache, *asked: Any) -> Step:
    step: Step = plan(cache, *asked)
    gone = [state.tables[0].freed for state in step.states]
    return starting_at([a - n for a, n in zip(starts(step), gone, strict=True)], step)


def full_layers_only(layer_groups: Call, shape: Shape) -> list[LayerGroup]:
    return [g for g in layer_groups(shape) if not g.window]


EXHIBITS = (
    Exhibit(
        "scores_see_the_future",
        "kvlib.caches.retention.scored",
        "Seen.probabilities",
        masked_in_the_corner,
        room="forgetting",
        cite="KVCache-Factory #49 (mended in 9f9aa2e)",
        happened="H2O adds up the attention that each token gets. The causal mask covered only the "
        "last w queries, so all earlier queries gave weight to tokens after them.",
        look=looks_forgetting.what_h2o_keeps,
        caught_by=guards_forgetting.the_future_changes_no_score,
    ),
    Exhibit(
        "one_set_per_query_head",
        "kvlib.model.grouped_query",
        "GroupedQuery.__init__",
        repeated_before_they_are_stored,
        room="forgetting",
        cite="KVCache-Factory #49, SnapKV #16",
        happened="Keys and values were repeated for each query head before they were stored, so "
        "each query head chose its own. With G query heads per kv head, the cache takes G times "
        "the bytes.",
        look=looks_forgetting.bytes_under_a_budget,
        caught_by=guards_forgetting.a_budget_bounds_the_bytes,
    ),
    Exhibit(
        "evicted_blocks_stay_held",
        "kvlib.caches.allocation.blocks",
        "Blocks.free",
        still_held,
        room="forgetting",
        cite="FMInference/H2O #6, h2o_hf/README.md",
        happened="H2O's first code hid evicted tokens behind a mask and kept them in memory, so a "
        "user measured no saving. Here the tokens go, but their blocks are not given back.",
        look=looks_forgetting.bytes_under_a_budget,
        caught_by=guards_forgetting.a_budget_bounds_the_bytes,
    ),
    Exhibit(
        "positions_count_what_is_kept",
        "kvlib.caches.protocol",
        "Cache.plan",
        number_of_what_is_kept,
        room="forgetting",
        cite="rajveer43/VeloxQuant-MLX #171, kvpress #16",
        happened="The next token's position was read from the cache, as the number of tokens in "
        "it. After an eviction this number is too small, because the keys that stay were "
        "rotated by their positions in the text.",
        look=looks_forgetting.after_an_eviction,
        caught_by=guards_forgetting.the_next_token_stands_at_the_end_of_the_text,
    ),
    Exhibit(
        "bill_leaves_out_windows",
        "kvlib.costs.spec",
        "layer_groups",
        full_layers_only,
        room="forgetting",
        cite="alvarobartt/hf-mem #60 (mended in #61, #70)",
        happened="The calculator counted only layers without a window. A first repair "
        "also counted the layers with a window, up to their window, which is what they need. A "
        "second repair counts what engines reserve for them.",
        look=looks_forgetting.the_bill_of_windows,
        caught_by=guards_stores.the_bill_is_what_arrays_weigh,
    ),
)
