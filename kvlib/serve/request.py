"""A request, how its next tokens are decoded, and the events that tell what happened to it."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from kvlib.arguments import describe, in_order
from kvlib.arrays import Array, namespace
from kvlib.caches import Cache
from kvlib.serve.distribution import greedy
from kvlib.serve.sampling import rng_at, sample

WAITING, PREFILLING, DECODING = "waiting", "prefilling", "decoding"
DONE, CANCELLED, FAILED = "done", "cancelled", "failed"


@dataclass(eq=False)
class Request:
    """A prompt, the tokens generated after it, and its state.

    held      how many tokens of its text are cached
    error     why it has failed; None unless its state is FAILED
    stamp     how the scheduler last left it in the cache; if it differs, other code changed it
    draft     guesses for its next tokens, which its next step checks (kvlib.speculation)
    steps     how many steps have given it tokens; with guesses, a step may give several
    drafted, accepted   how many guesses have been checked, and how many of them were right
    lately    a running mean of its guesses (right 1, wrong 0), in which the newest weighs 1/8;
              siblings in a tree count as one

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
    error: ValueError | None = None
    stamp: Any = field(default=None, repr=False)
    draft: Any = None
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    lately: float = 0.5

    @property
    def text(self) -> list[int]:
        """Prompt and new tokens: the cache must hold them before the next token is drawn."""
        return self.prompt + self.new

    @property
    def length(self) -> int:
        """Tokens of its text."""
        return len(self.prompt) + len(self.new)

    @property
    def pending(self) -> int:
        """The most tokens that `next_tokens` returns."""
        if self.state != DECODING:
            return self.length - self.held
        return 1 if self.draft is None else 1 + len(self.draft.tokens)

    def next_tokens(self, n: int) -> list[int]:
        """The next n tokens of its text; once it decodes, its last token and n − 1 guesses."""
        if self.state != DECODING:
            return self.text[self.held : self.held + n]
        return [self.new[-1], *(self.draft.tokens[: n - 1] if n > 1 else ())]

    @property
    def tokens_per_step(self) -> float:
        """New tokens per step that gave it any: 1 without guesses, 0 before the first token."""
        return len(self.new) / max(1, self.steps)

    @property
    def acceptance(self) -> float:
        """The share of its guesses that were right; 0 before any has been checked."""
        return self.accepted / max(1, self.drafted)

    @property
    def ended(self) -> bool:
        """Whether it gets no more tokens."""
        return self.state in (DONE, CANCELLED, FAILED)

    def mark(self, cache: Cache) -> None:
        """Remember how the scheduler leaves it in the cache."""
        self.stamp = stamp(cache, self.name)

    def untouched(self, cache: Cache) -> bool:
        """Whether it is in the cache as the scheduler left it."""
        return bool(stamp(cache, self.name) == self.stamp)


Gamma = int | Callable[[Request], int]  # the most guesses of a request, or a function that says it
Feed = dict[Request, list[int]]  # what a step feeds each request, in the order of the step


class Decoding:
    """Plain decoding: a request is fed its last token; `greedy` may be what a device has found."""

    greedy: Callable[[Array], list[int]] = staticmethod(greedy)

    def guess(self, running: Iterable[Request]) -> None:
        """Prepare a step, before the scheduler decides how many tokens each request is fed."""

    def parents(self, feed: Feed) -> dict[str, Any]:
        """What `cache.plan` takes beside the tokens: which one each guess follows."""
        return {}

    def logit_rows(self, feed: Feed) -> Any:
        """The rows whose logits are needed, as `model.forward` takes them."""
        return "last"

    def tokens(self, feed: Feed, logits: Array) -> dict[Request, list[int]]:
        """The tokens of each request that gets any, given the logits of `logit_rows`."""
        draws = [Draw(r, row) for row, r in enumerate(feed) if completed(r, feed[r])]
        tokens = draw_tokens(draws, logits, self.greedy)
        return {d.request: [token] for d, token in zip(draws, tokens, strict=True)}

    def keep(self, cache: Cache, r: Request, fed: int, tokens: list[int], used: int) -> bool:
        """Remove refused guesses, of which `used` tokens are not; whether there were any."""
        return False

    def free(self, name: Hashable) -> None:
        """Forget a request that has ended or begins again."""


def completed(r: Request, fed: Sequence[int]) -> bool:
    """Whether the cache holds all of a request's text once it has been fed these tokens."""
    return r.held + len(fed) >= r.length


class Draw(NamedTuple):
    """A token to be drawn from row `row` of logits, `ahead` tokens after the request's text."""

    request: Request
    row: int
    ahead: int = 0


def draw_tokens(
    draws: Sequence[Draw], logits: Array, greedy: Callable[[Array], list[int]] = greedy
) -> list[int]:
    """Draw tokens from a step's logits (R, V) by seed and position; the rows of draws ascend."""
    by_settings: dict[Any, list[Draw]] = defaultdict(list)
    for d in draws:
        r = d.request
        by_settings[r.temperature and (r.temperature, r.top_k, r.top_p)].append(d)
    tokens: dict[int, int] = {}  # by row
    for settings, group in by_settings.items():
        x, rows = logits, [d.row for d in group]
        if len(rows) < logits.shape[0]:
            xp = namespace(logits)
            x = xp.take(logits, xp.asarray(rows), axis=0)
        if settings:
            rngs = [rng_at(d.request.seed, d.request.length + d.ahead) for d in group]
            temperature, top_k, top_p = settings
            drawn = sample(x, temperature, top_k, top_p, rngs)
        else:
            drawn = greedy(x)
        tokens.update(zip(rows, drawn, strict=True))
    return [tokens[d.row] for d in draws]


def stamp(cache: Cache, name: Hashable) -> Any:
    """Return what changes if anybody frees, truncates or plans a request: (it, length, plans)."""
    sequence = cache._sequences.get(name)
    return None if sequence is None else (sequence, sequence.length, sequence.plans)


def raise_failed(requests: Iterable[Request]) -> None:
    """Raise the error of the first request that has failed; the others have ended by then."""
    for r in requests:
        if r.error is not None:
            raise r.error


class Event(NamedTuple):
    """One thing that happened to a request in a step.

    kind    hit      tokens of it were found in the cache, so they are not computed again
            prefill  it was fed a chunk of its prompt
            decode   it was fed its last token, and guesses after it
            accept   it got one more token in the same step, because a guess was right
            wait     the cache had no room for it, or for its chunk
            preempt  it lost its room; all its tokens will be fed again
            done     it has ended
            cancel   it was ended by :meth:`kvlib.Scheduler.cancel`
            fail     it was ended because other code changed it in the cache
    tokens  how many were found, fed or lost
    token   the new token that it got; None if it got none, or a stop token

    >>> Event(step=3, request="a", kind="decode", tokens=1, token=65).kind
    'decode'
    """

    step: int
    request: Hashable
    kind: str
    tokens: int
    token: int | None = None


def waits(events: Iterable[Event]) -> dict[Hashable, list[int]]:
    """Return, by request, how many tokens the model was fed between two of its new tokens.

    >>> events = [Event(1, "a", "prefill", 9, 65), Event(2, "a", "decode", 1, 66)]
    >>> waits([*events, Event(2, "b", "prefill", 7)])  # a waited for eight tokens; alone, for one
    {'a': [8]}
    """
    fed_or_ended = []
    for event in in_order("events", events, "events"):
        if not isinstance(event, Event):
            raise TypeError(f"events must be those of a scheduler, got {describe(event)}")
        if event.kind not in ("hit", "wait", "preempt"):
            fed_or_ended.append(event)
    fed, at_last_token = 0, dict[Hashable, int]()
    waited: dict[Hashable, list[int]] = {}
    for _, group in groupby(fed_or_ended, key=lambda e: e.step):
        step = list(group)
        fed += sum(e.tokens for e in step)
        for e in step:
            if e.kind in ("done", "cancel", "fail"):
                at_last_token.pop(e.request, None)  # its name may be another's next
            if e.token is not None:
                if e.request in at_last_token:
                    waited.setdefault(e.request, []).append(fed - at_last_token[e.request])
                at_last_token[e.request] = fed
    return waited
