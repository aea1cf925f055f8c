"""Room two: where a token stands."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

from kvbook.museum import guards, guards_stores, looks, looks_shared
from kvbook.museum.exhibit import Exhibit, by_a_model
from kvbook.museum.mutation import Call
from kvlib.arrays import Array
from kvlib.caches import Cache, Step
from kvlib.serve import DECODING, PREFILLING, WAITING, Event, Scheduler
from kvlib.serve.request import stamp

PROTOCOL, SCHEDULER = "kvlib.caches.protocol", "kvlib.serve.scheduler"


def a_slot_left_out(step: Call, server: Scheduler) -> list[Event]:
    reading = [r for r in server.requests.values() if not r.new]
    events: list[Event] = step(server)
    for r in reading:
        if r.new and r.state == DECODING:
            gap = server.cache.plan([r.name], [1])  # a slot of zeros before the token
            for layer, spec in enumerate(server.cache.layers):
                shape = (1, spec.num_kv_heads, spec.head_dim)
                zeros = server.cache.xp.zeros(shape, dtype=server.cache.dtype)
                server.cache.append(layer, zeros, zeros, gap)
            r.stamp = stamp(server.cache, r.name)  # the loop's own doing, so it does not notice
    return events


def last_token_again(step: Call, server: Scheduler) -> list[Event]:
    reading = [r for r in server.requests.values() if not r.new]
    events: list[Event] = step(server)
    for r in reading:
        if r.new and r.state == DECODING:
            again = r.prompt[-1:]
            server.model.forward(again, server.cache, server.cache.plan([r.name], [1], again))
            r.stamp = stamp(server.cache, r.name)  # as above
    return events


def positions_of_the_longest(plan: Call, cache: Cache, *request: Any) -> Step:
    step: Step = plan(cache, *request)
    return starting_at([max(starts(step))] * len(step.q_lens), step)


def positions_within_the_window(plan: Call, cache: Cache, *request: Any) -> Step:
    step: Step = plan(cache, *request)
    window = cache.layers[0].window
    return starting_at([min(a, window or a) for a in starts(step)], step)


def starts(step: Step) -> list[int]:
    """The position of each request's first new token."""
    return [end - n for end, n in zip(step.seq_lens, step.q_lens, strict=True)]


def starting_at(first: Sequence[int], step: Step) -> Step:
    """The step with its tokens from these positions on, request by request."""
    xp = step.owner.xp
    positions = [a + j for a, n in zip(first, step.q_lens, strict=True) for j in range(n)]
    step.positions = xp.asarray(positions, dtype=xp.int64)
    return step


def written_at_the_longest(
    append: Call, cache: Cache, layer: int, k: Array, v: Array, step: Step
) -> None:
    step = copy(step)
    step.seq_lens = (max(step.seq_lens),) * len(step.seq_lens)
    append(cache, layer, k, v, step)


def drawn_and_dropped(step: Call, server: Scheduler) -> list[Event]:
    before = {r: len(r.new) for r in server.requests.values() if r.state in (WAITING, PREFILLING)}
    events: list[Event] = step(server)
    for r, n in before.items():
        if n and r.state == DECODING:  # its text was read again, with what it had written
            del r.new[n:]
    return events


EXHIBITS = (
    Exhibit(
        "decode_one_position_late",
        SCHEDULER,
        "Scheduler.step",
        a_slot_left_out,
        room="positions",
        cite="likejazz/llama3.np at 7dae0e1, Llama.generate",
        happened="After the prompt, the decode loop began one position late. A slot of zeros stays "
        "between the prompt and the new tokens and is attended to, and every later token is "
        "rotated one position too far.",
        look=looks.a_name_asked_for,
        caught_by=guards.generated_tokens_equal_recomputed,
    ),
    Exhibit(
        "one_position_for_the_batch",
        PROTOCOL,
        "Cache.plan",
        positions_of_the_longest,
        room="positions",
        cite="unsloth #3699 (mended in #4100), transformers #29109",
        happened="All rows of a batch got the same positions. In unsloth these were the positions "
        "of the longest row, so each shorter, left-padded row was rotated by the wrong "
        "angles.",
        look=looks.beside_a_longer_one,
        caught_by=guards.a_row_alone_is_the_row_in_a_batch,
    ),
    Exhibit(
        "append_at_the_longest",
        "kvlib.caches.stored",
        "StoredCache.append",
        written_at_the_longest,
        room="positions",
        cite="omlx #2172 (mended in #2201)",
        happened="New tokens were written at the largest offset in the batch. That was right until "
        "the longest request left; then the score on GSM8K fell from 96.7 to 53.3 percent.",
        look=looks.beside_a_longer_one,
        caught_by=guards.any_row_may_leave,
    ),
    Exhibit(
        "length_of_a_local_layer",
        PROTOCOL,
        "Cache.plan",
        positions_within_the_window,
        room="positions",
        cite="transformers #38156",
        happened="The length of the text was read from layer 0. If that layer has a window, it "
        "never holds more tokens than the window, so the positions stop growing.",
        look=looks.first_layer_local,
        caught_by=guards.cached_logits_equal_recomputed,
    ),
    Exhibit(
        "last_prompt_token_twice",
        SCHEDULER,
        "Scheduler.step",
        last_token_again,
        room="positions",
        cite=by_a_model("qwen36/kv"),
        happened="After the prompt had been read, its last token was fed again to start decoding. "
        "The cache therefore holds it twice.",
        look=looks.one_request,
        caught_by=guards.the_cache_grows_by_one_token_per_token,
    ),
    Exhibit(
        "preempted_request_loses_a_token",
        SCHEDULER,
        "Scheduler.step",
        drawn_and_dropped,
        room="positions",
        cite="nano-vllm #217 (mended in #218)",
        happened="A preempted request is read again together with what it has written so far. The "
        "token that was drawn at the end of this second reading was dropped.",
        look=looks_shared.too_little_room,
        caught_by=guards_stores.preemption_changes_no_token,
    ),
)
