"""A request of a server: its prompt, its settings, where it stands, and the draw of its tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kvlib.arrays import Array
from kvlib.caches import Cache, Step
from kvlib.model.decoder import Decoder
from kvlib.prompts import check_positive, check_prompt, check_seed, token_ids
from kvlib.sampling import check_settings, rng_at, sample

WAITING, PREFILLING, DECODING = "waiting", "prefilling", "decoding"
DONE, CANCELLED = "done", "cancelled"


@dataclass(eq=False)
class Request:
    """A prompt, what was generated behind it, and where it stands.

    temperature, top_k, top_p, seed: how its tokens are drawn, as in :func:`kvlib.generate`.

    >>> Request("a", [1, 2], max_new_tokens=3, new=[9]).text
    [1, 2, 9]
    """

    name: Hashable
    prompt: list[int]
    max_new_tokens: int
    new: list[int] = field(default_factory=list)
    state: str = WAITING
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    @property
    def text(self) -> list[int]:
        """All that has to be in the cache before the next token can be drawn."""
        return self.prompt + self.new

    @property
    def length(self) -> int:
        """Tokens of its text."""
        return len(self.prompt) + len(self.new)

    @property
    def ended(self) -> bool:
        """Whether it gets no more tokens."""
        return self.state in (DONE, CANCELLED)

    def draw(self, logits: Array) -> int:
        """Its next token.   logits (1, V)

        Seed and position decide it (see `rng_at`), whoever shares the step and however often a
        step fails: so it is the token that `generate` draws for the same prompt and seed.
        """
        rng = rng_at(self.seed, self.length)
        return sample(logits, self.temperature, self.top_k, self.top_p, rngs=rng)[0]


def draw(
    requests: Iterable[Request], seq_lens: Sequence[int], logits: Array, best: Sequence[int]
) -> list[int | None]:
    """The next token of each request whose text is through, None for the others.

    seq_lens (B,) how much of each lies in the cache   logits (B, V)   best (B,) the greedy tokens
    """
    drawn: list[int | None] = []
    for row, (r, length, token) in enumerate(zip(requests, seq_lens, best, strict=True)):
        if length < r.length:
            drawn.append(None)
        else:
            drawn.append(r.draw(logits[row : row + 1, :]) if r.temperature else token)
    return drawn


def take_back(cache: Cache, step: Step) -> None:
    """Undo a pass that has failed: its requests hold again what they held before its plan."""
    for name, end, n in zip(step.seq_ids, step.seq_lens, step.q_lens, strict=True):
        cache.truncate(name, end - n)


def states(requests: Iterable[Request]) -> str:
    """How many requests stand where, in words."""
    found = Counter(r.state for r in requests)
    order = (DECODING, PREFILLING, WAITING, DONE, CANCELLED)
    return ", ".join(f"{found[s]} {s}" for s in order if found[s]) or "no requests"


def check_name(name: Hashable, requests: Mapping[Hashable, Request], cache: Cache) -> None:
    """Refuse a name that somebody bears who has not ended."""
    try:
        known = requests.get(name)
    except TypeError:
        raise TypeError(f"the name of a request must be hashable, got {name!r}") from None
    if (known and not known.ended) or name in cache.seq_ids:
        raise ValueError(
            f"request {name!r} is known already and has not ended; choose another name"
        )


def not_ended(name: Hashable, requests: Mapping[Hashable, Request]) -> Request:
    """The request of that name that waits or runs, or ValueError."""
    found = [r for r in requests.values() if not r.ended]
    for r in found:
        if r.name == name:
            return r
    names = ", ".join(repr(r.name) for r in found[:5]) or "none"
    raise ValueError(f"request {name!r} is neither waiting nor running; those are: {names}")


def accepted(
    model: Decoder,
    cache: Cache,
    name: Hashable,
    prompt: Iterable[int],
    max_new_tokens: int,
    settings: tuple[float, int | None, float | None, int],
) -> Request:
    """A request that the model and the cache can serve, or the error that says why not.

    settings: temperature, top_k, top_p and seed.
    """
    check_positive("max_new_tokens", max_new_tokens)
    check_settings(*settings[:3])
    check_seed(settings[3])
    ids = token_ids(f"prompt {name!r}", prompt)
    check_prompt(model, f"prompt {name!r}", ids, max_new_tokens)
    cache.check_room(name, len(ids) + int(max_new_tokens) - 1)
    return Request(name, ids, int(max_new_tokens), [], WAITING, *settings)
