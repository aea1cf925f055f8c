"""Room one: who may see whom."""

from __future__ import annotations

from typing import Any

from kvbook.museum import guards, guards_stores, looks
from kvbook.museum.exhibit import Exhibit, by_a_model
from kvbook.museum.mutation import Call
from kvlib.arrays import Array

CAUSAL = "kvlib.attention.causal"


def first_row_of_a_triangle(attend: Call, q: Array, k: Array, v: Array, **settings: Any) -> Any:
    if q.shape[0] == 1:  # its row of the mask is the first one, and that hides all but key 0
        k, v = k[:, :1, :], v[:, :1, :]
    return attend(q, k, v, **settings)


def counted_from_0(attend: Call, q: Array, k: Array, v: Array, **settings: Any) -> Any:
    t = q.shape[0]
    if t > 1:  # query i sees keys 0 ... i, as if the chunk were a text of its own
        k, v = k[:, :t, :], v[:, :t, :]
    return attend(q, k, v, **settings)


def adds_1(hide: Call, xp: Any, scores: Array, **where: Any) -> None:
    mask = xp.zeros_like(scores)
    hide(xp, mask, **where)  # 0 and -inf
    scores += xp.astype(mask != 0, scores.dtype)  # 0 and 1


def wider_in_decode(
    attend: Call, q: Array, k: Array, v: Array, window: int | None = None, **settings: Any
) -> Any:
    if window is not None and q.shape[0] == 1:
        window += 1
    return attend(q, k, v, window=window, **settings)


def wider_in_prefill(
    attend: Call, q: Array, k: Array, v: Array, window: int | None = None, **settings: Any
) -> Any:
    if window is not None and q.shape[0] > 1:
        window += 1
    return attend(q, k, v, window=window, **settings)


def dealt_in_turn(attend: Call, q: Array, k: Array, v: Array, **settings: Any) -> Any:
    if q.shape[0] == 1:  # query head h reads kv head h % Hkv
        turns = [h % k.shape[0] for h in range(q.shape[1])]
        k, v = k[turns, ...], v[turns, ...]
    return attend(q, k, v, **settings)


EXHIBITS = (
    Exhibit(
        "decode_sees_token_0_only",
        CAUSAL,
        "attend_causal",
        first_row_of_a_triangle,
        room="masks",
        cite="FlashAttention before 2.1, pytorch #108108, onnx #8068",
        happened="The causal mask was a triangle in the top left corner. One query over many "
        "cached keys gets the first row of that triangle, so it sees key 0 only.",
        look=looks.one_request,
        caught_by=guards.every_query_sees_its_past_and_itself,
    ),
    Exhibit(
        "triangle_in_the_wrong_corner",
        CAUSAL,
        "attend_causal",
        counted_from_0,
        room="masks",
        cite="FlashAttention before 2.1, pytorch #108108, onnx #8068",
        happened="The same triangle over a chunk of a prompt. The queries count themselves from "
        "position 0, so they see the beginning of the text and miss what stands before "
        "them.",
        look=looks.in_chunks,
        caught_by=guards.every_query_sees_its_past_and_itself,
    ),
    Exhibit(
        "mask_of_ones",
        CAUSAL,
        "_apply_mask",
        adds_1,
        room="masks",
        cite=by_a_model("minimax-m2.7/kv"),
        happened="The mask held 0 and 1 where it needed 0 and -inf, and was added to the scores. "
        "It hides nothing.",
        look=looks.one_request,
        caught_by=guards.the_future_changes_nothing,
    ),
    Exhibit(
        "window_one_too_wide_in_decode",
        CAUSAL,
        "attend_causal",
        wider_in_decode,
        room="masks",
        cite="transformers #29623, #39408",
        happened="FlashAttention does not count the query in its window, and most configs do. Code "
        "that mixes the two conventions sees one token too many where the window begins.",
        look=looks.through_a_window,
        caught_by=guards.a_window_counts_the_query_itself,
    ),
    Exhibit(
        "window_one_too_wide_in_prefill",
        CAUSAL,
        "attend_causal",
        wider_in_prefill,
        room="masks",
        cite="mistral-inference #60, mlx-lm #390",
        happened="The same boundary in the code that reads prompts, while decoding was right. A "
        "window of W + 1 in place of W passes every test whose texts are shorter than the "
        "window.",
        look=looks.through_a_window,
        caught_by=guards.a_window_counts_the_query_itself,
    ),
    Exhibit(
        "query_heads_dealt_out_in_turn",
        CAUSAL,
        "attend_causal",
        dealt_in_turn,
        room="masks",
        cite="jax-js #180, onnx #7274 (tile in place of repeat)",
        happened="With G query heads per kv head, query head h reads kv head h // G. Copying the "
        "list of kv heads as a whole (tile) makes it read kv head h % Hkv.",
        look=looks.one_request,
        caught_by=guards_stores.a_query_head_reads_its_own_kv_head,
    ),
)
