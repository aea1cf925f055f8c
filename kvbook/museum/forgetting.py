"""Windows, learned sinks, ropes by layer, keys that are moved, and eviction by score."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from kvbook.museum import guards_forgetting, guards_stores, looks
from kvbook.museum.exhibit import Exhibit, collector
from kvbook.museum.mutation import Call
from kvbook.museum.positions import starting_at, starts
from kvlib.arrays import Array, namespace
from kvlib.caches import Cache, LayerSpec, Seen, Step
from kvlib.caches.allocation.blocks import Blocks
from kvlib.config.rope import RopeConfig
from kvlib.config.shape import Shape
from kvlib.costs.spec import LayerGroup
from kvlib.model import Decoder, ModelConfig
from kvlib.model.grouped_query import GroupedQuery
from kvlib.model.rope import turn

CAUSAL = "kvlib.attention.causal"
CORNER = 8  # queries

EXHIBITS: list[Exhibit] = []
shipped = collector("forgetting", EXHIBITS)


@shipped(
    CAUSAL,
    "attend_causal",
    cite="FMInference/H2O #33, transformers 5.23.0",
    caught_by=guards_forgetting.windows_of_every_size,
    look=looks.a_window_of_one,
    lines=(
        "x[:, :n, :][:, -window + 1 :, :]",
        "low = 0 if window is None else max(0, length - window)",
    ),
)
def window_of_one_keeps_all(
    attend: Call, q: Array, k: Array, v: Array, window: int | None = None, **settings: Any
) -> Any:
    """keys[-W + 1:] keeps W - 1 tokens, but for W = 1 it is keys[0:] and keeps them all."""
    if q.shape[0] == 1 and window is not None:
        xp, n = namespace(k), k.shape[1] - 1  # older tokens, and the query's own
        k, v = (xp.concat([x[:, :n, :][:, -window + 1 :, :], x[:, n:, :]], axis=1) for x in (k, v))
        window = None  # all that remains is in the window
    return attend(q, k, v, window=window, **settings)


@shipped(
    CAUSAL,
    "attend_causal",
    cite="sglang #11634, vllm-metal #550",
    caught_by=guards_forgetting.a_sink_takes_its_share_in_every_form,
    look=looks.with_learned_sinks,
    lines=('settings["sinks"] = None', "o, lse = with_sink(xp, o, lse, sinks)"),
)
def sink_missing_in_decode(attend: Call, q: Array, k: Array, v: Array, **settings: Any) -> Any:
    """One of several kernels left out the learned sink that takes a share of each query's
    attention."""
    if q.shape[0] == 1:
        settings["sinks"] = None
    return attend(q, k, v, **settings)


@shipped(
    "kvlib.model.config",
    "ModelConfig.rope_of",
    cite="antonellof/ferrox #39, lablup/mlxcel #1340",
    caught_by=guards_forgetting.every_layer_turns_by_its_own_rope,
)
def one_rope_for_all_layers(rope_of: Call, config: ModelConfig, layer: int) -> RopeConfig | None:
    """Layers with a window were rotated with the angles that only full layers should use, or the
    reverse."""
    return config.rope


@shipped(
    "kvlib.model.rope",
    "turn",
    cite="transformers #33691",
    caught_by=guards_forgetting.two_cuts_are_one,
)
def moved_keys_keep_their_angle(turn: Call, config: RopeConfig, k: Array, distance: int) -> Array:
    """Tokens after a cut moved to smaller positions, but their keys weren't rotated back."""
    return namespace(k).asarray(k, copy=True)


@shipped(
    "kvlib.serve.editing",
    "_moved",
    cite="llama.cpp #3825 (fixed in #3835)",
    caught_by=guards_forgetting.two_cuts_are_one,
    look=looks.two_cuts,
    lines=(
        "shifts[name, layer, plans + 1] = start - stop",
        "turn(rope, k[..., -turned:], start - stop)",
    ),
)
def second_shift_replaces_the_first(
    moved: Call, model: Decoder, cache: Cache, layer: int, name: str, start: int, stop: int
) -> tuple[Array, Array | None]:
    """A second cut before the next step overwrote the distance by which keys had to be rotated."""
    k, v = moved(model, cache, layer, name, start, stop)
    plans, shifts = cache._sequences[name].plans, cache.__dict__.setdefault("shifts", {})
    before = shifts.get((name, layer, plans), 0)  # a shift that no step has followed
    shifts[name, layer, plans + 1] = start - stop
    rope: Any = model.config.rope_of(layer)
    return turn(rope, k, -before), v


@shipped(
    "kvlib.caches.protocol",
    "Cache.add",
    cite="raullenchai/Rapid-MLX #1124",
    caught_by=guards_forgetting.a_prompt_sent_twice_gets_the_same_logits,
    look=looks.a_prompt_twice_through_windows,
    lines=("with suppress(ValueError):", "self.sharing.reuse(tokens[:-1], extra)"),
)
def trim_skipped_on_a_ring(
    add: Call, cache: Cache, name: str, tokens: Sequence[int] = (), *, extra: Any = ()
) -> int:
    """To compute a cached prompt's last token again, it has to be removed first; a full ring
    skipped that silently."""
    held: int = add(cache, name, [*tokens, 0] if tokens else (), extra=extra)
    if not tokens or held < len(tokens):
        return held
    with suppress(ValueError):  # all is held; the last token is computed again, for its logits
        cache.truncate(name, held - 1)
    return held - 1


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
    look=looks.bytes_under_a_budget,
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
    look=looks.bytes_under_a_budget,
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
