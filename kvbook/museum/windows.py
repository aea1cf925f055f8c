"""Room six: forgetting. Windows, learned sinks, ropes by layer, and keys that are moved."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from kvbook.museum import guards_forgetting, looks_forgetting
from kvbook.museum.exhibit import Exhibit
from kvbook.museum.mutation import Call
from kvlib.arrays import Array, namespace
from kvlib.caches import Cache
from kvlib.config.rope import RopeConfig
from kvlib.model import Decoder, ModelConfig
from kvlib.model.rope import turn

CAUSAL = "kvlib.attention.causal"


def from_minus_0(
    attend: Call, q: Array, k: Array, v: Array, window: int | None = None, **settings: Any
) -> Any:
    if q.shape[0] == 1 and window is not None:
        xp, n = namespace(k), k.shape[1] - 1  # older tokens, and the query's own
        k, v = (xp.concat([x[:, :n, :][:, -window + 1 :, :], x[:, n:, :]], axis=1) for x in (k, v))
        window = None  # all that is left is in the window
    return attend(q, k, v, window=window, **settings)


def left_out_in_decode(attend: Call, q: Array, k: Array, v: Array, **settings: Any) -> Any:
    if q.shape[0] == 1:
        settings["sinks"] = None
    return attend(q, k, v, **settings)


def of_the_full_layers(rope_of: Call, config: ModelConfig, layer: int) -> RopeConfig | None:
    return config.rope


def left_as_they_are(turn: Call, config: RopeConfig, k: Array, distance: int) -> Array:
    return namespace(k).asarray(k, copy=True)


def assigned_not_added(
    moved: Call, model: Decoder, cache: Cache, layer: int, name: str, start: int, stop: int
) -> tuple[Array, Array | None]:
    k, v = moved(model, cache, layer, name, start, stop)
    plans, shifts = cache._sequences[name].plans, cache.__dict__.setdefault("shifts", {})
    before = shifts.get((name, layer, plans), 0)  # a shift that no step has followed
    shifts[name, layer, plans + 1] = start - stop
    rope: Any = model.config.rope_of(layer)
    return turn(rope, k, -before), v


def quietly_not_trimmed(
    add: Call, cache: Cache, name: str, tokens: Sequence[int] = (), *, extra: Any = ()
) -> int:
    held: int = add(cache, name, [*tokens, 0] if tokens else (), extra=extra)
    if not tokens or held < len(tokens):
        return held
    with suppress(ValueError):  # all is held; the last token is computed again, for its logits
        cache.truncate(name, held - 1)
    return held - 1


EXHIBITS = (
    Exhibit(
        "window_of_one_keeps_all",
        CAUSAL,
        "attend_causal",
        from_minus_0,
        room="forgetting",
        cite="FMInference/H2O #33, transformers 5.23.0",
        happened="keys[-W + 1:] keeps the W - 1 tokens before the query. For W = 1 this is "
        "keys[0:], which keeps all of them. DynamicSlidingWindowLayer of transformers has this "
        "slice. H2O has a similar one, so a budget of 0 recent tokens evicts nothing.",
        look=looks_forgetting.a_window_of_one,
        caught_by=guards_forgetting.windows_of_every_size,
    ),
    Exhibit(
        "sink_missing_in_decode",
        CAUSAL,
        "attend_causal",
        left_out_in_decode,
        room="forgetting",
        cite="sglang #11634, vllm-metal #550",
        happened="A learned sink takes a share of each query's attention. In SGLang one of several "
        "kernels got that wrong, and the score on GSM8K fell to 0; in vllm-metal two of three "
        "did. Here, decode steps leave the sink out.",
        look=looks_forgetting.with_learned_sinks,
        caught_by=guards_forgetting.a_sink_takes_its_share_in_every_form,
    ),
    Exhibit(
        "one_rope_for_all_layers",
        "kvlib.model.config",
        "ModelConfig.rope_of",
        of_the_full_layers,
        room="forgetting",
        cite="antonellof/ferrox #39, lablup/mlxcel #1340",
        happened="Gemma 3, from 4B on, divides positions by 8 in its full layers only. ferrox did "
        "so in layers with a window as well, as here, and mlxcel in no layer.",
        look=looks_forgetting.two_ropes,
        caught_by=guards_forgetting.every_layer_turns_by_its_own_rope,
    ),
    Exhibit(
        "moved_keys_keep_their_angle",
        "kvlib.model.rope",
        "turn",
        left_as_they_are,
        room="forgetting",
        cite="transformers #33691",
        happened="When tokens are cut out of a text, later ones move to smaller positions, and "
        "their keys have to be rotated back by as much. Some keys of the sink cache were not.",
        look=looks_forgetting.one_cut,
        caught_by=guards_forgetting.two_cuts_are_one,
    ),
    Exhibit(
        "second_shift_replaces_the_first",
        "kvlib.serve.editing",
        "_moved",
        assigned_not_added,
        room="forgetting",
        cite="llama.cpp #3825 (mended in #3835)",
        happened="A cut noted how far each key had to be turned, and the next step turned it. A "
        "second cut before that step assigned its own distance in place of adding it.",
        look=looks_forgetting.two_cuts,
        caught_by=guards_forgetting.two_cuts_are_one,
    ),
    Exhibit(
        "trim_skipped_on_a_ring",
        "kvlib.caches.protocol",
        "Cache.add",
        quietly_not_trimmed,
        room="forgetting",
        cite="raullenchai/Rapid-MLX #1124",
        happened="If a whole prompt was cached, the cache was cut by one token, which was computed "
        "again for its logits. A full ring cannot be cut; the cut was skipped without an error, so "
        "the cache held that token twice.",
        look=looks_forgetting.a_prompt_twice_through_windows,
        caught_by=guards_forgetting.a_prompt_sent_twice_gets_the_same_logits,
    ),
)
