"""The differential test of a cache, in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kvlib.arrays import default_namespace
from kvlib.caches import Cache, LayerSpec
from kvlib.testing.layers import Choose, lengths
from kvlib.testing.poison import poison_all
from kvlib.testing.schedule import Schedule, Terms
from kvlib.testing.trial import Trial

MakeCache = Callable[[Sequence[LayerSpec]], Cache]


def seeded(seed: int) -> Choose:
    """Decisions of a generator with that seed."""
    rng = np.random.default_rng(seed)
    return lambda low, high: int(rng.integers(low, high, endpoint=True))


def check_cache(
    make_cache: MakeCache,
    *,
    schedules: int = 40,
    actions: int = 30,
    seed: int = 0,
    xp: Any = None,
    **terms: Any,
) -> Trial:
    """Random lives of the cache, every result compared with float64 attention over everything.

    make_cache(layers) returns an empty cache with room for 4 requests of 40 tokens, on the array
    library `xp`, by default the one that caches take. A life is a row of random actions: add, step
    (plan, append, run with ragged lengths), read, truncate, fork, free, steps that fail, plans
    that must be refused, and trees of guesses if the cache takes them. After each one the whole
    cache is read, and ``read`` must refuse requests and layers that are not there. Memory that was
    never written holds NaN, and in kvlib's own kinds of caches so does freed memory.
    The trial says what it did not cover: trees, and lengths that ``truncate`` refused.

    Forty lives of one of kvlib's caches in NumPy take one to three seconds, of a slower cache more;
    schedules=4 is enough while you write.

    schedules of `actions` actions each; terms as in `Terms` (other room; a cache that evicts).
    A codec is asked for what it makes of a token alone: encoded or decoded with any others, the
    numbers must be the same to the last bit. Keys have 8, 16 or 24 numbers per head, values up
    to 40; choose others with ``lengths=[64]``.

    Stops at the first failure. TypeError or ValueError for arguments that make no sense.
    """
    if not callable(make_cache):
        raise TypeError(f"make_cache: got {type(make_cache).__name__}, needed layers → cache")
    for name, value in (("schedules", schedules), ("actions", actions)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    asked, compared, name = Terms(**terms), 0, "cache"
    trees, refused_lengths = True, 0
    xp = default_namespace() if xp is None else xp
    for number in range(1, schedules + 1):
        at = seed + number - 1
        life, error = _play(make_cache, at, actions, xp, asked)
        if life is not None:
            name, compared = type(life.cache).__name__, compared + life.compared
            trees, refused_lengths = trees and life.trees, refused_lengths + life.refused_lengths
        if error is not None:
            log = () if life is None else tuple(life.log)
            refused = life is None and not isinstance(error, TypeError)
            words = _words(error) + (_lengths(asked) if refused else "")
            return Trial(name, number, compared, words, at, actions, log)
    skipped = [] if trees else ["trees of guesses"]
    if refused_lengths:
        skipped.append(f"{refused_lengths} lengths that truncate refused")
    return Trial(name, schedules, compared, skipped=tuple(skipped))


def replay(
    make_cache: MakeCache, seed: int, actions: int = 30, *, xp: Any = None, **terms: Any
) -> Schedule:
    """Play one schedule again, with the error and its traceback as they come.

    Returns the schedule where nothing fails; its `cache`, `held` and `log` can be looked at.
    """
    xp = default_namespace() if xp is None else xp
    life = Schedule(_poisoned(make_cache), seeded(seed), xp=xp, terms=Terms(**terms))
    life.play(actions)
    return life


def _play(
    make_cache: MakeCache, seed: int, actions: int, xp: Any, terms: Terms
) -> tuple[Schedule | None, Exception | None]:
    """One life, and what went wrong in it."""
    life = None
    try:
        life = Schedule(_poisoned(make_cache), seeded(seed), xp=xp, terms=terms)
        with np.errstate(all="ignore"):  # NaN that is read shows in the results
            life.play(actions)
    except Exception as error:  # the cache is somebody's first: whatever it raises becomes words
        return life, error
    return life, None


def _poisoned(make_cache: MakeCache) -> MakeCache:
    def make(layers: Sequence[LayerSpec]) -> Cache:
        cache = make_cache(layers)
        if not isinstance(cache, Cache):
            raise TypeError(f"make_cache gave {type(cache).__name__}, needed a kvlib.Cache")
        poison_all(cache)
        return cache

    return make


def _lengths(terms: Terms) -> str:
    """What was asked of a cache that was not built."""
    found = sorted({length for kind in lengths(terms) for length in kind})
    return (
        f". The kit builds caches for keys and values of {', '.join(map(str, found))} numbers; "
        "lengths=[64] asks for 64 alone"
    )


# What somebody's first cache stumbles over: a part of the error, and what to do.
HINTS = {
    "'NoneType' object": "was v None? A layer with v_from_k appends v=None, because its values "
    "are the first v_dim numbers of its keys. Store those, or check with v_from_k=False",
    "has not appended its keys": "append must end by saying that the layer's keys are "
    "there: step.ticket.appended.add(layer)",
    "does not name its arrays": "write storage(), which yields every array that the cache holds",
    "does not measure its memory": "write memory(), which returns a kvlib.caches.Memory measured "
    "from the arrays",
    "unpack (expected 3, got 2)": "read(layer, seq_id) returns three: (k, v, positions)",
    "cannot be read": "write read(layer, seq_id), which returns (k, v, positions)",
    "cannot append": "write append(layer, k, v, step)",
    "cannot fork requests": "write _copy(source, seq_id), which returns the new Request",
}


def _words(error: Exception) -> str:
    text = str(error).split("\nafter: ")[0]
    if isinstance(error, AssertionError):
        return text
    hints = [hint for part, hint in HINTS.items() if part in text]
    return f"{type(error).__name__}: {text}" + "".join(
        f". {hint[0].upper()}{hint[1:]}" for hint in hints
    )
