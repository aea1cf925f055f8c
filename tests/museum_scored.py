"""Mutants of policies, chosen blocks, edited requests, ropes, experts, latents. See museum.py."""

from copy import copy
from dataclasses import replace

import numpy as np
from mutation_kind import Bug, Mutant

SCORED, EVICTION = "kvlib.caches.retention.scored", "kvlib.caches.retention.eviction"
STORED = "kvlib.caches.stored"
POLICIES = "kvlib.caches.retention.policies"
EXPECTED = "kvlib.caches.retention.policies"
QUEST, STORE = "kvlib.caches.retention.quest", "kvlib.caches.store"
ROPE, EXPERTS, EDITING = "kvlib.model.rope", "kvlib.model.experts", "kvlib.serve.editing"
DEEPSEEK = "kvlib.config.families.deepseek"


def part_first(expanded, latents, key_up, value_up):
    k, v = expanded(latents, key_up, value_up)
    return np.concatenate([k[..., key_up.shape[1] :], k[..., : key_up.shape[1]]], axis=-1), v


def copy_of(step, **changes):
    new = copy(step)
    for name, value in changes.items():
        setattr(new, name, value)
    return new


def normed_whole(latents, part, h, angles):
    k, rank = latents(part, h, angles), part.sizes.kv_lora_rank
    shared = k[..., rank:]
    normed = shared / np.sqrt((shared**2).mean(-1, keepdims=True) + 1e-6)
    return np.concatenate([k[..., :rank], normed], axis=-1)


def counted_again(record, state, q, lse, at):
    if state.q is not None and state.at == at:
        q, lse = (np.concatenate([old, x]) for old, x in ((state.q, q), (state.lse, lse)))
    record(state, q, lse, at)


def notes_stay_in_their_slots(commit, state, length, kept_ranks=None):
    commit(state, length)
    if kept_ranks is not None and state.notes is not None:
        state.notes = state.notes[:, : kept_ranks.shape[1]]


def by_what_is_left(score, policy, notes, k, v):
    if not policy.mean or notes is None:
        return score(policy, notes, k, v)
    return notes[..., 0] / np.arange(k.shape[1], 0, -1)


def as_head_0(chosen, rule, score):
    found = chosen(rule, score)
    return np.broadcast_to(found[:1], found.shape).copy()


def without_the_newest(chosen, rule, score):
    return np.sort(np.argsort(-score, axis=1, kind="stable")[:, : rule.budget], axis=1)


def positions_of_head_0(positions_of, which, positions):
    found = positions_of(which, positions)
    return found if found.ndim == 1 else np.broadcast_to(found[:1], found.shape).copy()


def in_float32(turn, config, k, distance):
    for _ in range(2):  # half the way twice, as two programs that round the angle would
        k = turn(config, k, distance / 2).astype(np.float16).astype(np.float32)
    return k


def in_the_short_row(leave, cache, state, ask, move, own):
    table = state.tables[move.group]
    if table.private_row is not None and move.kept_ranks is not None:
        table.private_row, table.pages = None, [state.row]
        last = cache.stores[cache.groups[move.group].layers[0]].size - 1
        move = move._replace(kept_ranks=np.minimum(move.kept_ranks, last))
    leave(cache, state, ask, move, own)


def bounds_stay(put, fields, *given):
    fresh = None if fields.bounds is None else fields.bounds.fresh.copy()
    written = put(fields, *given)
    if fresh is not None:
        fields.bounds.fresh[:] = fresh
    return written


MUTANTS = [
    # Policies
    Bug("a policy counts the look at the next token", SCORED, "Seen.probabilities",
        lambda probabilities, seen: probabilities(replace(seen, slot=seen.slot + 1)),
        "scores_by_definition"),
    Bug("a query that was undone still counts", SCORED, "PolicyState.truncate", lambda *_: None,
        "scores_by_definition"),
    Bug("a layer that runs twice counts twice", SCORED, "PolicyState.record", counted_again,
        "scores_by_definition"),
    Bug("notes stay where evicted tokens lay", SCORED, "PolicyState.commit",
        notes_stay_in_their_slots, "scores_by_definition"),
    Bug("a fork begins without notes", SCORED, "PolicyState.copy",
        lambda copy, state: type(state)(state.policy), "scores_by_definition"),
    Bug("every head keeps what head 0 keeps", SCORED, "Scored.chosen", as_head_0,
        "scores_by_definition"),
    Bug("the newest tokens are not safe", SCORED, "Scored.chosen", without_the_newest,
        "scores_by_definition"),
    Bug("positions of head 0 stand for all", EVICTION, "positions_of", positions_of_head_0,
        "scores_by_definition"),
    Bug("heavy hitters of one step only", POLICIES, "H2O.fold",
        lambda fold, policy, notes, p: fold(policy, None, p), "scores_by_definition"),
    Bug("H2O's mean forgets the queries of evicted tokens", POLICIES, "H2O.score",
        by_what_is_left, "scores_by_definition"),
    Bug("SnapKV without its pooling", POLICIES, "SnapKV.score",
        lambda score, policy, notes, k, v: notes, "scores_by_definition"),
    Bug("SnapKV's window lends its weight to the tokens before it", POLICIES, "SnapKV.score",
        lambda score, policy, *rest: score(replace(policy, window=1), *rest),
        "scores_by_definition"),
    Bug("SnapKV pools by the mean whatever it is asked", POLICIES, "SnapKV.score",
        lambda score, policy, *rest: score(replace(policy, pooling="mean"), *rest),
        "scores_by_definition"),
    Bug("what stays is looked for in the short row", STORED, "StoredCache._copy_pages",
        in_the_short_row, "scores_by_definition"),
    Bug("what stays does not leave its longer row", STORED, "StoredCache._copy_pages",
        lambda leave, cache, state, ask, move, own: leave(
            cache, state, ask, move,
            own or (state.tables[move.group].private_row if move.kept_ranks is not None else None),
        ), "rows_are_short"),
    Bug("expected queries are not turned back", EXPECTED, "ExpectedAttention.look",
        lambda look, policy, *rest: look(
            replace(policy, frequencies=[0.0] * len(policy.frequencies)), *rest
        ), "scores_by_definition"),
    Bug("the last step's queries stand for all", EXPECTED, "ExpectedAttention.look",
        lambda look, policy, notes, seen: look(policy, None, seen), "scores_by_definition"),
    Mutant("steps add up their covariances alone", EXPECTED, "merged",
           "covariance = inside + between", "covariance = inside", "scores_by_definition"),
    Mutant("the future begins a token early", EXPECTED, "ExpectedAttention.expected",
           "positions = notes.end +", "positions = notes.end - 1 +", "scores_by_definition"),
    Bug("the first tokens compete", EXPECTED, "ExpectedAttention.score",
        lambda score, policy, *rest: score(replace(policy, sinks=0), *rest),
        "scores_by_definition"),
    # Blocks that are chosen
    Bug("bounds outlive the keys of their block", "kvlib.attention.pieces", "PagedTensor.put",
        bounds_stay, "blocks_by_definition"),
    Mutant("bounds do not see a decode step's keys", "kvlib.caches.store", "Store.write_slots",
           "tensor.bounds.fresh[page] = False", "pass", "blocks_by_definition"),
    Bug("largest and smallest keys are swapped", QUEST, "page_scores",
        lambda score, rows, bounds: score(rows, np.roll(bounds, bounds.shape[2] // 2, axis=2)),
        "blocks_by_definition"),
    Bug("the largest keys stand for all, whatever the query's sign", STORE, "bounds_of",
        lambda bounds_of, keys: np.concatenate([keys.max(axis=2)] * 2, axis=-1),
        "blocks_by_definition"),
    Mutant("the last block is left out", QUEST, "attend_chosen", "blocks[-1:][None, :]",
           "blocks[-2:-1][None, :]", "blocks_by_definition"),
    Bug("every head reads what head 0 chose", QUEST, "highest",
        lambda highest, scores, count: np.repeat(highest(scores, count)[:1], len(scores), axis=0),
        "blocks_by_definition"),
    Bug("blocks of the lowest bounds are read", QUEST, "highest",
        lambda highest, scores, count: highest(-scores, count), "blocks_by_definition"),
    Bug("the first query head chooses for its group", QUEST, "page_scores",
        lambda score, rows, bounds: score(rows[:, :1], bounds), "blocks_by_definition"),
    Mutant("prompts are read in part", QUEST, "Quest.__call__", "step.appends and length == 1 and",
           "", "blocks_by_definition"),
    # Edited requests
    Bug("keys are turned the other way", ROPE, "turn",
        lambda turn, config, k, distance: turn(config, k, -distance), "edits_are_exact"),
    Bug("YaRN's factor is applied twice", ROPE, "turn",
        lambda turn, config, k, distance: turn(config, k, distance)
        * np.float32(config.attention_factor), "edits_are_exact"),
    Bug("a turn rounds to half precision", ROPE, "turn", in_float32, "edits_are_exact"),
    Mutant("an edit without room loses the request", EDITING, "remove_span",
           "cache.truncate(edited, 0)", "cache.truncate(seq_id, 0)", "edits_are_exact"),
    # Layers that differ
    Bug("full layers rotate like those with a window", "kvlib.model.config", "ModelConfig.rope_of",
        lambda rope_of, config, layer: config.window_rope or config.rope, "layers_that_differ"),
    Bug("an expert's share is not its own", EXPERTS, "MixtureOfExperts.route",
        lambda route, part, x: (lambda chosen, share: (chosen, share[:, ::-1]))(*route(part, x)),
        "layers_that_differ"),
    Bug("every expert is the next one", EXPERTS, "MixtureOfExperts._expert",
        lambda expert, part, i, x: expert(part, (i + 1) % part.experts.num_experts, x),
        "layers_that_differ"),
    Bug("gate and up are taken by turns", "kvlib.config.families.gpt_oss", "_apart",
        lambda apart, values: values, "layers_that_differ"),
    # DeepSeek
    Bug("pairs of a rotated part stay together", DEEPSEEK, "_apart",
        lambda apart, start, width: list(range(start, start + width)), "latents_of_deepseek"),
    Bug("scores do not grow with YaRN", "kvlib.config.rope", "score_factor",
        lambda factor, keys: 1.0, "latents_of_deepseek"),
    Bug("scores grow by m in place of its square", "kvlib.config.rope", "score_factor",
        lambda factor, keys: factor(keys) ** 0.5, "latents_of_deepseek"),
    Bug("the norm takes the key's other part, too", "kvlib.model.latent",
        "LatentAttention.latents", normed_whole, "latents_of_deepseek"),
    Bug("frequencies lie the other way round", "kvlib.model.latent", "_turned",
        lambda turned, x, angles: turned(x[..., ::-1], angles)[..., ::-1], "latents_of_deepseek"),
    Bug("experts come from any group", EXPERTS, "_in_best_groups",
        lambda best, xp, ranked, router: ranked, "latents_of_deepseek"),
    Bug("a group is as good as its best expert", EXPERTS, "_in_best_groups",
        lambda best, xp, ranked, router: best(xp, ranked, router._replace(sigmoid=False)),
        "latents_of_deepseek"),
    Bug("shares are not scaled", EXPERTS, "MixtureOfExperts.route",
        lambda route, part, x: (lambda chosen, share: (chosen, share / part.router.scaling))(
            *route(part, x)), "latents_of_deepseek"),
    Bug("an expanded chunk sees only itself", "kvlib.model.latent", "_attend",
        lambda attend, q, latents, *rest: attend(q, latents[-len(q):], *rest), "long_chunks"),
    Bug("the position's part stands first in a key", "kvlib.model.latent", "expanded",
        part_first, "long_chunks"),
    Bug("expanded keys are those of another text", "kvlib.model.latent", "attend_expanded",
        lambda attend, cache, layer, q, step, **both: attend(
            cache, layer, q, copy_of(step, seq_ids=step.seq_ids[::-1]), **both), "long_chunks"),
    Bug("evicted tokens are expanded as if all were there", "kvlib.model.latent",
        "LatentAttention._expands", lambda expands, part, cache, step: True, "long_chunks"),
    Mutant("earlier pieces are not capped", "kvlib.model.latent", "_attend",
           "n, xp, **settings)", "n, xp, sm_scale=spec.sm_scale)", "long_chunks"),
    Bug("every step is expanded", "kvlib.model.latent", "expanding_pays",
        lambda expanding_pays, sizes, step: True, "long_chunks"),
]  # fmt: skip
