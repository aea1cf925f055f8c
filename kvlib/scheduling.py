"""A server, one step at a time.

In each step, every decoding request gets a token and the prompts advance. A prompt that is read in
one step makes every decoding request wait for all of it. If it is read in chunks, each step makes
them wait for no more tokens than the budget (Sarathi-Serve, arXiv:2403.02310). When the cache is
full, one request gives up its memory and is computed again later (as in vLLM, arXiv:2309.06180).
:func:`kvlib.scheduling.schedule` decides how many tokens each request is fed, policies decide which
one begins next and which one gives way, and :class:`kvlib.Scheduler` carries this out.
:func:`kvlib.generate` is the same scheduler in a loop.
"""
# Long, because it is one class, read in the order of a step.

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterable, Iterator
from functools import partial
from typing import Any

from kvlib.arguments import check_integer, check_seed, describe
from kvlib.caches import Cache, Step
from kvlib.errors import CacheFull, OutOfBlocks
from kvlib.model.decoder import Decoder
from kvlib.policies import (
    Pending,
    Policy,
    check_limits,
    check_policy,
    fewest_lost,
    first_come,
    pick,
    schedule,
    shortest_first,
    youngest,
)
from kvlib.prompts import check_cache, check_prompt, stop_ids, token_ids
from kvlib.sampling import check_settings
from kvlib.serving import (
    CANCELLED,
    DECODING,
    DONE,
    FAILED,
    PREFILLING,
    WAITING,
    Event,
    Request,
    changed,
    close_in,
    halved,
    noted,
    raise_failed,
    undo,
    waits,
)
from kvlib.speculation.checking import (
    Gamma,
    check_drafter,
    check_gamma,
    guess,
    keep_right,
    next_tokens,
    planned,
    without_guesses,
)
from kvlib.speculation.draft import Drafter

__all__ = [
    "CANCELLED",
    "DECODING",
    "DONE",
    "FAILED",
    "PREFILLING",
    "WAITING",
    "Event",
    "Pending",
    "Request",
    "Scheduler",
    "fewest_lost",
    "first_come",
    "schedule",
    "shortest_first",
    "waits",
    "youngest",
]

MEDDLED = ". Please leave a running request alone, or end it with cancel or close"


class Scheduler:
    """Serve requests: ``add`` queues one at any time, and each ``step`` runs one forward pass.

    cache          any cache of ``model.layer_specs``; in a PagedCache, prompts share prefixes
    budget         tokens per step at most, decodes included; None: no limit
    prefill_chunk  tokens of each prompt per step at most; None: no limit
    max_prefills   prompts that are read at the same time; None: no limit
    queue          a function that picks the waiting request that begins next, such as
                   :func:`kvlib.scheduling.shortest_first`; first come, first served unless given
    victim         a function that picks the running request that gives way if a step does not fit
                   into the cache, such as :func:`kvlib.scheduling.fewest_lost`; the youngest unless
                   given. None: no request gives way, and ``step`` raises CacheFull or OutOfBlocks.
    drafter        guesses tokens, which the same step checks: a kvlib.speculation.Drafter, such as
                   PromptLookup(). None: one token per request and step. Guesses take what the other
                   requests leave of the budget and of the cache.
    gamma          the most guesses per request and step (4): a number, or a function that takes a
                   request and returns one, such as kvlib.speculation.adaptive(). All guesses
                   of a tree count.

    If the cache stores numbers as they are and keeps all that the model's layers see, a request's
    tokens depend neither on these settings nor on the other requests. A request begins only if the
    budget has a token left for it. So no more requests run than the budget has tokens, and the
    oldest prompt always advances. `requests` holds all requests by name, `events` what they did,
    `limits` the three limits of a step. ``cancel`` ends a request early, and the name of one that
    has ended can be used again. If other code frees, truncates or plans a running request in the
    cache, or opens a request whose name the scheduler uses, the scheduler's request fails. Its
    ``error`` says what happened, and the other requests go on.

    An error in your own code (a policy, gamma, the drafter, the cache) loses no token either: call
    ``step`` again. If the drafter or the cache fails to free a request that has ended, the
    scheduler tries once more, and then ``step``, ``cancel`` or ``close`` raises the first error.

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
        prefill_chunk: int | None = None,
        max_prefills: int | None = 1,
        queue: Policy = first_come,
        victim: Policy | None = youngest,
        drafter: Drafter | None = None,
        gamma: Gamma = 4,
        stop_tokens: Iterable[int] | None = None,
    ) -> None:
        check_cache(model, cache)
        limits = dict(budget=budget, prefill_chunk=prefill_chunk, max_prefills=max_prefills)
        check_policy("queue", queue, first_come)
        if victim is not None:
            check_policy("victim", victim, youngest)
        check_drafter(drafter, model.config.vocab_size)
        self.model, self.cache, self.drafter, self.gamma = model, cache, drafter, check_gamma(gamma)
        self.requests: dict[Hashable, Request] = {}
        self.events: list[Event] = []
        self.num_steps = 0
        self.limits, self._queue, self._victim = check_limits(limits), queue, victim
        self._stepping = False
        self._stops = stop_ids(model, stop_tokens)
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []  # in the order in which they began
        self._planned: list[Request] = []  # by a step whose tokens are not counted yet
        self._left: deque[tuple[Hashable, Any]] = deque()  # name, and what `noted` last said
        self._unreturned: int | None = None  # index of the first event of the failed steps

    @property
    def budget(self) -> int | None:
        """Tokens per step at most."""
        return self.limits["budget"]

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
        self._check_name(name)
        most = check_integer("max_new_tokens", max_new_tokens)
        settings = check_settings(temperature, top_k, top_p)
        seed = check_seed("seed", seed)
        ids = token_ids(f"prompt {describe(name)}", prompt)
        check_prompt(self.model, f"prompt {describe(name)}", ids, most)
        self.cache.check_room(name, len(ids) + most - 1)
        self._check_name(name)  # a prompt that is read from an iterator may have added it
        self.submit(Request(name, ids, most, [], WAITING, *settings, seed))

    def _check_name(self, name: Hashable) -> None:
        try:
            known = self.requests.get(name)
        except TypeError:
            raise TypeError(
                f"the name of a request must be hashable, got {describe(name)}"
            ) from None
        if (known and not known.ended) or name in self.cache.seq_ids:
            raise ValueError(
                f"request {describe(name)} is known already and has not ended; choose another name"
            )

    def submit(self, request: Request) -> None:
        """Queue a request whose name, prompt and settings have been checked."""
        self.requests[request.name] = request
        self._waiting.append(request)

    def cancel(self, name: Hashable) -> list[int]:
        """End a request that waits or runs, between two steps; returns the tokens it has got."""
        open_ones = [r for r in self.requests.values() if not r.ended]
        self._outside("cancel")
        found = next((r for r in open_ones if r.name == name), None)
        if found is None:
            names = ", ".join(describe(r.name) for r in open_ones[:5]) or "none"
            raise ValueError(
                f"request {describe(name)} is neither waiting nor running; those are: {names}"
            )
        self._cancel(found)
        self._free_left()
        return found.new

    def close(self) -> None:
        """Cancel all requests that wait or run, between two steps."""
        self._outside("close")
        for r in (*self._running, *self._waiting):
            self._cancel(r)
        self._free_left()

    @property
    def busy(self) -> bool:
        """Whether a request waits or runs."""
        return bool(self._waiting or self._running)

    def step(self) -> list[Event]:
        """Run one forward pass over the requests whose turn it is; returns what each one did.

        If the steps before it failed, their events come first.

        Raises CacheFull or OutOfBlocks if the cache has too little room and no request gives way.
        That happens without a victim policy, or if other code fills the cache so far that not even
        one request has room. Raises ValueError if a policy picks a request that it was not given.
        After any error, no token is lost and the step can be tried again. If other code has changed
        a request in the cache, that request fails, and `step` goes on without an error.
        """
        self._outside("step")
        if self._unreturned is None:
            self._unreturned = len(self.events)
        first = min(self._unreturned, len(self.events))  # the caller may have cleared them
        self._stepping = True
        try:
            try:
                self._step()
            finally:
                self._free_left()
        finally:
            self._stepping = False
        self._unreturned = None
        return self.events[first:]

    def _step(self) -> None:
        self._drop_changed()
        self._undo()
        if self.drafter is not None:
            vocabulary = self.model.config.vocab_size
            guess(self.drafter, self.gamma, self._running, vocabulary, self.cache.undoable)
        while True:
            try:
                parts = {r: r.part(n) for r, n in self._admit().items()}
                if parts:
                    self._forward(parts)
                return
            except Exception:
                if not self._drop_changed():
                    raise

    def _outside(self, what: str) -> None:
        """Refuse what would change the requests that a running step works on."""
        if self._stepping:
            raise ValueError(
                f"{what} was called while a step of this scheduler runs, by a policy, the model or "
                "another thread; call it between two steps"
            )

    def run(self) -> dict[Hashable, list[int]]:
        """Step until all requests are done; returns the new tokens of each.

        Raises the error of a request that has failed meanwhile, after the others have ended.
        """
        begun = [r for r in self.requests.values() if not r.ended]
        while self.busy:
            self.step()
        raise_failed(begun)
        return {name: request.new for name, request in self.requests.items()}

    def _schedule(self, waiting: Iterable[Pending[Request]] = ()) -> dict[Request, int]:
        running = [
            Pending(r, 1 + (len(r.draft.tokens) if r.draft else 0), True)
            if r.state == DECODING
            else Pending(r, r.length - r.held)
            for r in self._running
        ]
        return schedule(running, waiting, **self.limits)

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
            r = pick("queue", self._queue, waiting)
            waiting.remove(r)
            yield Pending(r, r.length)

    def _open(self, new: list[Request], later: set[Request]) -> None:
        """Open requests in the cache; those that cannot begin in this step go to `later`."""
        for r in self._running:
            self.cache.settle(r.name)  # what it has computed may be what a new one begins with
        for r in new:
            if r.name in self.cache:
                words = "was opened in the cache by somebody else while it waited"
                self._fail(r, f"request {describe(r.name)} {words}")
                return
            text, others = r.text, ((x.name, x.prompt) for x in self._running)
            if self._running and self.cache.waits_for(text, others):
                later.add(r)
                continue
            try:
                held = self.cache.add(r.name, text)
            except (CacheFull, OutOfBlocks):
                if self._victim is None or not self._running:
                    raise
                self._note(r, "wait")
                later.update(self._waiting)  # nobody overtakes a request that waits for room
                return
            self._waiting.remove(r)
            self._running.append(r)
            r.state, r.held, r.left = PREFILLING, held, noted(self.cache, r)
            if held:
                self._note(r, "hit", held)

    def _forward(self, parts: dict[Request, list[int]]) -> None:
        """Feed each request its part; those whose text is through get their next token."""
        step, fed = self._plan(parts)
        try:
            found = next_tokens(
                parts, step, lambda rows: self.model.forward(fed, self.cache, step, rows)
            )
        except BaseException:
            self._undo()
            raise
        self._planned, interrupts = [], list[BaseException]()
        for r, part in parts.items():
            try:
                self._note_fed(r, len(part), found.get(r, []))
            except BaseException as error:  # the others get their tokens all the same
                interrupts.append(error)
        self.num_steps += 1
        if interrupts:
            raise interrupts[0]

    def _undo(self) -> None:
        """Undo the failed step; a request that the cache cannot truncate fails, and no other."""
        while self._planned:
            r = self._planned[-1]
            try:
                if r in self._running:
                    undo(self.cache, r)
            except Exception as error:
                words = f"a failed step of request {describe(r.name)} could not be undone: {error}"
                self._fail(r, words, advice="")
            self._planned.pop()

    def _note_fed(self, r: Request, fed: int, tokens: list[int]) -> None:
        """Count what a request was fed, and give it its tokens, up to a stop token."""
        kind, given, used = "decode" if r.state == DECODING else "prefill", tokens, len(tokens)
        stopped = not self._stops.isdisjoint(tokens)
        if stopped:
            n = next(n for n, token in enumerate(tokens) if token in self._stops)
            given, used = tokens[:n], n + 1
        held, state, interrupt = r.held, DECODING, None
        r.held += fed
        if r.draft is not None:
            try:
                keep_right(self.cache, r, fed, tokens, used)
            except Exception as error:
                words = f"request {describe(r.name)} could not forget wrong guesses: {error}"
                self._fail(r, words, advice="")
                return
            except BaseException as error:  # the next step undoes this one and reads it again
                interrupt, state, r.held = error, PREFILLING, held
                self._planned.append(r)
        self._note(r, kind, fed, given[0] if given else None)
        for token in given[1:]:
            self._note(r, "accept", 0, token)
        if tokens:
            r.state, r.steps = state, r.steps + bool(given)
            r.new += given
            if stopped or len(r.new) == r.max_new_tokens:
                self._note(r, "done")
                self._leave(r, DONE)
        if interrupt is not None:
            raise interrupt

    def _plan(self, parts: dict[Request, list[int]]) -> tuple[Step, list[int]]:
        """Reserve room for all parts; where there is too little of it, requests give way."""
        while True:
            try:
                step, fed = planned(self.cache, parts)
                self._planned = list(parts)
                for r in parts:
                    r.left = noted(self.cache, r)
                return step, fed
            except (CacheFull, OutOfBlocks):
                if without_guesses(parts):
                    continue
                if self._victim is None or len(self._running) == 1:
                    if not self.cache.forgets or not halved(parts):
                        raise
                    continue
                self._give_way(self._victim, parts)

    def _give_way(self, victim: Policy, parts: dict[Request, list[int]]) -> None:
        """The last chunk of a prompt waits for the next step; without one, the victim goes back."""
        chunks = [r for r in parts if r.state == PREFILLING]
        if chunks and len(parts) > 1:
            self._note(chunks[-1], "wait")
            del parts[chunks[-1]]
            return
        r = pick("victim", victim, self._running)
        close_in(self.cache, r.name, r.left)  # at once, because the step needs its room
        self._note(r, "preempt", r.held)
        self._leave(r, WAITING)
        self._waiting.appendleft(r)
        parts.pop(r, None)
        if not parts:  # it had its turn alone: now chunks that wait have room
            parts.update((r, r.part(n)) for r, n in self._schedule().items())

    def _leave(self, r: Request, state: str) -> None:
        """Remove a running request; `_free_left` frees it in the cache and the drafter."""
        self._running.remove(r)
        r.state, r.held, r.draft = state, 0, None
        self._left.append((r.name, r.left))

    def _free_left(self) -> None:
        """Free the requests in `_left` in cache and drafter; then raise the first error.

        A call that fails is made once more, because an interrupted one has freed nothing.
        """
        errors = list[BaseException]()
        while self._left:
            name, left = self._left.popleft()
            calls = [partial(close_in, self.cache, name, left)]
            if self.drafter is not None:
                calls.append(partial(self.drafter.free, name))
            for call in calls:
                for _ in range(2):
                    try:
                        call()
                        break
                    except BaseException as error:
                        errors.append(error)
        if errors:
            raise errors[0]

    def _drop_changed(self) -> bool:
        """End the requests that somebody else has changed in the cache; whether there were any."""
        found = [(r, words) for r in self._running if (words := changed(self.cache, r))]
        for r, words in found:
            self._fail(r, words)
        return bool(found)

    def _fail(self, r: Request, words: str, advice: str = MEDDLED) -> None:
        r.error = ValueError(f"{words}; it got {len(r.new)} new tokens{advice}")
        if r.state == WAITING:
            self._waiting.remove(r)
            r.state = FAILED
        else:
            self._leave(r, FAILED)
        self._note(r, "fail")

    def _cancel(self, r: Request) -> None:
        if r.state == WAITING:
            self._waiting.remove(r)
            r.state = CANCELLED
        else:
            self._leave(r, CANCELLED)
        self._note(r, "cancel")

    def _note(self, r: Request, kind: str, tokens: int = 0, token: int | None = None) -> None:
        self.events.append(Event(self.num_steps, r.name, kind, tokens, token))

    def __repr__(self) -> str:
        found = Counter(r.state for r in self.requests.values())
        order = (DECODING, PREFILLING, WAITING, DONE, CANCELLED, FAILED)
        states = ", ".join(f"{found[s]} {s}" for s in order if found[s]) or "no requests"
        numbers = f"budget {self.budget}; {self.num_steps} steps"
        return f"{type(self).__name__}({states}; {numbers}; {self.cache!r})"
