"""Mutants of what is written and read back: pages, tails, codes, and chunks. See museum.py."""

import numpy as np
from mutation_kind import Bug, Mutant, changed

STORED, STORE = "kvlib.caches.stored", "kvlib.caches.store"
LAYOUTS, PIECES = "kvlib.caches.layouts", "kvlib.attention.pieces"
INT8, PACKING, ARRAYS = "kvlib.codecs.int8", "kvlib.codecs.packing", "kvlib.arrays"
SCHEDULER, REQUEST = "kvlib.serve.scheduler", "kvlib.serve.request"
RECOVERY = "kvlib.serve.recovery"


def first_request_only(append, cache, layer, k, v, step):
    append(cache, layer, k, v, changed(step, states=step.states[:1]))


def tail_of_after(truncate, cache, seq, length):
    for tail in seq.state.residuals:
        tail.previous = None
    truncate(cache, seq, length)


def tail_shifted(write, store, pages, tail, span, coded, new):
    written = write(store, pages, tail, span, coded, new)
    if tail is not None and coded[0] != coded[1]:
        tail.waiting[0] = np.roll(tail.waiting[0], 1, axis=1)
    return written


def history_encoded_again(write, store, pages, tail, span, coded, new):
    if coded[0] != coded[1]:
        for tensor in store.tensors:
            history = tensor.gather(pages[: -(-coded[0] // store.size)], coded[0])
            tensor.write(pages, 0, tensor.codec.decode(history, np.float16))
    return write(store, pages, tail, span, coded, new)


def slots_one_early(init, placement, *asked):
    init(placement, *asked)
    if placement.slots is not None:
        placement.slots = [(page, max(0, at - 1)) for page, at in placement.slots]


def codes_as_they_are(clipped, xp, x, low, high=None):
    return x if high in (3.0, 15.0, 255.0) else clipped(xp, x, low, high)


def no_largest_number(clipped, xp, x, low, high=None):
    return x if low is None else clipped(xp, x, low, high)


def neighbours_in_a_byte(unpack, packed, bits, dtype):
    codes = unpack(packed, bits, dtype)
    parts = codes.reshape(*codes.shape[:-1], 8 // bits, packed.shape[-1])
    return np.moveaxis(parts, -2, -1).reshape(codes.shape)


def one_token_early(part, request, n):
    if request.state == "decoding":
        return part(request, n)
    first = max(0, request.held - 1)
    return request.text[first : first + n]


def decodes_for_nothing(split_budget, running, waiting, budget, **limits):
    decodes = sum(p.decoding for p in running)
    return split_budget(running, waiting, budget and budget + decodes, **limits)


MUTANTS = [
    # Writing
    Bug("only the first request of a step is written", STORED, "StoredCache.append",
        first_request_only, "stored_schedules"),
    Bug("a decode step appends one slot early", "kvlib.caches.step",
        "Placement.__init__", slots_one_early, "stored_schedules"),
    Bug("append one slot early in a block", PIECES, "PagedTensor.put",
        lambda put, fields, pages, at, x: put(fields, pages, max(0, at - 1), x),
        "stored_schedules"),
    Bug("a block boundary is not seen", PIECES, "PagedTensor.put",
        lambda put, fields, pages, at, x: put(
            fields, [pages[at // fields.size]] * len(pages), at, x
        ), "stored_schedules"),
    Bug("a copy forgets the last token", PIECES, "PagedTensor.move",
        lambda move, mine, other, origin, target, first, n: move(
            mine, other, origin, target, first, n - 1
        ), "shared_prefixes"),
    Bug("blocks gathered in the order of the pool", PIECES, "page_head_index",
        lambda page_head_index, xp, pages, heads: page_head_index(xp, np.sort(pages), heads),
        "pieces_in_every_form"),
    Bug("slots of a block counted from its end", LAYOUTS, "slot_mapping",
        lambda slots, cache, *step: slots(cache, *step) // 4 * 4 + 3 - slots(cache, *step) % 4,
        "layouts_agree"),
    Bug("a full last page has length 0", LAYOUTS, "to_csr",
        lambda to_csr, table, lens, size: (csr := to_csr(table, lens, size))._replace(
            last_page_len=csr.last_page_len % size
        ), "layouts_agree"),
    # The newest tokens
    Bug("a step taken back leaves the tail of after", STORED, "StoredCache._truncate",
        tail_of_after, "stored_schedules"),
    Bug("the tail shifts by one at a flush", STORE, "Store.write", tail_shifted,
        "stored_schedules"),
    Bug("a fork shares the tail", STORE, "Residual.copy", lambda copy, tail: tail,
        "stored_schedules"),
    # Through float32 nothing would change (see test_museum_exhibits.py). Through the float16 of a
    # served model numbers move once and then stay: only a comparison bit for bit sees it.
    Bug("history decoded and encoded again at every flush", STORE, "Store.write",
        history_encoded_again, "stored_schedules"),
    # Codes
    Bug("codes not clipped", ARRAYS, "clipped", codes_as_they_are, "codecs_round_trip"),
    Bug("nibbles taken for neighbours", PACKING, "unpack", neighbours_in_a_byte,
        "codecs_round_trip"),
    Bug("scale folded twice", INT8, "Int8.scores",
        lambda scores, codec, rows, parts: (
            scores(codec, rows, parts) * parts["scales"][:, None, :]
        ), "codecs_round_trip"),
    Bug("scale of the values forgotten", INT8, "Int8.weigh",
        lambda weigh, codec, p, parts, dim: weigh(
            codec, p, {**parts, "scales": np.ones_like(parts["scales"])}, dim
        ), "codecs_round_trip"),
    Bug("fp8 beyond the largest number is NaN", ARRAYS, "clipped", no_largest_number,
        "codecs_round_trip"),
    # Chunks and the scheduler
    Bug("a chunk begins one token early", REQUEST, "Request.next_tokens", one_token_early,
        "chunks_and_schedules"),
    Mutant("a token is drawn from every chunk", REQUEST, "completed",
           "r.held + len(fed) >= r.length", "True", "chunks_and_schedules"),
    Bug("a token is drawn from another request's row", REQUEST, "draw_tokens",
        lambda draw_tokens, draws, *more: draw_tokens(
            [p._replace(row=i) for i, p in enumerate(draws)], *more
        ),
        "chunks_and_schedules"),
    Bug("a failed step leaves its tokens", RECOVERY, "undo", lambda *_: {},
        "chunks_and_schedules"),
    Mutant("a failed step leaves one token", RECOVERY, "undo",
           "cache.truncate(r.name, r.held)", "cache.truncate(r.name, r.held + 1)",
           "chunks_and_schedules"),
    Bug("what a failed step wrote stays open", SCHEDULER, "Scheduler.close", lambda *_: None,
        "chunks_and_schedules"),
    Bug("decodes do not count against the budget", "kvlib.serve.budget", "split_budget",
        decodes_for_nothing, "chunks_and_schedules"),
]  # fmt: skip
