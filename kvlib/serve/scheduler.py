"""A server, one step at a time: requests begin, are fed, get tokens, are preempted and end."""

import sys
from collections import Counter, deque
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kvlib.arguments import check_hashable, check_integer, check_seed, describe
from kvlib.caches import Cache, Step
from kvlib.errors import CacheFull, OutOfBlocks
from kvlib.model.decoder import Decoder
from kvlib.serve import policies, recovery
from kvlib.serve.budget import Pending, check_limits, split_budget
from kvlib.serve.distribution import check_settings
from kvlib.serve.policies import Policy, first_come, youngest
from kvlib.serve.prompts import check_cache, check_prompt, choose_step, stop_ids, token_ids
from kvlib.serve.request import (
    CANCELLED,
    DECODING,
    DONE,
    FAILED,
    PREFILLING,
    WAITING,
    Decoding,
    Event,
    Feed,
    Gamma,
    Request,
    completed,
    raise_failed,
)

if TYPE_CHECKING:
    from kvlib.kernels.step import CompiledStep
    from kvlib.speculation import Drafter


class Scheduler:
    """Serve requests: ``add`` queues one at any time, and each ``step`` runs one forward pass.

    cache          any cache of ``model.layer_specs``; in a PagedCache, prompts share prefixes
    budget         tokens per step at most, decodes included; None: no limit
    prefill_chunk  tokens of each prompt per step at most; None: no limit
    max_prefills   prompts that are read at the same time; None: no limit
    queue          picks the waiting request that begins next (:func:`kvlib.serve.first_come`)
    victim         picks the running request that is preempted if a step does not fit into the cache
                   (:func:`kvlib.serve.youngest`). None: no request is, and ``step`` raises
                   CacheFull or OutOfBlocks.
    drafter        a kvlib.speculation.Drafter, such as PromptLookup(): guesses tokens, which the
                   same step checks, with what the other requests leave of the budget and the cache
    gamma          the most guesses per request and step, all guesses of a tree: a number, or a
                   function of a request that returns one, such as kvlib.speculation.adaptive()
    compiled       whether decode steps run as :func:`kvlib.kernels.compile_step` prepares them, or
                   what it returned. None: on a device, if the kernels attend in the cache

    If the cache stores numbers as they are and keeps all that the model's layers see, a request's
    tokens depend neither on these settings nor on the other requests. `requests` holds all requests
    by name, `events` what they did, and `limits` the three limits of a step.

    An error in your own code (a policy, gamma, the drafter, the cache) loses no token: call
    ``step`` again. If the drafter or the cache fails to free a request that has ended, the
    scheduler tries once more, and then ``step``, ``cancel`` or ``close`` raises the first error. If
    other code frees, truncates or plans a running request in the cache, or opens a request whose
    name the scheduler uses, the scheduler's request fails. Its ``error`` says what happened.

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
        drafter: "Drafter | None" = None,
        gamma: Gamma = 4,
        stop_tokens: Iterable[int] | None = None,
        compiled: "CompiledStep | bool | None" = None,
    ) -> None:
        check_cache(model, cache)
        self.model, self.cache = model, cache
        self.compiled = choose_step(model, cache, compiled)
        self.limits = check_limits(budget, prefill_chunk, max_prefills)
        self._queue = policies.check_policy("queue", queue, first_come)
        self._victim = None if victim is None else policies.check_policy("victim", victim, youngest)
        gamma = gamma if callable(gamma) else check_integer("gamma", gamma, 0)
        self.decoding = Decoding()
        if drafter is not None:
            from kvlib.speculation.checking import Speculation

            self.decoding = Speculation(model, cache, drafter, gamma)
        self._computes: Decoder | CompiledStep = self.model
        if self.compiled is not None:
            self._computes, self.decoding.greedy = self.compiled, self.compiled.greedy
        self._stops = stop_ids(model, stop_tokens)
        self.requests: dict[Hashable, Request] = {}
        self.events: list[Event] = []
        self.num_steps = 0
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []  # in the order in which they began
        self._unfinished: list[Request] = []  # of a step whose tokens have not all been given
        self._ended: deque[tuple[Hashable, Any]] = deque()  # names and stamps, to be freed
        self._stepping = False
        self._first_event = sys.maxsize  # of the failed steps before this one

    @property
    def budget(self) -> int | None:
        """Tokens per step at most."""
        return self.limits["budget"]

    @property
    def busy(self) -> bool:
        """Whether a request waits or runs."""
        return bool(self._waiting or self._running)

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

        The name of a request that has ended can be used again. Raises ValueError for a name in use
        or a prompt that the model refuses, CacheFull or OutOfBlocks for one that the cache could
        not hold if it were alone.
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
        known = self.requests.get(check_hashable("the name of a request", name))
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
        with self._between_steps("cancel"):
            alive = [r for r in self.requests.values() if not r.ended]
            request = next((r for r in alive if r.name == name), None)
            if request is None:
                names = ", ".join(describe(r.name) for r in alive[:5]) or "none"
                raise ValueError(
                    f"request {describe(name)} is neither waiting nor running; those are: {names}"
                )
            self._remove(request, CANCELLED, "cancel")
        return request.new

    def close(self) -> None:
        """Cancel all requests that wait or run, between two steps."""
        with self._between_steps("close"):
            for r in (*self._running, *self._waiting):
                self._remove(r, CANCELLED, "cancel")

    def run(self) -> dict[Hashable, list[int]]:
        """Step until all requests are done; returns the new tokens of each, or raises the error of
        a request that has failed meanwhile, after the others have ended."""
        begun = [r for r in self.requests.values() if not r.ended]
        while self.busy:
            self.step()
        raise_failed(begun)
        return {name: request.new for name, request in self.requests.items()}

    def step(self) -> list[Event]:
        """Run one forward pass over the requests whose turn it is; returns what each one did.

        If the steps before it failed, their events are returned first. Raises CacheFull or
        OutOfBlocks if the cache has too little room and no request can be preempted, and ValueError
        if a policy picks a request that it was not given. After any error, the step can be tried
        again.
        """
        with self._between_steps("step"):
            # The caller may have cleared the events of a failed step.
            first = self._first_event = min(self._first_event, len(self.events))
            self._recover()
            self.decoding.guess(self._running)
            while not self._forward():
                pass
        self._first_event = sys.maxsize
        return self.events[first:]

    def _forward(self) -> bool:
        """Feed requests and return their tokens; False if other code had changed one of them."""
        try:
            self._admit()
            feed = {r: r.next_tokens(n) for r, n in self._split_budget().items()}
            if feed:
                step, tokens = self._plan(feed)
                rows = self.decoding.logit_rows(feed)
                logits = self._computes.forward(tokens, self.cache, step, rows)
                if self._goes_on(feed):
                    self.compiled.start_next()
                self._accept(feed, self.decoding.tokens(feed, logits))
            return True
        except BaseException as error:
            if self._recover() and isinstance(error, Exception):
                return False
            raise

    def _goes_on(self, feed: Feed) -> bool:
        """Whether the next step may be of the same requests and this one's likeliest tokens."""
        return (
            self.compiled is not None
            and not self._waiting
            and [*feed] == self._running
            and type(self.decoding) is Decoding
            and all(completed(r, fed) and not r.temperature for r, fed in feed.items())
            and all(len(r.new) + 1 < r.max_new_tokens for r in feed)
        )

    def _admit(self) -> None:
        """Begin the waiting requests that get tokens of this step's budget."""
        later: set[Request] = set()  # those that have to wait for the cache
        while self._waiting:
            waiting = [r for r in self._waiting if r not in later]
            lengths = self._split_budget(policies.queued(self._queue, waiting))
            new = [r for r in lengths if r.state == WAITING]
            if not new:
                return
            self._begin(new, later)  # what the cache holds of them is not fed: split once more

    def _split_budget(self, waiting: Iterable[Pending[Request]] = ()) -> dict[Request, int]:
        running = [Pending(r, r.pending, r.state == DECODING) for r in self._running]
        return split_budget(running, waiting, **self.limits)

    def _begin(self, new: list[Request], later: set[Request]) -> None:
        """Open requests in the cache; those that cannot begin in this step are added to `later`."""
        for r in self._running:
            self.cache.settle(r.name)  # what it has computed may be what a new one begins with
        for r in new:
            if r.name in self.cache:
                self._fail(r, recovery.interference(self.cache, r), recovery.ADVICE)
                return
            running = [(x.name, x.prompt) for x in self._running]
            if running and self.cache.waits_for(r.text, running):
                later.add(r)
                continue
            try:
                r.held = self.cache.add(r.name, r.text)
            except (CacheFull, OutOfBlocks):
                if self._victim is None or not running:
                    raise
                self._record(r, "wait")
                later.update(self._waiting)  # nobody overtakes a request that waits for room
                return
            self._waiting.remove(r)
            self._running.append(r)
            r.state = PREFILLING
            r.mark(self.cache)
            if r.held:
                self._record(r, "hit", r.held)

    def _plan(self, feed: Feed) -> tuple[Step, list[int]]:
        """Reserve room for a step, made smaller until it fits; returns its plan and its tokens."""
        while True:
            names, lengths = [r.name for r in feed], [*map(len, feed.values())]
            tokens = [token for fed in feed.values() for token in fed]
            try:
                step = self.cache.plan(names, lengths, tokens, **self.decoding.parents(feed))
            except (CacheFull, OutOfBlocks):
                if not self._shrink_or_preempt(feed):
                    raise
            else:
                self._unfinished = list(feed)
                for r in feed:
                    r.mark(self.cache)
                return step, tokens

    def _shrink_or_preempt(self, feed: Feed) -> bool:
        """Make a step smaller, or make room for it; return whether that is possible.

        In turn: guesses, the last chunk of a prompt, a request. Without a victim, or alone, halve
        the chunk: with windows, a prompt needs fewer blocks in several steps than in one.
        """
        guesses = [r for r, fed in feed.items() if r.state == DECODING and len(fed) > 1]
        if guesses:
            feed.update((r, feed[r][:1]) for r in guesses)
            return True
        chunks = [r for r in feed if r.state == PREFILLING]
        if self._victim is None or len(self._running) == 1:
            r, fed = next(iter(feed.items()))
            if not (self.cache.forgets and chunks == list(feed) == [r] and len(fed) > 1):
                return False
            feed[r] = fed[: len(fed) // 2]
            return True
        if chunks and len(feed) > 1:
            self._record(chunks[-1], "wait")
            del feed[chunks[-1]]
            return True
        r = policies.pick("victim", self._victim, self._running)
        recovery.release(self.cache, r.name, r.stamp)  # at once, because the step needs its room
        self._remove(r, WAITING, "preempt", r.held)
        self._waiting.appendleft(r)
        feed.pop(r, None)
        if not feed:  # the victim was fed alone, so now there is room for the chunks that wait
            feed.update((r, r.next_tokens(n)) for r, n in self._split_budget().items())
        return True

    def _accept(self, feed: Feed, drawn: dict[Request, list[int]]) -> None:
        """Count what each request was fed, and give it its tokens, up to a stop token."""
        try:
            for r, fed in feed.items():
                tokens = drawn.get(r, [])
                end = next((n for n, t in enumerate(tokens) if t in self._stops), len(tokens))
                new, used = tokens[:end], min(end + 1, len(tokens))
                try:
                    if self.decoding.keep(self.cache, r, len(fed), tokens, used):
                        r.mark(self.cache)
                except Exception as error:
                    words = f"request {describe(r.name)} could not forget wrong guesses: {error}"
                    self._fail(r, words)
                    continue
                r.held = r.stamp[1]
                kind = "decode" if r.state == DECODING else "prefill"
                self._record(r, kind, len(fed), new[0] if new else None)
                for token in new[1:]:
                    self._record(r, "accept", 0, token)
                if tokens:
                    r.state, r.steps = DECODING, r.steps + bool(new)
                    r.new += new
                    if end < len(tokens) or len(r.new) == r.max_new_tokens:
                        self._remove(r, DONE, "done")
            self._unfinished = []
        finally:
            self.num_steps += 1

    def _remove(self, r: Request, state: str, kind: str, tokens: int = 0) -> None:
        """Remove a request from the queue or the batch; what it holds is freed after the step."""
        self._record(r, kind, tokens)
        if r.state == WAITING:
            self._waiting.remove(r)
        else:
            self._running.remove(r)
            self._ended.append((r.name, r.stamp))
        r.state, r.held, r.draft = state, 0, None

    def _record(self, r: Request, kind: str, tokens: int = 0, token: int | None = None) -> None:
        self.events.append(Event(self.num_steps, r.name, kind, tokens, token))

    @contextmanager
    def _between_steps(self, what: str) -> Iterator[None]:
        """Refuse what would change the requests of a running step; afterwards, free what ended."""
        if self._stepping:
            raise ValueError(
                f"{what} was called while a step of this scheduler runs, by a policy, the model or "
                "another thread; call it between two steps"
            )
        self._stepping = what == "step"
        try:
            yield
        finally:
            try:
                if self._ended:
                    recovery.free(self.cache, self.decoding, self._ended)
            finally:
                self._stepping = False

    def _recover(self) -> bool:
        """Undo a failed step, and end requests that other code has changed; whether any was."""
        if self._unfinished:
            planned = [r for r in reversed(self._unfinished) if r in self._running]
            for r, words in recovery.undo(self.cache, planned).items():
                self._fail(r, words)
            self._unfinished = []
        changed = [r for r in self._running if not r.untouched(self.cache)]
        for r in changed:
            self._fail(r, recovery.interference(self.cache, r), recovery.ADVICE)
        return bool(changed)

    def _fail(self, r: Request, words: str, advice: str = "") -> None:
        r.error = ValueError(f"{words}; it got {len(r.new)} new tokens{advice}")
        self._remove(r, FAILED, "fail")

    def __repr__(self) -> str:
        counts = Counter(r.state for r in self.requests.values())
        order = (DECODING, PREFILLING, WAITING, DONE, CANCELLED, FAILED)
        states = ", ".join(f"{counts[s]} {s}" for s in order if counts[s]) or "no requests"
        numbers = f"budget {self.budget}; {self.num_steps} steps"
        return f"{type(self).__name__}({states}; {numbers}; {self.cache!r})"
