"""The step of a server: decide who is fed how much, make room, run the model, draw the tokens.

:func:`kvlib.generate` and :class:`kvlib.Scheduler` are loops around this step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator

from kvlib import serving
from kvlib.batching import Pending, schedule
from kvlib.caches import Cache, Step
from kvlib.errors import CacheFull, OutOfBlocks
from kvlib.events import Event
from kvlib.model.decoder import Decoder
from kvlib.policies import Policy, Rules, pick
from kvlib.prompts import check_cache, stop_ids
from kvlib.serving import CANCELLED, DECODING, DONE, PREFILLING, WAITING, Request


class Engine:
    """Requests that wait and run on one model and one cache; ``step`` runs one forward pass.

    rules: what a step may be fed, whose turn it is and who gives way. `requests` holds all requests
    by name, `events` what they did. :class:`kvlib.Scheduler` adds what a user needs around it.

    >>> from kvlib import load_reference_model
    >>> model = load_reference_model()
    >>> engine = Engine(model, model.new_cache(1, 64))
    >>> engine.submit(Request("a", list(b"import o"), max_new_tokens=1))
    >>> [event.kind for event in engine.step()]
    ['prefill', 'done']
    """

    def __init__(
        self,
        model: Decoder,
        cache: Cache,
        rules: Rules | None = None,
        stop_tokens: Iterable[int] | None = None,
    ) -> None:
        check_cache(model, cache)
        self.model, self.cache, self.rules = model, cache, rules or Rules()
        self.requests: dict[Hashable, Request] = {}
        self.events: list[Event] = []
        self.num_steps = 0
        self._limits, self._stops = self.rules.limits, stop_ids(model, stop_tokens)
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []  # in the order in which they began

    def submit(self, request: Request) -> None:
        """Queue a request whose name, prompt and settings have been checked."""
        self.requests[request.name] = request
        self._waiting.append(request)

    def close(self) -> None:
        """Cancel all requests that wait or run, between two steps."""
        for r in (*self._running, *self._waiting):
            self._cancel(r)

    @property
    def busy(self) -> bool:
        """Whether a request waits or runs."""
        return bool(self._waiting or self._running)

    def step(self) -> list[Event]:
        """Run one forward pass over the requests whose turn it is; returns what each one did.

        Raises CacheFull or OutOfBlocks if the cache has too little room and no request gives way:
        not even one has room because the cache is used elsewhere, too, or there is no victim
        policy. Raises ValueError if a policy picks a request that it was not given. Whatever fails,
        no token is lost and the step can be tried again.
        """
        seen = len(self.events)
        parts = {r: r.part(n) for r, n in self._admit().items()}
        if parts:
            self._forward(parts)
            self.num_steps += 1
        return self.events[seen:]

    def _schedule(self, waiting: Iterable[Pending[Request]] = ()) -> dict[Request, int]:
        running = [
            Pending(r, 1, True) if r.state == DECODING else Pending(r, r.length - r.held)
            for r in self._running
        ]
        return schedule(running, waiting, **self._limits)

    def _admit(self) -> dict[Request, int]:
        """Begin all requests that can begin in this step; returns the tokens of each request."""
        later: set[Request] = set()  # those whose turn it is, but which have to wait for the cache
        while self._waiting:
            shares = self._schedule(self._next(later))
            new = [r for r in shares if r.state == WAITING]
            if not new:
                return shares
            self._open(new, later)  # what the cache holds of them is not fed: decide once more
        return self._schedule()

    def _next(self, later: set[Request]) -> Iterator[Pending[Request]]:
        """The waiting requests in the order of the queue policy, which is asked one at a time."""
        waiting = [r for r in self._waiting if r not in later]
        while waiting:
            r = pick("queue", self.rules.queue, waiting)
            waiting.remove(r)
            yield Pending(r, r.length)

    def _open(self, new: list[Request], later: set[Request]) -> None:
        """Open requests in the cache; those that cannot begin in this step go to `later`."""
        for r in self._running:
            self.cache.settle(r.name)  # what it has computed may be what a new one begins with
        for r in new:
            text, others = r.text, ((x.name, x.prompt) for x in self._running)
            if self._running and self.cache.waits_for(text, others):
                later.add(r)
                continue
            try:
                held = self.cache.add(r.name, text)
            except (CacheFull, OutOfBlocks):
                if self.rules.victim is None or not self._running:
                    raise
                self._note(r, "wait")
                later.update(self._waiting)  # nobody overtakes a request that waits for room
                return
            self._waiting.remove(r)
            self._running.append(r)
            r.state, r.held = PREFILLING, held
            if held:
                self._note(r, "hit", held)

    def _forward(self, parts: dict[Request, list[int]]) -> None:
        """Feed each request its part; those whose text is through get their next token."""
        step, fed = self._plan(parts)
        rows = {
            r: row for row, (r, part) in enumerate(parts.items()) if r.held + len(part) >= r.length
        }
        try:
            drawn = serving.draw(rows, self.model.forward(fed, self.cache, step))
        except BaseException:
            serving.undo(self.cache, step)
            raise
        for r, part in parts.items():
            kind, token = "decode" if r.state == DECODING else "prefill", drawn.get(r)
            r.held += len(part)
            stopped = token in self._stops
            self._note(r, kind, len(part), None if stopped else token)
            if token is None:
                continue
            r.state = DECODING
            if not stopped:
                r.new.append(token)
            if stopped or len(r.new) == r.max_new_tokens:
                self._leave(r, DONE)
                self._note(r, "done")

    def _plan(self, parts: dict[Request, list[int]]) -> tuple[Step, list[int]]:
        """Reserve room for all parts; where there is too little of it, requests give way."""
        while True:
            names, lengths = [r.name for r in parts], [*map(len, parts.values())]
            fed = [t for part in parts.values() for t in part]
            try:
                return self.cache.plan(names, lengths, fed), fed
            except (CacheFull, OutOfBlocks):
                if self.rules.victim is None or len(self._running) == 1:
                    raise
                self._give_way(self.rules.victim, parts)

    def _give_way(self, victim: Policy, parts: dict[Request, list[int]]) -> None:
        """The last chunk of a prompt waits for the next step; without one, the victim goes back."""
        chunks = [r for r in parts if r.state == PREFILLING]
        if chunks and len(parts) > 1:
            self._note(chunks[-1], "wait")
            del parts[chunks[-1]]
            return
        r = pick("victim", victim, self._running)
        self._note(r, "preempt", r.held)
        self._leave(r, WAITING)
        self._waiting.appendleft(r)
        parts.pop(r, None)
        if not parts:  # it had its turn alone: now chunks that wait have room
            parts.update((r, r.part(n)) for r, n in self._schedule().items())

    def _leave(self, r: Request, state: str) -> None:
        self.cache.free(r.name)
        self._running.remove(r)
        r.state, r.held = state, 0

    def _cancel(self, r: Request) -> None:
        if r.state == WAITING:
            self._waiting.remove(r)
            r.state = CANCELLED
        else:
            self._leave(r, CANCELLED)
        self._note(r, "cancel")

    def _note(self, r: Request, kind: str, tokens: int = 0, token: int | None = None) -> None:
        self.events.append(Event(self.num_steps, r.name, kind, tokens, token))
