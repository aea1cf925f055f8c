"""Iteration-level batching: which request is fed how many tokens in the next step.

Plain data in, plain data out: this file knows no cache and no model, and it changes nothing. The
rule is that of Sarathi-Serve (arXiv:2403.02310): every request that decodes gets its token first,
and prompts share what is left of the budget, so a long prompt cannot hold the others up.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

R = TypeVar("R", bound=Hashable)


class Pending(NamedTuple, Generic[R]):
    """A request, and how many of its tokens still have to be fed.

    request   its name, or anything else that stands for it
    left      at least 1: tokens of its text that no step has been fed yet. A waiting request may
              need fewer in the end, because the cache may hold the beginning of its prompt.
    decoding  whether its prompt has been read, so that a step feeds it the last token alone

    >>> Pending("a", left=30)
    Pending(request='a', left=30, decoding=False)
    """

    request: R
    left: int
    decoding: bool = False


def schedule(
    running: Sequence[Pending[R]],
    waiting: Iterable[Pending[R]] = (),
    *,
    budget: int | None = None,
    prefill_chunk: int | None = None,
    max_prefills: int | None = None,
) -> dict[R, int]:
    """Decide how many tokens each request is fed in one step; returns {request: tokens}.

    running        requests that have begun, in the order in which they began
    waiting        requests that have not begun, the next one first. Only as many are looked at as
                   can begin.
    budget         tokens of the whole step at most, decodes included
    prefill_chunk  tokens of each prompt at most
    max_prefills   begin a prompt only while fewer than so many are being read

    None means no limit. Each request that decodes gets 1 token; if there are more of them than the
    budget has tokens, the first ones get theirs. The prompts that have begun then take what they
    can, in their order, and the waiting ones after them. The result lists the requests in the order
    given and leaves out those that get nothing.

    >>> running = [Pending("a", 1, decoding=True), Pending("b", 30)]
    >>> schedule(running, [Pending("c", 9)], budget=8)
    {'a': 1, 'b': 7}
    >>> schedule(running, [Pending("c", 9)], budget=40)
    {'a': 1, 'b': 30, 'c': 9}
    >>> schedule(running, [Pending("c", 9)], budget=40, max_prefills=1)
    {'a': 1, 'b': 30}
    >>> schedule(running, [Pending("c", 9)], prefill_chunk=4)
    {'a': 1, 'b': 4, 'c': 4}
    """
    prompts = [p for p in running if not p.decoding]
    tokens = dict.fromkeys([p.request for p in running if p.decoding][:budget], 1)
    room = sys.maxsize if budget is None else budget - len(tokens)
    chunk = sys.maxsize if prefill_chunk is None else prefill_chunk
    most = sys.maxsize if max_prefills is None else max_prefills
    for p in prompts:
        if room > 0:
            tokens[p.request] = n = min(p.left, chunk, room)
            room -= n
    if prompts:  # in the order given, whatever came first
        tokens = {p.request: tokens[p.request] for p in running if p.request in tokens}
    begun, queue = len(prompts), iter(waiting)
    while room > 0 and begun < most:
        following = next(queue, None)
        if following is None:
            break
        tokens[following.request] = n = min(following.left, chunk, room)
        room, begun = room - n, begun + 1
    return tokens
