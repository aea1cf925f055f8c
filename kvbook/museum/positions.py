"""At which position a token is."""

from collections.abc import Sequence
from copy import copy
from typing import Any

from kvbook.museum import guards, guards_stores, looks
from kvbook.museum.exhibit import Exhibit, collector
from kvbook.museum.mutation import Call
from kvlib.arrays import Array
from kvlib.caches import Cache, Step
from kvlib.serve import DECODING, PREFILLING, WAITING, Event, Scheduler
from kvlib.serve.request import stamp

PROTOCOL, SCHEDULER = "kvlib.caches.protocol", "kvlib.serve.scheduler"

EXHIBITS: list[Exhibit] = []
shipped = collector("positions", EXHIBITS)


@shipped(
    SCHEDULER,
    "Scheduler.step",
    cite="likejazz/llama3.np at 7dae0e1, Llama.generate",
    caught_by=guards.generated_tokens_equal_recomputed,
    look=looks.a_name_asked_for,
)
def decode_one_position_late(step: Call, server: Scheduler) -> list[Event]:
    """The decode loop began one position late: a slot of zeros stayed between the prompt and the
    new tokens."""
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


@shipped(
    SCHEDULER,
    "Scheduler.step",
    cite="sleepyeldrazi/llm_programming_tests, qwen36/kv",
    caught_by=guards.the_cache_grows_by_one_token_per_token,
    look=looks.one_request,
)
def last_prompt_token_twice(step: Call, server: Scheduler) -> list[Event]:
    """To start decoding, the prompt's last token was fed again, so the cache contained it twice."""
    reading = [r for r in server.requests.values() if not r.new]
    events: list[Event] = step(server)
    for r in reading:
        if r.new and r.state == DECODING:
            again = r.prompt[-1:]
            server.model.forward(again, server.cache, server.cache.plan([r.name], [1], again))
            r.stamp = stamp(server.cache, r.name)  # as above
    return events


@shipped(
    PROTOCOL,
    "Cache.plan",
    cite="unsloth #3699 (fixed in #4100), transformers #29109",
    caught_by=guards.a_row_alone_is_the_row_in_a_batch,
    look=looks.beside_a_longer_one,
)
def one_position_for_the_batch(plan: Call, cache: Cache, *request: Any) -> Step:
    """All rows of a batch got the positions of the longest row."""
    step: Step = plan(cache, *request)
    return starting_at([max(starts(step))] * len(step.q_lens), step)


@shipped(
    PROTOCOL,
    "Cache.plan",
    cite="transformers #38156",
    caught_by=guards.cached_logits_equal_recomputed,
)
def length_of_a_local_layer(plan: Call, cache: Cache, *request: Any) -> Step:
    """The text's length was read from layer 0; if that layer has a window, positions stop
    growing."""
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
    step._positions = xp.asarray(positions, dtype=xp.int64)
    return step


@shipped(
    "kvlib.caches.stored",
    "StoredCache.append",
    cite="omlx #2172 (fixed in #2201)",
    caught_by=guards.any_row_may_leave,
    look=looks.beside_a_longer_one,
    lines=(
        "(max(step.seq_lens),) * len(step.seq_lens)",
        "end - table.freed for table, end in zip(tables, seq_lens, strict=True)",
    ),
)
def append_at_the_longest(
    append: Call, cache: Cache, layer: int, k: Array, v: Array, step: Step
) -> None:
    """New tokens were written at the largest offset in the batch, also after the longest request
    had finished."""
    step = copy(step)
    step.seq_lens = (max(step.seq_lens),) * len(step.seq_lens)
    append(cache, layer, k, v, step)


@shipped(
    SCHEDULER,
    "Scheduler.step",
    cite="nano-vllm #217 (fixed in #218)",
    caught_by=guards_stores.preemption_changes_no_token,
)
def preempted_request_loses_a_token(step: Call, server: Scheduler) -> list[Event]:
    """A preempted request is read again with what it has written; the token drawn after that was
    dropped."""
    before = {r: len(r.new) for r in server.requests.values() if r.state in (WAITING, PREFILLING)}
    events: list[Event] = step(server)
    for r, n in before.items():
        if n and r.state == DECODING:  # its text was read again, with what it had written
            del r.new[n:]
    return events
