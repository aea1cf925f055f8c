"""How many tokens of a step each request is fed."""

import sys
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from kvlib.arguments import check_flag, check_hashable, check_integer, describe, in_order, listed

R = TypeVar("R", bound=Hashable)


class Pending(NamedTuple, Generic[R]):
    """A request, and how many of its tokens still have to be fed.

    request   its name, or anything else that identifies it
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
    (kvlib.speculation), so they delay nobody. Requests that get nothing are left out.

    >>> running = [Pending("a", 1, decoding=True), Pending("b", 30)]
    >>> schedule(running, [Pending("c", 9)], budget=8)
    {'a': 1, 'b': 7}
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
    """Return what `schedule` does, for arguments that have been checked."""
    prompts = [p for p in running if not p.decoding]
    tokens = dict.fromkeys([p.request for p in running if p.decoding][:budget], 1)
    room = sys.maxsize if budget is None else budget - len(tokens)
    chunk = prefill_chunk or sys.maxsize
    begin = sys.maxsize if max_prefills is None else max_prefills - len(prompts)
    for p in prompts:
        if room > 0:
            tokens[p.request] = n = min(p.left, chunk, room)
            room -= n
    if prompts:  # in the order given
        tokens = {p.request: tokens[p.request] for p in running if p.request in tokens}
    queue = iter(waiting)
    while room > 0 and begin > 0 and (entry := next(queue, None)) is not None:
        tokens[entry.request] = n = min(entry.left, chunk, room)
        room, begin = room - n, begin - 1
    for p in running:
        if p.left > 1 and p.decoding and room > 0 and p.request in tokens:
            guesses = min(p.left - 1, room)
            tokens[p.request] += guesses
            room -= guesses
    return tokens


def check_limits(
    budget: int | None, prefill_chunk: int | None, max_prefills: int | None
) -> dict[str, int | None]:
    """Return the limits of a step by name, None for no limit; ValueError for one below 1."""
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
        return Pending(request, check_integer("left", left), check_flag("decoding", decoding))
    except (ValueError, TypeError) as error:
        raise type(error)(f"{error}, for request {describe(request)}") from None
