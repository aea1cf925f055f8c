"""A server, one step at a time: each request that decodes gets a token, and prompts are read on.

A prompt that is prefilled whole holds up every request that decodes. Read in chunks that share a
step with the decodes, it holds them up by a budget of tokens per step (Sarathi-Serve,
arXiv:2403.02310). A request that finds no room is computed again later (as in vLLM,
arXiv:2309.06180). :func:`kvlib.scheduling.schedule` decides how many tokens each request is fed,
policies decide which one begins next and which one gives way, and :class:`kvlib.Scheduler` does it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from kvlib import serving
from kvlib.batching import Pending, schedule
from kvlib.caches import Cache
from kvlib.engine import Engine
from kvlib.events import Event, waits
from kvlib.model.decoder import Decoder
from kvlib.policies import Policy, Rules, fewest_lost, first_come, shortest_first, youngest
from kvlib.serving import CANCELLED, DECODING, DONE, PREFILLING, WAITING, Request

__all__ = [
    "CANCELLED",
    "DECODING",
    "DONE",
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


class Scheduler(Engine):
    """Requests come with ``add``, at any time; ``step`` runs one forward pass for those it can.

    cache          any cache of ``model.layer_specs``; of a PagedCache, prompts share prefixes
    budget         tokens per step at most, decodes included; None: no limit
    prefill_chunk  tokens of each prompt per step at most; None: no limit
    max_prefills   prompts that are read at the same time; None: no limit
    queue          which waiting request begins next, a function such as
                   :func:`kvlib.scheduling.shortest_first`; first come, first served unless given
    victim         which running request gives way when a step does not fit into the cache, a
                   function such as :func:`kvlib.scheduling.fewest_lost`; the youngest unless given.
                   None: nobody does, and ``step`` raises CacheFull or OutOfBlocks.

    Under a cache that keeps numbers as they came, a request's tokens depend on none of these, nor
    on the other requests. A request begins only if the budget has a token for it, so the oldest
    prompt always gets on. `requests` holds them all by name, `events` what they did; ``cancel``
    ends one early, and the name of one that has ended can be used again.

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
        stop_tokens: Iterable[int] | None = None,
    ) -> None:
        rules = Rules(budget, prefill_chunk, max_prefills, queue, victim)
        super().__init__(model, cache, rules, stop_tokens)

    @property
    def budget(self) -> int | None:
        """Tokens per step at most."""
        return self.rules.budget

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
        self.submit(
            serving.accepted(self.model, self.cache, name, prompt, max_new_tokens, settings)
        )

    def cancel(self, name: Hashable) -> list[int]:
        """End a request that waits or runs, between two steps; returns the tokens it has got."""
        request = serving.not_ended(name, self.requests)
        self._cancel(request)
        return request.new

    def run(self) -> dict[Hashable, list[int]]:
        """Step until all are done; the new tokens of each."""
        while self.busy:
            self.step()
        return {name: request.new for name, request in self.requests.items()}

    def __repr__(self) -> str:
        words = f"{serving.states(self.requests.values())}; budget {self.budget}"
        return f"{type(self).__name__}({words}; {self.num_steps} steps; {self.cache!r})"
