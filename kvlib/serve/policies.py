"""Which request begins next, and which one gives up its room.

A policy is a function that gets a tuple of :class:`kvlib.serve.Request` and returns one of them:

    queue(waiting)    the request that begins next. `waiting` lists preempted requests first, then
                      the others in the order in which they arrived.
    victim(running)   the request that gives up its room in the cache when a step does not fit, and
                      is computed again later. `running` is in the order in which they began.

It changes no token of a request, but one that others always overtake or preempt never ends.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kvlib.arguments import describe, listed
from kvlib.serve.budget import Pending
from kvlib.serve.request import Request

Policy = Callable[[tuple[Request, ...]], Request]


def first_come(waiting: tuple[Request, ...]) -> Request:
    """Queue policy: first come, first served; a preempted request before all others.

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
    items = listed(name, requests, "requests")
    wrong = [x for x in items if not isinstance(x, Request)]
    if wrong or not items:
        came = describe(wrong[0]) if wrong else "none"
        raise TypeError(f"{name} must hold at least one request, and nothing else; got {came}")
    return items


def queued(policy: Policy, waiting: Sequence[Request]) -> Iterator[Pending[Request]]:
    """Yield the waiting requests in the order of a queue policy, asked for one at a time."""
    rest = list(waiting)
    while rest:
        r = pick("queue", policy, rest)
        rest.remove(r)
        yield Pending(r, r.length)


def pick(kind: str, policy: Policy, requests: Sequence[Request]) -> Request:
    """Return the request that a "queue" or "victim" policy picks; ValueError for any other."""
    choice = policy(tuple(requests))
    if not any(choice is request for request in requests):
        names = ", ".join(describe(request.name) for request in requests[:5])
        names += f" and {len(requests) - 5} more" if len(requests) > 5 else ""
        named = isinstance(choice, Request)
        what = f"the request {describe(choice.name)}" if named else describe(choice)
        raise ValueError(
            f"the {kind} policy must return one of the requests that it was given ({names}), "
            f"got {what}"
        )
    return choice


def check_policy(kind: str, policy: Any, example: Policy) -> Policy:
    """Return the "queue" or "victim" policy; TypeError, naming an example, if it is no function."""
    if not callable(policy):
        raise TypeError(
            f"{kind} must be a function that returns one of the requests it is given, such as "
            f"kvlib.serve.{example.__name__}, got {describe(policy)}"
        )
    return policy  # type: ignore[no-any-return]
