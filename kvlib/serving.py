"""A request of a server: its prompt, its settings, where it stands, and the draw of its tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvlib.arrays import Array, namespace
from kvlib.caches import Cache, Step
from kvlib.sampling import greedy, rng_at, sample

WAITING, PREFILLING, DECODING = "waiting", "prefilling", "decoding"
DONE, CANCELLED = "done", "cancelled"


@dataclass(eq=False)
class Request:
    """A prompt, the tokens generated after it, and where the request stands.

    temperature, top_k, top_p, seed: how its tokens are drawn, as in :func:`kvlib.generate`.
    held: how many tokens of its text lie in the cache; the scheduler keeps count.

    >>> Request("a", [1, 2], max_new_tokens=3, new=[9]).text
    [1, 2, 9]
    """

    name: Hashable
    prompt: list[int]
    max_new_tokens: int = 32
    new: list[int] = field(default_factory=list)
    state: str = WAITING
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0
    held: int = 0

    @property
    def text(self) -> list[int]:
        """Prompt and new tokens: the cache must hold them before the next token is drawn."""
        return self.prompt + self.new

    @property
    def length(self) -> int:
        """Tokens of its text."""
        return len(self.prompt) + len(self.new)

    def part(self, n: int) -> list[int]:
        """Its next n tokens to be fed; once the prompt has been read, only the last one drawn."""
        return [self.new[-1]] if self.state == DECODING else self.text[self.held : self.held + n]

    @property
    def ended(self) -> bool:
        """Whether it gets no more tokens."""
        return self.state in (DONE, CANCELLED)


def draw(rows: Mapping[Request, int], logits: Array) -> dict[Request, int]:
    """Draw the next token of each request from its row of a step's logits.

    rows: the row of each request, in ascending order   logits (B, V)

    Seed and position decide each draw (see `rng_at`), whatever other requests share the step and
    however often a step fails. Requests with the same settings are drawn together.
    """
    if len(rows) == logits.shape[0] and not any(r.temperature for r in rows):
        return dict(zip(rows, greedy(logits), strict=True))  # most steps: all decode, none draws
    alike: dict[Any, list[Request]] = defaultdict(list)
    for r in rows:
        alike[r.temperature and (r.temperature, r.top_k, r.top_p)].append(r)
    drawn: dict[Request, int] = {}
    for settings, requests in alike.items():
        x = logits
        if len(requests) < logits.shape[0]:
            xp = namespace(logits)
            x = xp.take(logits, xp.asarray([rows[r] for r in requests]), axis=0)
        if settings:
            temperature, top_k, top_p = settings
            rngs = [rng_at(r.seed, r.length) for r in requests]
            tokens = sample(x, temperature, top_k, top_p, rngs=rngs)
        else:
            tokens = greedy(x)
        drawn.update(zip(requests, tokens, strict=True))
    return drawn


def undo(cache: Cache, step: Step) -> None:
    """Undo a step that has failed: its requests hold again what they held before its plan."""
    for name, end, n in zip(step.seq_ids, step.seq_lens, step.q_lens, strict=True):
        cache.truncate(name, end - n)
