"""Serve texts with guesses, and compare tokens and caches with texts that never had any.

The caches of a life are watched: what the model appends is noted, and before a request is freed,
an empty cache gets the same keys and values, the prompt in one step and then token by token. Both
must then hold the same bytes, whatever guesses were stored and removed in between.

In batches of even size, a cache of blocks knows the tokens, so a request that was preempted finds
its blocks again. These hold what an earlier step of the same text computed, in other last bits, so
there only the tokens are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from kvlib import Cache, Decoder, Scheduler, generate
from kvlib.errors import OutOfBlocks
from kvlib.serve import Request
from kvlib.speculation import Drafter

BATCHES = range(1, 9)
Make = Callable[[int], Cache]  # requests → a cache with room for them


def any_gamma(request: Request) -> int:
    """0 to 9 guesses, another number in each step."""
    return (3 * request.length + len(request.prompt)) % 10


class Watch:
    """Notes what a cache is given, refuses plans now and then, and compares at the end."""

    def __init__(
        self, cache: Cache, make: Make, prompts: Mapping[Hashable, Sequence[int]], shares: bool
    ) -> None:
        self.cache, self.make, self.prompts, self.shares = cache, make, prompts, shares
        self.plan, self.append = cache.plan, cache.append
        self.add, self.free, self.keep = cache.add, cache.free, cache.keep
        self.noted: dict[Hashable, list[dict[int, tuple[np.ndarray, np.ndarray]]]] = {}
        self.begun: dict[Hashable, int] = {}  # lengths before the last plan
        self.rng, self.refusals, self.compared = np.random.default_rng(1), 0, 0
        for name in ("plan", "append", "keep", "add", "free"):
            setattr(cache, name, getattr(self, f"on_{name}"))

    def on_add(self, name: Hashable, tokens: Any = ()) -> int:
        self.noted[name] = [{} for _ in self.cache.layers]
        return self.add(name, tokens if self.shares else ())

    def on_plan(self, names: Any, lengths: Any, tokens: Any = None, parents: Any = None) -> Any:
        """Three refusals in a row every other ten steps: guesses are dropped, and requests too."""
        if not self.refusals and self.rng.random() < 0.06:
            self.refusals = 3
        if self.refusals and len(self.cache) > 1:
            self.refusals -= 1
            raise OutOfBlocks("no room, says the test")
        self.begun |= {name: self.cache.seq_len(name) for name in names}
        return self.plan(names, lengths, tokens if self.shares else None, parents)

    def on_append(self, layer: int, k: Any, v: Any, step: Any) -> None:
        at = 0
        for name, end, n in zip(step.seq_ids, step.seq_lens, step.q_lens, strict=True):
            for i in range(n):
                self.noted[name][layer][end - n + i] = np.array(k[at + i]), np.array(v[at + i])
            at += n
        self.append(layer, k, v, step)

    def on_keep(self, name: Hashable, path: Sequence[int]) -> None:
        first = self.begun[name]
        for rows in self.noted[name]:
            rows |= dict(enumerate([rows[first + number] for number in path], first))
        self.keep(name, path)

    def on_free(self, name: Hashable) -> None:
        if not self.shares and self.cache.seq_len(name) >= len(self.prompts[name]):
            self.compare(name)
        self.free(name)

    def compare(self, name: Hashable) -> None:
        """AssertionError unless the cache holds of a request what one without guesses holds."""
        length, first = self.cache.seq_len(name), len(self.prompts[name])
        plain = self.make(1)
        plain.add(name)
        for start, end in [(0, first), *((n, n + 1) for n in range(first, length))]:
            step = plain.plan([name], [end - start])
            for layer, rows in enumerate(self.noted[name]):
                k, v = zip(*(rows[p] for p in range(start, end)))
                plain.append(layer, np.stack(k), np.stack(v), step)
        for cache in (self.cache, plain):  # what waits to be encoded waits for the next plan
            cache.settle(name)
        for layer, spec in enumerate(self.cache.layers):
            own, needed = self.cache.read(layer, name), plain.read(layer, name)
            seen = max(0, length + 1 - (spec.window or length + 1))  # by the next query
            for _, _, positions in (own, needed):  # a window gives back in the next plan
                assert set(range(seen, length)) <= set(map(int, positions))
            keep = [np.asarray(x[2]) >= seen for x in (own, needed)]
            for x, y in zip(own, needed, strict=True):
                x, y = np.asarray(x)[keep[0]], np.asarray(y)[keep[1]]
                assert x.dtype == y.dtype and x.tobytes() == y.tobytes(), (layer, name)
        self.compared += 1


def alone(
    model: Decoder, make: Make, texts: Mapping[int, list[int]], new: int
) -> dict[int, list[int]]:
    """The new tokens of each text without guesses, each alone in a cache."""
    settings = dict(max_new_tokens=new, stop_tokens=())
    return {i: generate(model, [t], cache=make(1), **settings)[0] for i, t in texts.items()}


def live(
    model: Decoder,
    make: Make,
    drafter: Callable[[], Drafter],
    gamma: Any,
    texts: Mapping[int, list[int]],
    new: int,
    batches: Sequence[int] = BATCHES,
) -> tuple[dict[tuple[int, int], list[int]], dict[str, int]]:
    """Tokens by (batch, text) of requests served together with guesses, and what happened."""
    found, counts = {}, dict.fromkeys(("preempted", "drafted", "accepted", "compared"), 0)
    for batch in batches:
        names = [(3 * i + batch) % len(texts) for i in range(batch)]
        cache = make(batch)
        watch = Watch(cache, make, texts, shares=batch % 2 == 0)
        settings: Any = dict(budget=40, prefill_chunk=11, stop_tokens=())
        scheduler = Scheduler(model, cache, drafter=drafter(), gamma=gamma, **settings)
        for name in names:
            scheduler.add(name, texts[name], new)
        scheduler.run()
        assert not cache.seq_ids
        found |= {(batch, name): scheduler.requests[name].new for name in names}
        counts["preempted"] += sum(e.kind == "preempt" for e in scheduler.events)
        counts["compared"] += watch.compared
        for r in scheduler.requests.values():
            counts["drafted"] += r.drafted
            counts["accepted"] += r.accepted
    return found, counts
