"""One step of a server: every running request decodes a token, one prompt is read on by a chunk.

A prompt that is prefilled whole holds up everyone who decodes. Read in chunks that share a forward
pass with the decodes, it holds them up by a budget of tokens a step (Sarathi-Serve,
arXiv:2403.02310). Who finds no room is computed again later (as in vLLM, arXiv:2309.06180).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable

from kvlib import serving
from kvlib.caches import Cache, Step
from kvlib.errors import CacheFull, OutOfBlocks
from kvlib.events import Event, waits
from kvlib.model.decoder import Decoder
from kvlib.prompts import check_cache, check_positive, stop_ids
from kvlib.sampling import greedy
from kvlib.serving import CANCELLED, DECODING, DONE, PREFILLING, WAITING, Request

__all__ = [
    "CANCELLED",
    "DECODING",
    "DONE",
    "PREFILLING",
    "WAITING",
    "Event",
    "Request",
    "Scheduler",
    "waits",
]


class Scheduler:
    """Requests come with ``add``, at any time; ``step`` runs one forward pass for those it can.

    cache    any cache of ``model.layer_specs``; of a PagedCache, prompts share prefixes
    budget   tokens a step at most, decodes included; None: no limit, prompts are read whole
    Under a cache that keeps numbers as they came, a request's tokens do not depend on the others,
    on the budget or on the room. A request is let in while fewer than `budget` decode, so a prompt
    always gets a chunk of at least 1 token. `requests` holds them all by name, `events` what they
    did; ``cancel`` ends one early, and the name of one that has ended can be used again.

    >>> from kvlib import load_reference_model
    >>> model = load_reference_model()
    >>> scheduler = Scheduler(model, model.new_cache(2, 64), budget=4)
    >>> scheduler.add("a", list(b"import o"), max_new_tokens=1)
    >>> [event.kind for event in scheduler.step()]  # four of eight tokens
    ['prefill']
    """

    def __init__(
        self,
        model: Decoder,
        cache: Cache,
        *,
        budget: int | None = None,
        stop_tokens: Iterable[int] | None = None,
    ) -> None:
        check_cache(model, cache)
        if budget is not None:
            check_positive("budget", budget)
        self.model, self.cache, self.budget = model, cache, budget
        self.requests: dict[Hashable, Request] = {}
        self.events: list[Event] = []
        self.num_steps = 0
        self._stops = stop_ids(model, stop_tokens)
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []  # in the order they were let in

    def add(
        self,
        name: Hashable,
        prompt: Iterable[int],
        max_new_tokens: int = 32,
        *,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
    ) -> None:
        """Queue a prompt of token ids; settings as in :func:`kvlib.generate`, greedy unless given.

        Raises ValueError for a name in use or a prompt that the model refuses, CacheFull or
        OutOfBlocks for one that the cache could not hold if it were alone.
        """
        serving.check_name(name, self.requests, self.cache)
        settings = (temperature, top_k, top_p, seed)
        request = serving.accepted(self.model, self.cache, name, prompt, max_new_tokens, settings)
        self.requests[name] = request
        self._waiting.append(request)

    def cancel(self, name: Hashable) -> list[int]:
        """End a request that waits or runs, between two steps; returns the tokens it has got."""
        request = serving.not_ended(name, self.requests)
        if request.state == WAITING:
            self._waiting.remove(request)
        else:
            self._leave(request)
        request.state = CANCELLED
        self._note(request, "cancel")
        return request.new

    @property
    def busy(self) -> bool:
        """Whether a request is not done."""
        return bool(self._waiting or self._running)

    def run(self) -> dict[Hashable, list[int]]:
        """Step until all are done; the new tokens of each."""
        while self.busy:
            self.step()
        return {name: request.new for name, request in self.requests.items()}

    def step(self) -> list[Event]:
        """One pass over all that decode and a chunk of the oldest prompt; what each one did.

        Raises CacheFull or OutOfBlocks where not even one request has room (others use the cache,
        too). Whatever fails, no token is lost and the step can be tried again.
        """
        seen = len(self.events)
        parts = {r: [r.new[-1]] for r in self._running if r.state == DECODING}
        prompt = self._prompt(len(parts))
        if prompt is not None:
            room = None if self.budget is None else self.budget - len(parts)
            parts[prompt] = prompt.text[self.cache.seq_len(prompt.name) :][:room]
        if parts:
            self._pass(parts)
            self.num_steps += 1
        return self.events[seen:]

    def _prompt(self, decodes: int) -> Request | None:
        """The prompt that is read on, or the next one where a chunk of it fits in the budget."""
        reading = next((r for r in self._running if r.state == PREFILLING), None)
        full = self.budget is not None and decodes >= self.budget
        if reading or full or not self._waiting:
            return reading
        request = self._waiting[0]
        for r in self._running:
            self.cache.settle(r.name)
        try:
            held = self.cache.add(request.name, request.text)
        except CacheFull:
            if not self._running:
                raise
            self._note(request, "wait")
            return None
        request.state = PREFILLING
        self._running.append(self._waiting.popleft())
        if held:
            self._note(request, "hit", held)
        return request

    def _pass(self, parts: dict[Request, list[int]]) -> None:
        """Feed each request its tokens; whose text is through draws the next one."""
        step = self._plan(parts)
        fed = [t for part in parts.values() for t in part]
        try:
            logits = self.model.forward(fed, self.cache, step)
            drawn = serving.draw(parts, step.seq_lens, logits, greedy(logits))
        except BaseException:
            serving.take_back(self.cache, step)
            raise
        for (r, part), token in zip(parts.items(), drawn, strict=True):
            kind = "decode" if r.state == DECODING else "prefill"
            if token is None:
                self._note(r, kind, len(part))
                continue
            stopped = token in self._stops
            self._note(r, kind, len(part), None if stopped else token)
            r.state = DECODING
            if not stopped:
                r.new.append(token)
            if stopped or len(r.new) == r.max_new_tokens:
                self._leave(r)
                r.state = DONE
                self._note(r, "done")

    def _leave(self, r: Request) -> None:
        self.cache.free(r.name)
        self._running.remove(r)

    def _plan(self, parts: dict[Request, list[int]]) -> Step:
        """Room for all; where there is too little the chunk waits, then the youngest goes back."""
        while True:
            try:
                fed = [t for part in parts.values() for t in part]
                return self.cache.plan([r.name for r in parts], [*map(len, parts.values())], fed)
            except (CacheFull, OutOfBlocks):
                youngest = self._running[-1]
                if len(self._running) == 1:
                    raise
                if youngest.state == PREFILLING and youngest in parts:
                    self._note(youngest, "wait")
                else:
                    self._note(youngest, "preempt", self.cache.seq_len(youngest.name))
                    self._leave(youngest)
                    youngest.state = WAITING
                    self._waiting.appendleft(youngest)
                parts.pop(youngest, None)

    def _note(self, r: Request, kind: str, tokens: int = 0, token: int | None = None) -> None:
        self.events.append(Event(self.num_steps, r.name, kind, tokens, token))

    def __repr__(self) -> str:
        words = f"{serving.states(self.requests.values())}; budget {self.budget}"
        return f"{type(self).__name__}({words}; {self.num_steps} steps; {self.cache!r})"
