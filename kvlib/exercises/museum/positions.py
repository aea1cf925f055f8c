"""Room two: where a token stands."""

from __future__ import annotations

from kvlib.exercises.museum import guards, guards_stores, looks, looks_shared
from kvlib.exercises.museum.exhibit import Exhibit

PROTOCOL, GENERATION = "kvlib.caches.protocol", "kvlib.generation"
STARTS = "starts = [r.length for r in requests]"

# kvlib refuses a place that was never written, so the zeros of a fresh array are written
ONE_LATE = """\
feed[i], gap = [token], made[i] == 1 and cache.plan([names[i]], [1])
                    for n, spec in enumerate(cache.layers if gap else ()):
                        shape = (1, spec.num_kv_heads, spec.head_dim)
                        zeros = cache.xp.zeros(shape, dtype=cache.dtype)
                        cache.append(n, zeros, zeros, gap)"""

EXHIBITS = (
    Exhibit(
        "decode_one_position_late",
        GENERATION,
        "_steps",
        "feed[i] = [token]",
        ONE_LATE,
        room="positions",
        cite="likejazz/llama3.np at 7dae0e1, Llama.generate",
        happened="Behind the prompt the loop went on one position late. A slot stays zero and is "
        "attended to, and every rotation from there on is one ahead.",
        look=looks.a_name_asked_for,
        caught_by=guards.generated_tokens_equal_recomputed,
    ),
    Exhibit(
        "one_position_for_the_batch",
        PROTOCOL,
        "Cache.plan",
        STARTS,
        "starts = [max(r.length for r in requests)] * len(requests)",
        room="positions",
        cite="unsloth #3803, transformers #29109",
        happened="A batch padded on the left got one position for all its rows, that of the "
        "longest. Shorter rows are turned by the wrong angle.",
        look=looks.beside_a_longer_one,
        caught_by=guards.a_row_alone_is_the_row_in_a_batch,
    ),
    Exhibit(
        "append_at_the_longest",
        "kvlib.caches.dense",
        "DenseCache.append",
        "step.qo_indptr[i + 1], step.seq_lens[i]",
        "step.qo_indptr[i + 1], max(step.seq_lens)",
        room="positions",
        cite="omlx #2172 (mended in #2201)",
        happened="The place to write was the largest offset in the batch. It was right until the "
        "longest request left, and a benchmark fell from 96.7 to 53.3.",
        look=looks.beside_a_longer_one,
        caught_by=guards.any_row_may_leave,
    ),
    Exhibit(
        "length_of_a_local_layer",
        PROTOCOL,
        "Cache.plan",
        STARTS,
        "starts = [min(r.length, self.layers[0].window or r.length) for r in requests]",
        room="positions",
        cite="transformers #38156",
        happened="The length of a text was asked of layer 0. Where that layer has a window it "
        "never holds more than the window, so positions stop growing.",
        look=looks.first_layer_local,
        caught_by=guards.cached_logits_equal_recomputed,
    ),
    Exhibit(
        "last_prompt_token_twice",
        GENERATION,
        "_steps",
        "feed[i] = [token]",
        "feed[i] = [prompts[i][-1], token] if made[i] == 1 else [token]",
        room="positions",
        cite="sleepyeldrazi/llm_programming_tests qwen36/kv",
        happened="The prompt was read, and its last token was then fed again to start decoding. "
        "It stands in the cache twice.",
        look=looks.one_request,
        caught_by=guards.the_cache_grows_by_one_token_a_token,
    ),
    Exhibit(
        "preempted_request_loses_a_token",
        "kvlib.scheduling",
        "Scheduler._pass",
        "r.new.append(token)",
        'r.new.extend([token] if kind == "decode" or not r.new else [])',
        room="positions",
        cite="nano-vllm #217",
        happened="A request that was put back is read again with what it has written so far. The "
        "token that this pass draws was dropped.",
        look=looks_shared.too_little_room,
        caught_by=guards_stores.preemption_changes_no_token,
    ),
)
