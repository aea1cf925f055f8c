"""Policies of a scheduler: which request begins next, and which one gives way.

A policy is a function that is given requests and returns one of them:

    queue(waiting)    the request that begins next. `waiting` lists preempted requests first, then
                      the others in the order in which they arrived.
    victim(running)   the request that gives up its room in the cache when a step does not fit. It
                      is computed again later. `running` lists the requests in the order in which
                      they began.

Both get a tuple of :class:`kvlib.scheduling.Request` with at least one request. A policy decides
who waits and what is computed twice, and it cannot change which tokens a request gets. It can keep
a request from ending: one that others always overtake, or that gives way again and again. A policy
of your own needs no more than this:

>>> def longest_first(waiting):
...     return max(waiting, key=lambda request: request.length)
>>> longest_first((Request("a", [1]), Request("b", [1, 2]))).name
'b'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kvlib.attention.checks import describe
from kvlib.serving import Request

Policy = Callable[[tuple[Request, ...]], Request]


def first_come(waiting: tuple[Request, ...]) -> Request:
    """Queue policy: first come, first served. A preempted request comes before all others.

    >>> first_come((Request("a", [1, 2, 3]), Request("b", [4]))).name
    'a'
    """
    return waiting[0]


def shortest_first(waiting: tuple[Request, ...]) -> Request:
    """Queue policy: the shortest prompt first, which lowers the mean time to the first token.

    A preempted request whose reader has already seen tokens comes before the others. As long as
    short prompts keep coming, a long one waits.

    >>> shortest_first((Request("a", [1, 2, 3]), Request("b", [4]))).name
    'b'
    """
    return min(waiting, key=lambda request: (not request.new, len(request.prompt)))


def youngest(running: tuple[Request, ...]) -> Request:
    """Victim policy: the request that began last, so that the oldest always gets on (as in vLLM).

    >>> youngest((Request("a", [1, 2], held=2), Request("b", [3, 4, 5], held=3))).name
    'b'
    """
    return running[-1]


def fewest_lost(running: tuple[Request, ...]) -> Request:
    """Victim policy: the request with the fewest tokens in the cache; of equals, the youngest.

    These tokens have to be computed again, so less work is lost than under :func:`youngest`.

    >>> fewest_lost((Request("a", [1, 2], held=2), Request("b", [3, 4, 5], held=3))).name
    'a'
    """
    return min(reversed(running), key=lambda request: request.held)


def pick(kind: str, policy: Policy, requests: Iterable[Request]) -> Request:
    """Ask a policy, or raise ValueError if what it returns is not one of the requests it was given.

    kind: what the policy is called in the error, "queue" or "victim".
    """
    given = tuple(requests)
    found = policy(given)
    if not any(found is request for request in given):
        names = ", ".join(repr(request.name) for request in given[:5])
        names += f" and {len(given) - 5} more" if len(given) > 5 else ""
        what = f"the request {found.name!r}" if isinstance(found, Request) else describe(found)
        raise ValueError(
            f"the {kind} policy must return one of the requests that it was given ({names}), "
            f"got {what}"
        )
    return found


def check_policy(kind: str, policy: object, example: Policy) -> None:
    """Refuse a "queue" or "victim" policy that cannot be called, naming one that can."""
    if not callable(policy):
        raise TypeError(
            f"{kind} must be a function that returns one of the requests it is given, such as "
            f"kvlib.scheduling.{example.__name__}, got {describe(policy)}"
        )
