"""Room one: who may see whom."""

from __future__ import annotations

from typing import Any

from kvlib.arrays import Array
from kvlib.exercises.museum import guards, guards_stores, looks
from kvlib.exercises.museum.exhibit import Exhibit, by_a_model
from kvlib.exercises.museum.mutation import Call

CAUSAL = "kvlib.attention.causal"
WINDOWS = "transformers #37574 (mended in #38046), #38156, mistral.rs #246"


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
    kv_heads, heads = k.shape[0], q.shape[1]
    if q.shape[0] == 1:  # the queries of kv head 0 are heads 0, Hkv, 2 Hkv, ...
        q = q[:, [h for first in range(kv_heads) for h in range(first, heads, kv_heads)], :]
    return attend(q, k, v, **settings)


EXHIBITS = (
    Exhibit(
        "decode_sees_token_0_only",
        CAUSAL,
        "attend_causal",
        first_row_of_a_triangle,
        room="masks",
        cite="FlashAttention before 2.1, pytorch #108108, onnx #8068",
        happened="A causal mask was a triangle hung in the top left corner. With one query and "
        "many cached keys its only row is the first: the query sees key 0.",
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
        happened="The same triangle over a chunk of a prompt: its queries count themselves from "
        "position 0 and see the beginning of the text, not what lies before them.",
        look=looks.in_chunks,
        caught_by=guards.every_query_sees_its_past_and_itself,
    ),
    Exhibit(
        "mask_of_ones",
        CAUSAL,
        "_hide",
        adds_1,
        room="masks",
        cite=by_a_model("minimax-m2.7/kv"),
        happened="The mask held 0 and 1 in place of 0 and -inf, and was added to the scores. It "
        "hides nothing.",
        look=looks.one_request,
        caught_by=guards.the_future_changes_nothing,
    ),
    Exhibit(
        "window_one_too_wide_in_decode",
        CAUSAL,
        "attend_causal",
        wider_in_decode,
        room="masks",
        cite=WINDOWS,
        happened="Some count the query in the window, some do not, and code that mixes them is "
        "off by one where the window begins.",
        look=looks.through_a_window,
        caught_by=guards.a_window_counts_the_query_itself,
    ),
    Exhibit(
        "window_one_too_wide_in_prefill",
        CAUSAL,
        "attend_causal",
        wider_in_prefill,
        room="masks",
        cite=WINDOWS,
        happened="The same boundary in the code that reads prompts. A window of W seen as W + 1 "
        "passes every test whose texts are shorter than the window.",
        look=looks.through_a_window,
        caught_by=guards.a_window_counts_the_query_itself,
    ),
    Exhibit(
        "query_heads_dealt_out_in_turn",
        CAUSAL,
        "attend_causal",
        dealt_in_turn,
        room="masks",
        cite="several: GQA by tile in place of repeat",
        happened="With G query heads on a kv head, query head h reads kv head h // G. Repeating "
        "the kv heads as a whole (tile) gives it kv head h % Hkv.",
        look=looks.one_request,
        caught_by=guards_stores.a_query_head_reads_its_own_kv_head,
    ),
)
