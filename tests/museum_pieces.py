"""Mutants of attention over pieces: blocks, codes, and several requests at once. See museum.py."""

import numpy as np
from mutation_kind import Bug, Mutant

CAUSAL, PIECES = "kvlib.attention.causal", "kvlib.attention.pieces"
BATCHED = "kvlib.attention.batched"
CASCADE = "kvlib.caches.cascade"


def queries_dealt_in_turn(attend, q, pieces, *rest, **settings):
    heads, kv_heads = q.shape[1], pieces.num_kv_heads
    turns = [h for first in range(kv_heads) for h in range(first, heads, kv_heads)]
    return attend(q[:, turns], pieces, *rest, **settings)


def begun_one_late(cut, *pages, first, last, end):
    return cut(*pages, first=first and first + 1, last=last, end=end)


def to_the_end_of_the_block(cut, xp, pages, table, heads, size, together, *, first, last, end):
    if end == last:
        end = last = -(-end // size) * size
    return cut(xp, pages, table, heads, size, together, first=first, last=last, end=end)


def weights_of_a_piece(weigh, pieces, i, p):
    return weigh(pieces, i, p / np.maximum(p.sum(axis=-1, keepdims=True), 1e-9))


def heads_and_blocks_swapped(side_by_side, fields, tables, rooms):
    x = side_by_side(fields, tables, rooms)
    requests, heads, tokens, dim = x.shape
    return x.reshape(requests, tokens, heads, dim).transpose(0, 2, 1, 3)


def without_sinks(attend, *given, sinks=None, **settings):
    return attend(*given, **settings)


def with_its_own_sink(part, cache, layer, q, step, shared, settings):
    sinks = cache.layers[layer].sinks
    return part(cache, layer, q, step, shared, {**settings, "sinks": sinks})


MUTANTS = [
    Bug("a query sees one key ahead", CAUSAL, "_apply_mask",
        lambda hide, xp, scores, first_query, window: hide(
            xp, scores, first_query=first_query + 1, window=window and window + 1
        ), "pieces_in_every_form"),
    Bug("window one too wide in pieces", CAUSAL, "_apply_mask",
        lambda hide, xp, scores, first_query, window: hide(
            xp, scores, first_query=first_query, window=window and window + 1
        ), "pieces_in_every_form"),
    Bug("window one too wide in decoding from pieces", CAUSAL, "attend_one_query",
        lambda decode, xp, q, pieces, length, window, *rest: decode(
            xp, q, pieces, length, window and window + 1, *rest
        ), "pieces_in_every_form"),
    Mutant("a piece behind the window is not masked", CAUSAL, "_apply_mask",
           "first_query + n - window)", "first_query + n - window - 1)", "pieces_in_every_form"),
    Mutant("a piece of the future is not masked", CAUSAL, "_apply_mask",
           "max(0, first_query + 1), m)", "max(0, first_query + 2), m)", "pieces_in_every_form"),
    Mutant("pieces left out one token early", CAUSAL, "attend_chunk",
           "max(0, first - window + 1)", "max(0, first - window + 2)", "pieces_in_every_form"),
    Mutant("pieces left out one token early in decoding", CAUSAL, "attend_one_query",
           "max(0, length - window)", "max(0, length - window + 1)", "pieces_in_every_form"),
    Mutant("the last piece of a chunk left out", PIECES, "Pieces.seen",
           "a < high]", "a < high - 1]", "pieces_in_every_form"),
    Mutant("a query before its piece is NaN", CAUSAL, "_apply_mask", "first_query < 0 or",
           "False or", "pieces_in_every_form"),
    Mutant("a query whose window lies after its piece is NaN", CAUSAL, "_apply_mask",
           "before_window == m", "before_window == m < first_query + n - window",
           "pieces_in_every_form"),
    Mutant("old pieces not rescaled", "kvlib.attention.partials", "join",
           "o_a * shrink_a", "o_a", "pieces_in_every_form"),
    Mutant("new pieces not rescaled", "kvlib.attention.partials", "join",
           "o_b *= shrink_b", "o_b *= 1", "pieces_in_every_form"),
    Bug("pieces begin after the window does", PIECES, "cut", begun_one_late,
        "pieces_in_every_form"),
    Bug("free slots of the last block are attended to", PIECES, "cut",
        to_the_end_of_the_block, "stored_schedules"),
    Bug("softmax divided in each piece", PIECES, "StoredPieces.weigh", weights_of_a_piece,
        "pieces_in_every_form"),
    Bug("the tail read one late", PIECES, "StoredPieces._waiting",
        lambda waiting, *asked: np.roll(waiting(*asked), -1, 1),
        "stored_schedules"),
    Bug("a chunk's queries stand at the beginning of the text", CAUSAL, "attend_pieces",
        lambda attend, q, pieces, length, xp, **settings: attend(
            q, pieces, q.shape[0], xp, **settings
        ), "pieces_in_every_form"),
    Bug("query heads dealt out in turn over pieces", CAUSAL, "attend_pieces",
        queries_dealt_in_turn, "pieces_in_every_form"),
    # Learned sinks, which each way to attend adds by itself (sglang #11634, vllm-metal #550)
    Bug("a sink is left out over pieces", CAUSAL, "attend_pieces", without_sinks,
        "pieces_in_every_form"),
    Bug("a sink is left out in a batch", BATCHED, "attend_texts", without_sinks,
        "batches_of_some"),
    Bug("a sink counts before and after a merge", CASCADE, "_private_parts", with_its_own_sink,
        "shared_parts_merge"),
    Mutant("a sink is left out of a merge", CASCADE, "run_cascade", "if spec.sinks is not None:",
           "if False:", "shared_parts_merge"),
    # Several requests in one product
    Bug("a batch of blocks begins one block late", "kvlib.caches.batches", "side_by_side",
        lambda side_by_side, store, tables, first, *rest: side_by_side(
            store, tables, first + (first > 0), *rest
        ), "windows_give_back"),
    Bug("results of a batch in the order of its lengths", BATCHED, "by_text",
        lambda by_text, result, batch, each: by_text(result, batch[::-1], each), "batches_of_some"),
    Bug("guesses of a batch see each other", BATCHED, "_apply_mask",
        lambda hide, xp, scores, a, ends, each: hide(xp, scores, a, ends, 1), "batches_of_some"),
    Bug("guesses of a batch do not see themselves", BATCHED, "_apply_mask",
        lambda hide, xp, scores, a, ends, each: hide(xp, scores, a, ends - (each > 1), each),
        "batches_of_some"),
    Bug("heads and guesses of a batch change places", BATCHED, "_by_token",
        lambda by_token, xp, x, each: by_token(xp, x, 1).reshape(
            -1, x.shape[1] * x.shape[2] // each, x.shape[3]
        ), "batches_of_some"),
    Bug("heads and blocks of a batch change places", "kvlib.caches.batches", "copied",
        heads_and_blocks_swapped, "stored_schedules"),
]  # fmt: skip
