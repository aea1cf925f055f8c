"""Mutants beside the museum's exhibits: bugs that lie near, as one-line changes to kvlib.

What shipped is in kvlib.exercises.museum; EXHIBITS says which check of killers.py must refuse each
of its exhibits. Each mutant here names the function it changes, the text that is replaced (it must
stand in the file exactly once), what replaces it, and the check that must refuse it.
"""

import museum_stored
from mutation_kind import Mutant

CAUSAL, DIRECT = "kvlib.attention.causal", "kvlib.attention.direct"
BATCHED, CHECKS = "kvlib.attention.batched", "kvlib.caches.checks"
TILED, STATES = "kvlib.attention.tiled", "kvlib.attention.states"
DENSE, PROTOCOL = "kvlib.caches.dense", "kvlib.caches.protocol"
ROPE, DECODER = "kvlib.model.rope", "kvlib.model.decoder"
GENERATION, SAMPLING = "kvlib.generation", "kvlib.sampling"

# Exhibit of kvlib.exercises.museum → the check that must refuse it.
EXHIBITS = {
    **dict.fromkeys(
        (
            *("decode_sees_token_0_only", "triangle_in_the_wrong_corner", "mask_of_ones"),
            *("window_one_too_wide_in_decode", "window_one_too_wide_in_prefill"),
            *("query_heads_dealt_out_in_turn", "lse_to_base_2", "softmax_divided_twice"),
        ),
        "attention_in_every_form",
    ),
    **dict.fromkeys(
        (
            *("one_position_for_the_batch", "append_at_the_longest", "length_of_a_local_layer"),
            *("prompt_never_stored", "one_row_for_all"),
        ),
        "cached_equals_recomputed",
    ),
    **dict.fromkeys(("decode_one_position_late", "last_prompt_token_twice"), "generated_tokens"),
    **dict.fromkeys(("unused_slot_attended_to", "rollback_resets"), "any_schedule"),
    **dict.fromkeys(("float64_in_the_cache", "float64_in_the_products"), "only_float32"),
    **dict.fromkeys(
        (
            *("bill_counts_query_heads", "bill_divides_the_width"),
            *("bill_knows_no_window", "bill_forgets_the_rotated_key"),
        ),
        "bills",
    ),
    **dict.fromkeys(
        ("cast_before_the_clip", "constant_group_is_0_over_0", "nibbles_in_the_other_order"),
        "codecs_round_trip",
    ),
    **dict.fromkeys(("stale_prefix", "hash_believed"), "pool_and_its_model"),
    "nothing_merged_is_nan": "states_merge",
    "nothing_left_to_compute": "shared_prefixes",
    "preempted_request_loses_a_token": "chunks_and_schedules",
}

MUTANTS = [
    *museum_stored.MUTANTS,
    # Masks
    Mutant("no causal mask", CAUSAL, "_hide", "if n > 1:", "if n > 10**9:",
           "attention_in_every_form"),
    Mutant("window one too wide", DIRECT, "visible", "distance < window", "distance <= window",
           "attention_in_every_form"),
    Mutant("window one too narrow in prefill", CAUSAL, "_prefill",
           "start + a - window + 1)", "start + a - window + 2)", "attention_in_every_form"),
    Mutant("diagonal hidden", DIRECT, "visible", "distance >= 0", "distance > 0",
           "attention_in_every_form"),
    # Heads
    Mutant("query heads dealt out in turn", DIRECT, "by_head",
           "(t, num_kv_heads, groups, dim)), (1, 2, 0, 3)",
           "(t, groups, num_kv_heads, dim)), (2, 1, 0, 3)",
           "attention_in_every_form"),
    # Partial results
    Mutant("merge weighs the wrong side", STATES, "merge_state", "share = b /", "share = a /",
           "states_merge"),
    Mutant("old tiles not rescaled", TILED, "attend_tiled", "total = total * old +",
           "total = total +", "attention_in_every_form"),
    Mutant("a tile that sees nothing is NaN", TILED, "attend_tiled",
           "safe = xp.where(new_top == -math.inf, xp.zeros_like(new_top), new_top)",
           "safe = new_top", "attention_in_every_form"),
    Mutant("a second chunk overwrites the first", CAUSAL, "_prefill",
           "whole[a:b, :, :] =", "whole[: b - a, :, :] =", "attention_in_every_form"),
    # Where keys are put
    Mutant("one slot too many is attended to", DENSE, "DenseCache.attend",
           "k[row, :, :end, :],\n                v[row, :, :end, :],",
           "k[row, :, : end + 1, :],\n                v[row, :, : end + 1, :],",
           "any_schedule"),
    Mutant("free slots of a batch have score 0", BATCHED, "attend_rows",
           "xp.where(free[:, None, None, :], -math.inf, part)", "part", "any_schedule"),
    Mutant("free slots of a batch are weighed with 0", BATCHED, "_cleared",
           "xp.where(free[:, None, :, None], xp.zeros((), dtype=x.dtype, device=x.device), x)",
           "x", "any_schedule"),
    Mutant("a batch in the order of its rows", BATCHED, "taken",
           "xp.concat([x[i : i + 1, ...] for i in batch], axis=0)",
           "x[min(batch) : min(batch) + n, ...]", "any_schedule"),
    Mutant("a slot is left out at each decode", PROTOCOL, "Cache.plan",
           "request.length += n", "request.length += n + (n == 1)",
           "cached_equals_recomputed"),
    Mutant("a fork shares the row", DENSE, "DenseCache._copy",
           "row, copied = self._take_row(seq_id), 0", "row, copied = source.place, 0",
           "any_schedule"),
    Mutant("a freed row is lost", DENSE, "DenseCache._release",
           "self._free_rows.append(request.place)", "pass", "any_schedule"),
    Mutant("a layer appends twice in a step", CHECKS, "check_append",
           "if layer in step.ticket.appended:", "if False:", "steps_used_once"),
    Mutant("a pass that was planned over is attended to", CHECKS, "_check_layer_and_step",
           "if step.ticket.gap is not None:", "if False:", "steps_used_once"),
    Mutant("a step outlives its truncation", PROTOCOL, "Cache.truncate",
           "request.length = int(length)\n        self._end_step(request)",
           "request.length = int(length)", "any_schedule"),
    # Positions
    Mutant("RoPE one ahead from the first decode on", PROTOCOL, "Cache.plan",
           "starts = [r.length for r in requests]",
           "starts = [r.length + (r.length > 0) for r in requests]",
           "cached_equals_recomputed"),
    Mutant("learned positions start again in each chunk", DECODER, "Decoder.forward",
           'xp.take(self.weights["pos_embed.weight"], step.positions, axis=0)',
           'self.weights["pos_embed.weight"][: step.num_tokens, :]',
           "cached_equals_recomputed"),
    Mutant("RoPE on neighbours in place of halves", ROPE, "rotate",
           "namespace(x).concat([x[..., half:], x[..., :half]], axis=-1)",
           "x.reshape(*x.shape[:-1], half, 2)[..., ::-1].reshape(x.shape)",
           "cached_equals_recomputed"),
    Mutant("values turned, too", DECODER, "Decoder._project",
           "both[:, num_qo_heads:, :], v\n", "*[both[:, num_qo_heads:, :]] * 2\n",
           "cached_equals_recomputed"),
    Mutant("logits of each request's first row", "kvlib.model.rows", "wanted",
           "Wanted(step.last_rows, step.last(), step.last_rows, None)",
           "Wanted(list(step.qo_indptr[:-1]), step.last(), list(step.qo_indptr[:-1]), None)",
           "cached_equals_recomputed"),
    # Dtypes
    Mutant("float64 leaks from RoPE's tables", ROPE, "tables",
           "xp.asarray(full_cos, dtype=dtype)", "xp.asarray(full_cos)",
           "only_float32"),
    Mutant("float64 within one expression", "kvlib.norms.forward", "_normalised",
           "xp.sqrt(mean_product(xp, wide, wide) + eps)",
           "xp.sqrt(mean_product(xp, wide, wide) + xp.float64(eps))", "only_float32"),
    # Generation
    Mutant("first new token dropped for the prompt's last", GENERATION, "_steps",
           "feed[i] = [token]", "feed[i] = [prompts[i][-1]] if made[i] == 1 else [token]",
           "generated_tokens"),
    Mutant("stop token returned", GENERATION, "_steps", "if not stopped:", "if True:",
           "generated_tokens"),
    Mutant("requests left open", GENERATION, "_steps", "cache.free(names.pop(i))", "names.pop(i)",
           "generated_tokens"),
    Mutant("one seed for the whole batch", GENERATION, "_steps",
           "rng_at(seeds[i], ", "rng_at(seeds[0], ", "generated_tokens"),
    Mutant("draws counted from the first new token", GENERATION, "_steps",
           "len(prompts[i]) + made[i])", "made[i])", "generated_tokens"),
    Mutant("a scheduler counts draws from the first new token", "kvlib.serving", "Request.draw",
           "rng_at(self.seed, self.length)", "rng_at(self.seed, len(self.new))",
           "generated_tokens"),
    Mutant("top-p leaves out the token that reaches it", "kvlib.distribution", "probabilities",
           "np.cumsum(kept, axis=1) - kept < top_p", "np.cumsum(kept, axis=1) < top_p", "samples"),
    Mutant("temperature multiplied", "kvlib.distribution", "probabilities",
           "(x - top) / temperature", "(x - top) * temperature", "samples"),
]  # fmt: skip
