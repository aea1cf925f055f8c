"""Decisions of a scheduler: who is fed how many tokens, who begins next, and who gives way.

A policy is a function that gets a tuple of :class:`kvlib.serve.Request` and returns one of them:

    queue(waiting)    the request that begins next. `waiting` lists preempted requests first, then
                      the others in the order in which they arrived.
    victim(running)   the request that gives up its room in the cache when a step does not fit, and
                      is computed again later. `running` is in the order in which they began.

A policy cannot change which tokens a request gets. It can keep a request from ending: one that
others always overtake, or that gives way again and again. Your own policy needs no more than this:

>>> def longest_first(waiting):
...     return max(waiting, key=lambda request: request.length)
>>> longest_first((Request("a", [1]), Request("b", [1, 2]))).name
'b'
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from kvlib.arguments import check_flag, check_hashable, check_integer, describe, in_order, listed
from kvlib.serve.request import Request

R = TypeVar("R", bound=Hashable)


class Pending(NamedTuple, Generic[R]):
    """A request, and how many of its tokens still have to be fed.

    request   its name, or anything else that stands for it
    left      at least 1: tokens of its text that no step has been fed yet, or the last token of a
              request that decodes and the guesses after it
    decoding  whether its prompt has been read

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
    waiting        the others, the next one first; read no further than the last one that begins
    budget         tokens of the whole step at most, decodes included; None: no limit
    prefill_chunk  tokens of each prompt at most; None: no limit
    max_prefills   begin a prompt only while fewer than so many are being read; None: no limit

    Each request that decodes gets 1 token, the first ones if the budget is too small for all. The
    rest goes to the prompts that have begun, in their order, then to the waiting ones, so a long
    prompt cannot hold up who decodes (Sarathi-Serve, arXiv:2403.02310). Guesses get what remains
    (kvlib.speculation), so they delay nobody. The result lists the requests in the order given and
    leaves out those that get nothing.

    >>> running = [Pending("a", 1, decoding=True), Pending("b", 30)]
    >>> schedule(running, [Pending("c", 9)], budget=8)
    {'a': 1, 'b': 7}
    >>> schedule(running, [Pending("c", 9)], budget=40)
    {'a': 1, 'b': 30, 'c': 9}
    >>> schedule(running, [Pending("c", 9)], budget=40, max_prefills=1)
    {'a': 1, 'b': 30}
    >>> schedule(running, [Pending("c", 9)], prefill_chunk=4)
    {'a': 1, 'b': 4, 'c': 4}
    >>> schedule([Pending("a", 5, decoding=True), Pending("b", 30)], budget=33)
    {'a': 3, 'b': 30}
    """
    limits = check_limits(budget, prefill_chunk, max_prefills)
    seen: set[R] = set()
    begun = [_checked("running", p, seen) for p in listed("running", running, "Pending")]
    queue = (_checked("waiting", p, seen) for p in in_order("waiting", waiting, "Pending"))
    return split_budget(begun, queue, **limits)


def split_budget(
    running: Sequence[Pending[R]],
    waiting: Iterable[Pending[R]],
    budget: int | None,
    prefill_chunk: int | None,
    max_prefills: int | None,
) -> dict[R, int]:
    """What `schedule` returns, for arguments that have been checked."""
    prompts = [p for p in running if not p.decoding]
    tokens = dict.fromkeys([p.request for p in running if p.decoding][:budget], 1)
    room = sys.maxsize if budget is None else budget - len(tokens)
    chunk = prefill_chunk or sys.maxsize
    free = sys.maxsize if max_prefills is None else max_prefills - len(prompts)
    for p in prompts:
        if room > 0:
            tokens[p.request] = n = min(p.left, chunk, room)
            room -= n
    if prompts:  # in the order given, whatever came first
        tokens = {p.request: tokens[p.request] for p in running if p.request in tokens}
    queue = iter(waiting)
    while room > 0 and free > 0 and (entry := next(queue, None)) is not None:
        tokens[entry.request] = n = min(entry.left, chunk, room)
        room, free = room - n, free - 1
    for p in running:
        if p.left > 1 and p.decoding and room > 0 and p.request in tokens:
            n = min(p.left - 1, room)
            tokens[p.request] += n
            room -= n
    return tokens


def check_limits(
    budget: int | None, prefill_chunk: int | None, max_prefills: int | None
) -> dict[str, int | None]:
    """The limits of a step by name, None for no limit; ValueError for one below 1."""
    limits = {"budget": budget, "prefill_chunk": prefill_chunk, "max_prefills": max_prefills}
    return {n: None if x is None else check_integer(n, x) for n, x in limits.items()}


def _checked(name: str, pending: Any, seen: set[R]) -> Pending[R]:
    """Return the entry with plain Python numbers; refuse a request that is already in `seen`."""
    if not isinstance(pending, Pending):
        raise TypeError(f"{name} must hold Pending, got {describe(pending)}")
    request, left, decoding = pending
    if check_hashable("request", request) in seen:
        raise ValueError(f"request {describe(request)} is listed twice, the second time in {name}")
    seen.add(request)
    try:
        return Pending(request, check_integer("left", left, 0), check_flag("decoding", decoding))
    except (ValueError, TypeError) as error:
        raise type(error)(f"{error}, for request {describe(request)}") from None


Policy = Callable[[tuple[Request, ...]], Request]


def first_come(waiting: tuple[Request, ...]) -> Request:
    """Queue policy: first come, first served. A preempted request comes before all others.

    >>> first_come((Request("a", [1, 2, 3]), Request("b", [4]))).name
    'a'
    """
    return _checked_requests("waiting", waiting)[0]


def shortest_first(waiting: tuple[Request, ...]) -> Request:
    """Queue policy: the shortest prompt first, which lowers the mean time to the first token.

    A request that has got tokens comes before the others. A long prompt waits for all short ones.

    >>> shortest_first((Request("a", [1, 2, 3]), Request("b", [4]))).name
    'b'
    """
    return min(_checked_requests("waiting", waiting), key=lambda r: (not r.new, len(r.prompt)))


def youngest(running: tuple[Request, ...]) -> Request:
    """Victim policy: the request that began last, so that the oldest always gets on (as in vLLM).

    >>> youngest((Request("a", [1, 2], held=2), Request("b", [3, 4, 5], held=3))).name
    'b'
    """
    return _checked_requests("running", running)[-1]


def fewest_lost(running: tuple[Request, ...]) -> Request:
    """Victim policy: the fewest tokens in the cache to compute again; of equals, the youngest.

    >>> fewest_lost((Request("a", [1, 2], held=2), Request("b", [3, 4, 5], held=3))).name
    'a'
    """
    return min(reversed(_checked_requests("running", running)), key=lambda r: r.held)


def _checked_requests(name: str, requests: Any) -> list[Request]:
    found = listed(name, requests, "requests")
    wrong = [r for r in found if not isinstance(r, Request)]
    if wrong or not found:
        came = describe(wrong[0]) if wrong else "none"
        raise TypeError(f"{name} must hold at least one request, and nothing else; got {came}")
    return found


def queued(policy: Policy, waiting: Sequence[Request]) -> Iterator[Pending[Request]]:
    """The waiting requests in the order of a queue policy, which is asked for one at a time."""
    rest = list(waiting)
    while rest:
        r = pick("queue", policy, rest)
        rest.remove(r)
        yield Pending(r, r.length)


def pick(kind: str, policy: Policy, requests: Sequence[Request]) -> Request:
    """Ask a policy, or raise ValueError if what it returns is not one of the requests it was given.

    kind: what the policy is called in the error, "queue" or "victim".
    """
    found = policy(tuple(requests))
    if not any(found is request for request in requests):
        names = ", ".join(describe(request.name) for request in requests[:5])
        names += f" and {len(requests) - 5} more" if len(requests) > 5 else ""
        named = isinstance(found, Request)
        what = f"the request {describe(found.name)}" if named else describe(found)
        raise ValueError(
            f"the {kind} policy must return one of the requests that it was given ({names}), "
            f"got {what}"
        )
    return found


def check_policy(kind: str, policy: Any, example: Policy) -> Policy:
    """The "queue" or "victim" policy, unless it cannot be called; names an example that can."""
    if not callable(policy):
        raise TypeError(
            f"{kind} must be a function that returns one of the requests it is given, such as "
            f"kvlib.serve.{example.__name__}, got {describe(policy)}"
        )
    return policy  # type: ignore[no-any-return]
