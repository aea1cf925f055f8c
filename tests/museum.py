"""Mutants beside the museum's exhibits: similar bugs, as small changes to what kvlib does.

EXHIBITS says which check of killers.py must refuse each exhibit of kvbook.museum.
"""

from dataclasses import replace

import museum_blocks
import museum_groups
import museum_guesses
import museum_pieces
import museum_scored
import museum_stored
import museum_trees
import numpy as np
from mutation_kind import Bug, Mutant, changed

from kvlib.model import rope

CAUSAL, DIRECT = "kvlib.attention.causal", "kvlib.attention.direct"
BATCHED, CHECKS = "kvlib.attention.batched", "kvlib.caches.checks"
PARTIALS = "kvlib.attention.partials"
STORED, PROTOCOL = "kvlib.caches.stored", "kvlib.caches.protocol"
ROWS, MIXER = "kvlib.caches.allocation.rows", "kvlib.model.grouped_query"
SCHEDULER, REQUEST = "kvlib.serve.scheduler", "kvlib.serve.request"
DISTRIBUTION, PROMPTS = "kvlib.serve.distribution", "kvlib.serve.prompts"

# Exhibit of kvbook.museum → the check that must refuse it.
EXHIBITS = {
    **dict.fromkeys(
        (
            *("decode_sees_token_0_only", "triangle_in_the_wrong_corner", "mask_of_ones"),
            *("window_one_too_wide_in_decode", "window_one_too_wide_in_prefill"),
            *("query_heads_dealt_out_in_turn", "lse_to_base_2", "softmax_divided_twice"),
            *("window_of_one_keeps_all", "sink_missing_in_decode"),
        ), "attention_in_every_form",
    ),
    **dict.fromkeys(
        (
            *("one_position_for_the_batch", "append_at_the_longest", "length_of_a_local_layer"),
            *("prompt_never_stored", "one_row_for_all", "positions_count_what_is_kept"),
        ), "cached_equals_recomputed",
    ),
    **dict.fromkeys(("decode_one_position_late", "last_prompt_token_twice"), "generated_tokens"),
    **dict.fromkeys(("unused_slot_attended_to", "rollback_resets"), "any_schedule"),
    **dict.fromkeys(("float64_in_the_cache", "float64_in_the_products"), "only_float32"),
    **dict.fromkeys(
        (
            *("bill_counts_query_heads", "bill_divides_the_width"),
            *("bill_knows_no_window", "bill_forgets_the_rotated_key", "bill_leaves_out_windows"),
        ), "bills",
    ),
    **dict.fromkeys(
        ("cast_before_the_clip", "constant_group_is_0_over_0", "nibbles_in_the_other_order"),
        "codecs_round_trip",
    ),
    **dict.fromkeys(("stale_prefix", "hash_believed"), "pool_and_its_model"),
    "nothing_merged_is_nan": "states_merge",
    **dict.fromkeys(("nothing_left_to_compute", "trim_skipped_on_a_ring"), "shared_prefixes"),
    **dict.fromkeys(
        ("moved_keys_keep_their_angle", "second_shift_replaces_the_first"), "edits_are_exact",
    ),
    **dict.fromkeys(("one_set_per_query_head", "evicted_blocks_stay_held"), "budgets_bound_bytes"),
    **dict.fromkeys(
        (
            *("likeliest_guess_called_drawn", "every_guess_accepted", "rest_through_a_softmax"),
            *("one_number_for_verdict_and_token", "row_emptied_in_place"),
            "token_after_the_one_that_is_due",
        ), "guesses_keep_the_law",
    ),
    "row_taken_for_a_position": "trees_see_their_lines",
    "guesses_stay_in_a_ring": "guesses_change_nothing",
    "draft_cut_by_two_too_many": "guesses_are_fed_the_text",
    "one_rope_for_all_layers": "layers_that_differ",
    "scores_see_the_future": "scores_by_definition",
    "preempted_request_loses_a_token": "chunks_and_schedules",
}


def queries_dealt_in_turn(by_head, xp, q, kv_heads):
    turns = [h for first in range(kv_heads) for h in range(first, q.shape[1], kv_heads)]
    return by_head(xp, q[:, turns], kv_heads)


def window_narrower_in_prefill(attend, q, k, v, window=None, **settings):
    if window is not None and q.shape[0] > 1:
        window = max(1, window - 1)
    return attend(q, k, v, window=window, **settings)


def nan_where_nothing_is_seen(parts, xp, s):
    p, top, total = parts(xp, s)
    with np.errstate(invalid="ignore"):
        return p + (top - top), top, total  # −inf − −inf


def one_slot_more(attend, cache, layer, q, step, return_lse=False):
    longer = changed(step, seq_lens=tuple(n + cache.one_array for n in step.seq_lens))
    return attend(cache, layer, q, longer, return_lse)


def all_as_long_as_the_longest(attend, q, k, v, lengths, ends, **settings):
    return attend(q, k, v, lengths, np.full_like(ends, max(lengths)), **settings)


def slot_left_out(plan, cache, *asked):
    step = plan(cache, *asked)
    for name, n in zip(step.seq_ids, step.q_lens):
        cache._sequences[name].length += n == 1
    return step


def row_shared_by_a_fork(copy, rows, source, seq_id, place):
    place.row, place.tables = source.row, [t.copy() for t in source.tables]


def appended_again(check, cache, layer, k, v, step):
    step.ticket.appended.discard(layer)
    return check(cache, layer, k, v, step)


def step_that_lives_on(truncate, cache, name, length):
    seq = cache._sequences[name]
    ticket = seq.ticket
    truncate(cache, name, length)
    if ticket is not None:
        seq.ticket, ticket.live = ticket, True


def one_ahead_after_the_prompt(plan, cache, *asked):
    step = plan(cache, *asked)
    ahead = [int(end > n) for end, n in zip(step.seq_lens, step.q_lens)]
    step._positions = step.positions + np.repeat(ahead, step.q_lens)
    return step


def learned_from_0(embed, embedding, ids, step):
    return embed(embedding, ids, changed(step, _positions=np.arange(step.num_tokens)))


def neighbours_turned(rotate, x, cos, sin):
    pairs = x.reshape(*x.shape[:-1], x.shape[-1] // 2, 2)
    return x * cos + pairs[..., ::-1].reshape(x.shape) * sin


def values_turned(project, mixer, h, angles):
    q, k, v = project(mixer, h, angles)
    return q, k, v if angles is None else rope.rotate(v, *angles)


def scaled_by_head_dim(init, mixer, config, *rest):
    init(mixer, replace(config, query_pre_attn_scalar=None), *rest)


def least_likely_left_out(probabilities, logits, temperature=1.0, top_k=None, top_p=None):
    p = probabilities(logits, temperature, top_k, top_p)
    if top_p is not None:
        p[p == np.where(p > 0, p, 1).min(axis=1, keepdims=True)] = 0
    return p / np.maximum(p.sum(axis=1, keepdims=True), 1e-300)


MUTANTS = [
    *museum_stored.MUTANTS,
    *museum_scored.MUTANTS,
    *museum_guesses.MUTANTS,
    *museum_trees.MUTANTS,
    *museum_blocks.MUTANTS,
    *museum_pieces.MUTANTS,
    *museum_groups.MUTANTS,
    # Masks
    Bug("no causal mask", CAUSAL, "_apply_mask", lambda hide, *scores, **where: None,
        "attention_in_every_form"),
    Bug("window one too wide", DIRECT, "visible",
        lambda visible, q, k, window: visible(q, k, window and window + 1),
        "attention_in_every_form"),
    Bug("window one too narrow in prefill", CAUSAL, "attend_causal", window_narrower_in_prefill,
        "attention_in_every_form"),
    Bug("diagonal hidden", DIRECT, "visible",
        lambda visible, q, k, window: visible(q, k, window) & (q[:, None] != k[..., None, :]),
        "attention_in_every_form"),
    # Heads
    Bug("query heads dealt out in turn", DIRECT, "by_head", queries_dealt_in_turn,
        "attention_in_every_form"),
    # Partial results
    Bug("merge weighs the wrong side", PARTIALS, "merge_state",
        lambda merge, o_a, lse_a, o_b, lse_b: merge(o_b, lse_a, o_a, lse_b), "states_merge"),
    Mutant("old tiles not rescaled", PARTIALS, "join", "total_a * shrink_a", "total_a",
           "attention_in_every_form"),
    Bug("a tile that sees nothing is NaN", DIRECT, "softmax_parts", nan_where_nothing_is_seen,
        "attention_in_every_form"),
    Mutant("a second chunk overwrites the first", CAUSAL, "attend_chunk",
           "result[a : a + n, :, :] =", "result[:n, :, :] =", "attention_in_every_form"),
    # Where keys are put
    Bug("one slot too many is attended to", STORED, "StoredCache.attend", one_slot_more,
        "any_schedule"),
    Bug("free slots of a batch have score 0", BATCHED, "attend_texts", all_as_long_as_the_longest,
        "any_schedule"),
    Bug("free slots of a batch are weighed with 0", BATCHED, "_cleared",
        lambda cleared, xp, x, free: x, "any_schedule"),
    Bug("a batch in the order of its rows", BATCHED, "batch_rows",
        lambda batch_rows, xp, x, batch, offsets: batch_rows(
            xp, x, list(range(min(batch), min(batch) + len(batch))), offsets
        ), "any_schedule"),
    Bug("a slot is left out at each decode", PROTOCOL, "Cache.plan", slot_left_out,
        "cached_equals_recomputed"),
    Bug("a fork shares the row", ROWS, "Rows.copy", row_shared_by_a_fork, "any_schedule"),
    Bug("a freed row is lost", ROWS, "Rows.release", lambda *_: None, "any_schedule"),
    Bug("a layer appends twice in a step", CHECKS, "check_append", appended_again,
        "steps_used_once"),
    Mutant("an encoder's gap is looked for in its last step alone", "kvlib.caches.cross",
           "cross_step", "seq.next_gap()",
           "None if seq.ticket is None or seq.ticket.live is False else "
           "seq.next_gap()", "steps_used_once"),
    Bug("a pass that was planned over is attended to", "kvlib.caches.step",
        "CachedSequence.next_gap", lambda *_: None, "steps_used_once"),
    Bug("a step outlives its truncation", PROTOCOL, "Cache.truncate", step_that_lives_on,
        "any_schedule"),
    # Positions
    Bug("RoPE one ahead from the first decode on", PROTOCOL, "Cache.plan",
        one_ahead_after_the_prompt, "cached_equals_recomputed"),
    Bug("learned positions start again in each chunk", "kvlib.model.decoder", "Embedding.embed",
        learned_from_0, "cached_equals_recomputed"),
    Bug("RoPE on neighbours in place of halves", "kvlib.model.rope", "rotate", neighbours_turned,
        "cached_equals_recomputed"),
    Bug("values turned, too", MIXER, "GroupedQuery.project", values_turned,
        "cached_equals_recomputed"),
    Bug("logits of each request's first row", "kvlib.model.decoder", "select_rows",
        lambda select_rows, rows, step: select_rows(list(step.qo_indptr[:-1]), step),
        "cached_equals_recomputed"),
    Bug("scores scaled by head_dim whatever the config says", MIXER,
        "GroupedQuery.__init__", scaled_by_head_dim, "cached_equals_recomputed"),
    # Dtypes
    Bug("float64 leaks from RoPE's tables", "kvlib.model.rope", "tables",
        lambda tables, *sizes: tables(*sizes[:-1], np.float64), "only_float32"),
    Bug("float64 within one expression", "kvlib.model.layers", "normalised",
        lambda f, xp, x, eps, **centre: f(xp, x, np.float64(eps), **centre), "only_float32"),
    # Generation
    Mutant("first new token dropped for the prompt's last", REQUEST, "Request.next_tokens",
           "[self.new[-1], *", "[self.prompt[-1] if len(self.new) == 1 else self.new[-1], *",
           "generated_tokens"),
    Mutant("stop token returned", SCHEDULER, "Scheduler._accept",
           "new, used = tokens[:end],", "new, used = tokens[: end + 1],", "generated_tokens"),
    Bug("requests left open", PROTOCOL, "Cache.free", lambda *_: None, "generated_tokens"),
    Bug("one seed for the whole batch", PROMPTS, "seeds_of",
        lambda seeds_of, seed, count: seeds_of(seed, count)[:1] * count, "generated_tokens"),
    Mutant("draws counted from the first new token", REQUEST, "draw_tokens",
           "d.request.length + d.ahead", "len(d.request.new) + d.ahead", "generated_tokens"),
    Bug("top-p leaves out the token that reaches it", DISTRIBUTION, "probabilities",
        least_likely_left_out, "samples"),
    Bug("temperature multiplied", DISTRIBUTION, "probabilities",
        lambda p, logits, temperature=1.0, *top, **more: p(
            logits, temperature and 1 / temperature, *top, **more
        ), "samples"),
]  # fmt: skip
