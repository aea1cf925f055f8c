"""Windows, learned sinks, ropes by layer, and keys that are moved."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from kvbook.museum import guards_forgetting, looks_forgetting
from kvbook.museum.exhibit import Exhibit, collector
from kvbook.museum.mutation import Call
from kvlib.arrays import Array, namespace
from kvlib.caches import Cache
from kvlib.config.rope import RopeConfig
from kvlib.model import Decoder, ModelConfig
from kvlib.model.rope import turn

CAUSAL = "kvlib.attention.causal"

EXHIBITS: list[Exhibit] = []
shipped = collector("forgetting", EXHIBITS)


@shipped(
    CAUSAL,
    "attend_causal",
    cite="FMInference/H2O #33, transformers 5.23.0",
    caught_by=guards_forgetting.windows_of_every_size,
    look=looks_forgetting.a_window_of_one,
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
        window = None  # all that is left is in the window
    return attend(q, k, v, window=window, **settings)


@shipped(
    CAUSAL,
    "attend_causal",
    cite="sglang #11634, vllm-metal #550",
    caught_by=guards_forgetting.a_sink_takes_its_share_in_every_form,
    look=looks_forgetting.with_learned_sinks,
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
    look=looks_forgetting.two_cuts,
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
    look=looks_forgetting.a_prompt_twice_through_windows,
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
