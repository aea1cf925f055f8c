"""Room one: who may see whom."""

from __future__ import annotations

from kvlib.exercises.museum import guards, guards_stores, looks
from kvlib.exercises.museum.exhibit import Exhibit

CAUSAL = "kvlib.attention.causal"
PUBLIC = "sleepyeldrazi/llm_programming_tests"
WINDOWS = "transformers #37574 (mended in #38046), #38156, mistral.rs #246"

EXHIBITS = (
    Exhibit(
        "decode_sees_token_0_only",
        CAUSAL,
        "attend_causal",
        "k[:, first:, :], v[:, first:, :], softcap)",
        "k[:, :1, :], v[:, :1, :], softcap)",
        room="masks",
        cite=f"FlashAttention before 2.1, pytorch #108108, onnx #8068, {PUBLIC} qwen36/kv",
        happened="A causal mask was a triangle hung in the top left corner. With one query and "
        "many cached keys its only row is the first: the query sees key 0.",
        look=looks.one_request,
        caught_by=guards.every_query_sees_its_past_and_itself,
    ),
    Exhibit(
        "triangle_in_the_wrong_corner",
        CAUSAL,
        "_prefill",
        "start = s - t",
        "start = 0",
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
        "xp.full((n, n), -math.inf,",
        "xp.full((n, n), 1.0,",
        room="masks",
        cite=f"{PUBLIC} minimax-m2.7/kv",
        happened="The mask held 0 and 1 in place of 0 and -inf, and was added to the scores. It "
        "hides nothing.",
        look=looks.one_request,
        caught_by=guards.the_future_changes_nothing,
    ),
    Exhibit(
        "window_one_too_wide_in_decode",
        CAUSAL,
        "attend_causal",
        "max(0, s - window)",
        "max(0, s - window - 1)",
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
        "_hide",
        "i - j >= window",
        "i - j > window",
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
        "_decode",
        "xp.reshape(q, (num_kv_heads, groups, dim))",
        "xp.permute_dims(xp.reshape(q, (groups, num_kv_heads, dim)), (1, 0, 2))",
        room="masks",
        cite="several: GQA by tile in place of repeat",
        happened="With G query heads on a kv head, query head h reads kv head h // G. Repeating "
        "the kv heads as a whole (tile) gives it kv head h % Hkv.",
        look=looks.one_request,
        caught_by=guards_stores.a_query_head_reads_its_own_kv_head,
    ),
)
