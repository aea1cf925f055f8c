"""One step of a server: every running request decodes a token, one prompt is read on by a chunk.

A prompt that is prefilled whole holds up everyone who decodes. Read in chunks that share a forward
pass with the decodes, it holds them up by no more than a budget of tokens a step (Sarathi-Serve,
arXiv:2403.02310). Who finds no room is taken back and computed again later (vLLM's recomputation,
arXiv:2309.06180).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from kvlib.caches import Cache, Step
from kvlib.errors import CacheFull, OutOfBlocks
from kvlib.events import Event, waits
from kvlib.model.decoder import Decoder
from kvlib.prompts import (
    check_cache,
    check_positive,
    check_prompt,
    check_room,
    stop_ids,
    token_ids,
)
from kvlib.sampling import greedy

__all__ = ["DECODING", "DONE", "PREFILLING", "WAITING", "Event", "Request", "Scheduler", "waits"]

WAITING, PREFILLING, DECODING, DONE = "waiting", "prefilling", "decoding", "done"


@dataclass(eq=False)
class Request:
    """A prompt, what was generated behind it, and where it stands.

    >>> Request("a", [1, 2], max_new_tokens=3, new=[9]).text
    [1, 2, 9]
    """

    name: Hashable
    prompt: list[int]
    max_new_tokens: int
    new: list[int] = field(default_factory=list)
    state: str = WAITING

    @property
    def text(self) -> list[int]:
        """All that has to be in the cache before the next token can be drawn."""
        return self.prompt + self.new


class Scheduler:
    """Requests come with ``add``, at any time; ``step`` runs one forward pass for those it can.

    cache    any cache of ``model.layer_specs``; of a PagedCache, prompts share prefixes
    budget   tokens a step at most, decodes included; None: no limit, prompts are read whole
    Greedy. Under a cache that keeps numbers as they came, a request's tokens do not depend on the
    others, on the budget or on the room. A request is let in while fewer than `budget` decode, so
    a prompt always gets a chunk of at least 1 token.

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

    def add(self, name: Hashable, prompt: Iterable[int], max_new_tokens: int = 32) -> None:
        """Queue a prompt of token ids.

        Raises ValueError for a name in use or a prompt that the model refuses, CacheFull or
        OutOfBlocks for one that the cache could not hold if it were alone.
        """
        if name in self.requests or name in self.cache.seq_ids:
            raise ValueError(f"request {name!r} is known already; choose another name")
        check_positive("max_new_tokens", max_new_tokens)
        ids = token_ids(f"prompt {name!r}", prompt)
        check_prompt(self.model, f"prompt {name!r}", ids, max_new_tokens)
        check_room(self.cache, name, len(ids) + int(max_new_tokens) - 1)
        self.requests[name] = request = Request(name, ids, int(max_new_tokens))
        self._waiting.append(request)

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
        for request in self._running:
            if request.state == PREFILLING:
                return request
        if not self._waiting or (self.budget is not None and decodes >= self.budget):
            return None
        request = self._waiting[0]
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
        try:
            logits = self.model.forward(
                [t for part in parts.values() for t in part], self.cache, step
            )
            drawn = greedy(logits)
        except BaseException:
            for (r, part), end in zip(parts.items(), step.seq_lens, strict=True):
                self.cache.truncate(r.name, end - len(part))
            raise
        for (r, part), end, token in zip(parts.items(), step.seq_lens, drawn, strict=True):
            kind = "decode" if r.state == DECODING else "prefill"
            if end < len(r.text):
                self._note(r, kind, len(part))
                continue
            stopped = token in self._stops
            self._note(r, kind, len(part), None if stopped else token)
            r.state = DECODING
            if not stopped:
                r.new.append(token)
            if stopped or len(r.new) == r.max_new_tokens:
                self.cache.free(r.name)
                self._running.remove(r)
                r.state = DONE
                self._note(r, "done")

    def _plan(self, parts: dict[Request, list[int]]) -> Step:
        """Room for all; where there is too little the chunk waits, then the youngest goes back."""
        while True:
            try:
                return self.cache.plan(
                    [r.name for r in parts],
                    [len(part) for part in parts.values()],
                    [t for part in parts.values() for t in part],
                )
            except (CacheFull, OutOfBlocks):
                youngest = self._running[-1]
                if len(self._running) == 1:
                    raise
                if youngest.state == PREFILLING and youngest in parts:
                    self._note(youngest, "wait")
                else:
                    self._note(youngest, "preempt", self.cache.seq_len(youngest.name))
                    self.cache.free(youngest.name)
                    youngest.state = WAITING
                    self._waiting.appendleft(self._running.pop())
                parts.pop(youngest, None)

    def _note(self, r: Request, kind: str, tokens: int = 0, token: int | None = None) -> None:
        self.events.append(Event(self.num_steps, r.name, kind, tokens, token))
