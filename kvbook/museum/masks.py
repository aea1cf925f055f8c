"""Which tokens a query sees."""

from typing import Any

from kvbook.museum import guards, guards_stores, looks
from kvbook.museum.exhibit import Exhibit, collector
from kvbook.museum.mutation import Call
from kvlib.arrays import Array

CAUSAL = "kvlib.attention.causal"

EXHIBITS: list[Exhibit] = []
shipped = collector("masks", EXHIBITS)


@shipped(
    CAUSAL,
    "attend_causal",
    cite="FlashAttention before 2.1, pytorch #103082, #108108, onnx #8068",
    caught_by=guards.every_query_sees_its_past_and_itself,
    look=looks.one_request,
)
def decode_sees_token_0_only(attend: Call, q: Array, k: Array, v: Array, **settings: Any) -> Any:
    """The mask's triangle started in the top left corner, so one query over many keys saw key 0
    only."""
    if q.shape[0] == 1:  # its row of the mask is the first one, and that hides all but key 0
        k, v = k[:, :1, :], v[:, :1, :]
    return attend(q, k, v, **settings)


@shipped(
    CAUSAL,
    "attend_causal",
    cite="FlashAttention before 2.1, pytorch #103082, #108108, onnx #8068",
    caught_by=guards.every_query_sees_its_past_and_itself,
    look=looks.in_chunks,
)
def triangle_in_the_wrong_corner(
    attend: Call, q: Array, k: Array, v: Array, **settings: Any
) -> Any:
    """The same triangle over a chunk: its queries counted their positions from 0."""
    t = q.shape[0]
    if t > 1:  # query i sees keys 0 ... i, as if the chunk were a whole text
        k, v = k[:, :t, :], v[:, :t, :]
    return attend(q, k, v, **settings)


@shipped(
    CAUSAL,
    "_apply_mask",
    cite="sleepyeldrazi/llm_programming_tests, minimax-m2.7/kv",
    caught_by=guards.the_future_changes_nothing,
    look=looks.one_request,
)
def mask_of_ones(hide: Call, xp: Any, scores: Array, **where: Any) -> None:
    """The mask contained 0 and 1 instead of 0 and -inf, and was added to the scores, so it hid
    nothing."""
    mask = xp.zeros_like(scores)
    hide(xp, mask, **where)  # 0 and -inf
    scores += xp.astype(mask != 0, scores.dtype)  # 0 and 1


@shipped(
    CAUSAL,
    "attend_causal",
    cite="transformers #29623, #39408, vllm #3385",
    caught_by=guards.a_window_counts_the_query_itself,
    look=looks.through_a_window,
    lines=("window += 1", "low = 0 if window is None else max(0, length - window)"),
)
def window_one_too_wide_in_decode(
    attend: Call, q: Array, k: Array, v: Array, window: int | None = None, **settings: Any
) -> Any:
    """Some libraries count the query in a window and others don't; a decode step saw one token too
    many."""
    if window is not None and q.shape[0] == 1:
        window += 1
    return attend(q, k, v, window=window, **settings)


@shipped(
    CAUSAL,
    "attend_causal",
    cite="mistral-inference #60, mlx-lm #390",
    caught_by=guards.a_window_counts_the_query_itself,
    look=looks.through_a_window,
    lines=("window += 1", "low = 0 if window is None else max(0, first - window + 1)"),
)
def window_one_too_wide_in_prefill(
    attend: Call, q: Array, k: Array, v: Array, window: int | None = None, **settings: Any
) -> Any:
    """A prompt was read with a window of W + 1, while decoding used W."""
    if window is not None and q.shape[0] > 1:
        window += 1
    return attend(q, k, v, window=window, **settings)


@shipped(
    CAUSAL,
    "attend_causal",
    cite="jax-js #180, onnx #7274",
    caught_by=guards_stores.a_query_head_reads_its_own_kv_head,
    look=looks.one_request,
)
def query_heads_dealt_out_in_turn(
    attend: Call, q: Array, k: Array, v: Array, **settings: Any
) -> Any:
    """Kv heads were copied with tile instead of repeat, so query head h read kv head h % Hkv, not h
    // G."""
    if q.shape[0] == 1:  # query head h reads kv head h % Hkv
        turns = [h % k.shape[0] for h in range(q.shape[1])]
        k, v = k[turns, ...], v[turns, ...]
    return attend(q, k, v, **settings)
