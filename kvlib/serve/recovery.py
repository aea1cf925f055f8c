"""How a scheduler frees requests that have ended, and goes on after errors and interference."""

from collections import deque
from collections.abc import Hashable, Iterable
from typing import Any

from kvlib.arguments import describe
from kvlib.caches import Cache
from kvlib.serve.request import WAITING, Decoding, Request, stamp

ADVICE = ". Please leave a running request alone, or end it with cancel or close"


def undo(cache: Cache, planned: Iterable[Request]) -> dict[Request, str]:
    """Truncate what a failed step planned, unless other code changed it; return what fails, why."""
    failures = {}
    for r in planned:
        try:
            if r.stamp[1] != r.held and r.untouched(cache):
                cache.truncate(r.name, r.held)
                r.mark(cache)
        except Exception as error:
            words = f"a failed step of request {describe(r.name)} could not be undone: {error}"
            failures[r] = words
    return failures


def interference(cache: Cache, r: Request) -> str:
    """Say what other code has done to a request in the cache."""
    now, during = stamp(cache, r.name), "while it was served"
    if r.state == WAITING:
        what, during = "was opened in the cache", "while it waited"
    elif now is None or now[0] is not r.stamp[0]:
        what = "was freed in the cache"
    elif now[1] != r.stamp[1]:
        what = f"held {r.stamp[1]} tokens in the cache and now holds {now[1]}"
    else:
        what = "was planned in the cache"
    return f"request {describe(r.name)} {what} by somebody else {during}"


def free(cache: Cache, decoding: Decoding, ended: deque[tuple[Hashable, Any]]) -> None:
    """Free requests, by name and stamp, in cache and drafter, trying twice; raise an error."""
    errors = list[BaseException]()
    while ended:
        name, last = ended.popleft()
        for call, args in ((release, (cache, name, last)), (decoding.free, (name,))):
            for _ in range(2):
                try:
                    call(*args)
                    break
                except BaseException as error:
                    errors.append(error)
    if errors:
        raise errors[0]


def release(cache: Cache, name: Hashable, last: Any) -> None:
    """Free a request whose stamp was `last`, unless the name is another request's by now."""
    sequence = cache._sequences.get(name)
    if sequence is not None and sequence is last[0]:
        cache.free(name)
