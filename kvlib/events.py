"""What a scheduler did, step by step, and how long its requests waited, in tokens."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import groupby
from typing import NamedTuple


class Event(NamedTuple):
    """One thing that a request did in a step.

    kind    hit      found in the cache, so not computed again
            prefill  fed a chunk of its prompt
            decode   fed its last token
            wait     the cache had no room for it, or for its chunk, in this step
            preempt  gave its room up; all its tokens will be fed again
            done     has ended
            cancel   was ended by :meth:`kvlib.Scheduler.cancel`
    tokens  how many were found, fed or given up
    token   the new token that the step gave it; None if there was none, or for a stop token

    >>> Event(step=3, request="a", kind="decode", tokens=1, token=65).kind
    'decode'
    """

    step: int
    request: Hashable
    kind: str
    tokens: int
    token: int | None = None


def waits(events: Iterable[Event]) -> dict[Hashable, list[int]]:
    """For each request, the tokens that all steps fed between one of its tokens and the next.

    This measures waiting without a clock, because a step that is fed more tokens takes longer. A
    request that decodes alone waits for 1 token each time.

    >>> events = [Event(1, "a", "prefill", 9, 65), Event(2, "a", "decode", 1, 66)]
    >>> waits([*events, Event(2, "b", "prefill", 7)])  # a waited for eight tokens
    {'a': [8]}
    """
    fed = 0
    last: dict[Hashable, int] = {}
    found: dict[Hashable, list[int]] = {}
    kinds = ("prefill", "decode", "done", "cancel")
    for _, group in groupby((e for e in events if e.kind in kinds), key=lambda e: e.step):
        together = list(group)
        fed += sum(e.tokens for e in together)
        for e in together:
            if e.kind in ("done", "cancel"):
                last.pop(e.request, None)  # its name may be another's next
            if e.token is None:
                continue
            if e.request in last:
                found.setdefault(e.request, []).append(fed - last[e.request])
            last[e.request] = fed
    return found
