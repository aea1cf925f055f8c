"""Decoding with guesses: one step checks what a drafter has guessed for each request."""

from collections.abc import Hashable, Iterable, Sequence
from itertools import accumulate, islice
from typing import Any

from kvlib.arguments import check_integer, describe
from kvlib.arrays import Array
from kvlib.caches import Cache
from kvlib.model.decoder import Decoder
from kvlib.serve.distribution import probabilities
from kvlib.serve.request import (
    DECODING,
    Decoding,
    Draw,
    Feed,
    Gamma,
    Request,
    completed,
    draw_tokens,
)
from kvlib.serve.sampling import rng_at
from kvlib.speculation.acceptance import JUDGED, accept_tree
from kvlib.speculation.draft import Draft, Drafter, Text, chain, children, get_drafts, ranks
from kvlib.speculation.draft_model import DraftModel

WEIGHT = 1 / 8  # of a verdict in `Request.lately`


class Speculation(Decoding):
    """A request is fed its last token and guesses, and gets the right ones (`kvlib.Scheduler`)."""

    def __init__(self, model: Decoder, cache: Cache, drafter: Drafter, gamma: Gamma) -> None:
        check_drafter(drafter, model.config.vocab_size)
        self.model, self.cache, self.drafter, self.gamma = model, cache, drafter, gamma

    def guess(self, running: Iterable[Request]) -> None:
        """Ask for guesses for requests that decode and have none: fewer than gamma just before the
        end, whose last token is never fed, and no more than the cache can undo a part of."""
        texts: dict[Request, Text] = {}
        for r in running:
            if r.state != DECODING or r.draft is not None:
                continue
            gamma = self.gamma
            if not isinstance(gamma, int):
                gamma = check_integer("gamma(request)", gamma(r), 0)
            most = min(gamma, r.max_new_tokens - len(r.new) - 1)
            if self.cache.undoable is not None:
                most = min(most, self.cache.undoable - 1)
            if most > 0:
                texts[r] = Text(r.name, r.text, most, r.temperature, r.top_k, r.top_p, r.seed)
        if texts:
            drafts = get_drafts(self.drafter, [*texts.values()], self.model.config.vocab_size)
            for r, draft in zip(texts, drafts, strict=True):
                r.draft = draft

    def parents(self, feed: Feed) -> dict[str, Any]:
        """Return the trees of the step: the last token of a text is number 0, guess j is j + 1."""
        trees = [
            [-1, *(parent + 1 for parent in r.draft.parents[: len(fed) - 1])]
            if len(fed) > 1 and r.draft and r.draft.parents is not None
            else None
            for r, fed in feed.items()
        ]
        return {"parents": trees} if any(trees) else {}

    def logit_rows(self, feed: Feed) -> Any:
        """Return the row of each last token, and of each guess."""
        drafts = fed_drafts(feed)
        if not any(r.draft for r in drafts):
            return "last"
        ends = dict(zip(feed, accumulate(map(len, feed.values())), strict=True))
        return [
            row for r, d in drafts.items() for row in range(ends[r] - len(d.tokens) - 1, ends[r])
        ]

    def tokens(self, feed: Feed, logits: Array) -> dict[Request, list[int]]:
        """Return the guesses that are right, and the token after them."""
        drafts = fed_drafts(feed)
        if not any(r.draft for r in drafts):
            return super().tokens(feed, logits)
        ends = accumulate(1 + len(draft.tokens) for draft in drafts.values())
        rows = {r: range(end - 1 - len(drafts[r].tokens), end) for r, end in zip(drafts, ends)}
        judged = [r for r, draft in drafts.items() if r.temperature and draft.q is not None]
        draws = [
            Draw(r, row, ahead)
            for r, draft in drafts.items()
            if r not in judged
            for row, ahead in zip(rows[r], _ahead(draft), strict=True)
        ]
        chosen = iter(draw_tokens(draws, logits))
        return {
            r: _accept_drawn(r, draft, logits[rows[r].start : rows[r].stop, ...])
            if r in judged
            else accept_matching(list(islice(chosen, len(rows[r]))), draft.tokens, draft.tree)
            for r, draft in drafts.items()
        }

    def keep(self, cache: Cache, r: Request, fed: int, tokens: list[int], used: int) -> bool:
        """Keep and count the right guesses; those after the first wrong one aren't judged."""
        if r.draft is None:
            return False
        draft = r.draft.first(fed - 1)
        path = draft.path(tokens[:-1])
        if fed > used and draft.parents is None:
            cache.truncate(r.name, r.held + used)
        elif fed > used:
            cache.keep(r.name, [0, *(j + 1 for j in path[: used - 1])])
        missed = used == len(tokens) and (path[-1] if path else -1) in draft.tree
        right = min(used, len(path))
        r.draft, r.drafted, r.accepted = None, r.drafted + fed - 1, r.accepted + right
        for verdict in [1.0] * right + [0.0] * missed:
            r.lately += WEIGHT * (verdict - r.lately)
        return fed > used

    def free(self, name: Hashable) -> None:
        self.drafter.free(name)


def fed_drafts(feed: Feed) -> dict[Request, Draft]:
    """Return the guesses that a step feeds, of each request that gets a token from it."""
    return {
        r: r.draft.first(len(fed) - 1) if r.draft else Draft()
        for r, fed in feed.items()
        if completed(r, fed)
    }


def _accept_drawn(r: Request, draft: Draft, logits: Array) -> list[int]:
    """Return the tokens of a request whose guesses were drawn; each sibling has its stream."""
    assert draft.q is not None
    p = probabilities(logits, r.temperature, r.top_k, r.top_p)
    ahead, rank = _ahead(draft), ranks(draft.tree)
    levels = max(ahead)
    streams = [rng_at(r.seed, r.length, JUDGED + 2 * k) for k in range(max(rank, default=-1) + 1)]
    by_rank = [stream.random(levels) for stream in streams]
    verdicts = [by_rank[k][at - 1] for k, at in zip(rank, ahead[1:], strict=True)]
    numbers = rng_at(r.seed, r.length).random(levels + 1)[ahead]
    path, token = accept_tree(p, draft.tokens, draft.tree, draft.q, verdicts, numbers)
    return [*(int(draft.tokens[j]) for j in path), token]


def _ahead(draft: Draft) -> list[int]:
    """Return how many tokens after the text each row draws: 0 for the last token, then guesses."""
    return [0, *(depth + 1 for depth in draft.depths())]


def accept_matching(
    tokens: Sequence[int], draft: Sequence[int], parents: Sequence[int] | None = None
) -> list[int]:
    """Return the guesses that match the model's n + 1 `tokens`, and its token after them."""
    after, at = children(chain(len(draft)) if parents is None else parents), -1
    accepted = [int(tokens[0])]
    while right := [j for j in after.get(at, ()) if draft[j] == accepted[-1]]:
        at = right[0]
        accepted.append(int(tokens[at + 1]))
    return accepted


def check_drafter(drafter: Any, vocabulary: int) -> None:
    """Refuse what cannot guess, and a draft model that knows more tokens than the model."""
    if isinstance(drafter, type):  # its `draft` can be called, but not without an instance
        raise TypeError(
            f"drafter must be an instance such as PromptLookup(), got the class {drafter.__name__}"
        )
    if not callable(getattr(drafter, "draft", None)):
        raise TypeError(
            "drafter must be a kvlib.speculation.Drafter such as PromptLookup(), "
            f"got {describe(drafter)}"
        )
    if not callable(getattr(drafter, "free", None)):
        raise TypeError(
            f"{type(drafter).__name__} needs a method free(name), which forgets a request that has "
            "ended; it may derive from kvlib.speculation.Drafter, whose free does nothing"
        )
    if isinstance(drafter, DraftModel) and drafter.model.config.vocab_size > vocabulary:
        raise ValueError(
            f"drafter's model has {drafter.model.config.vocab_size} tokens, needed: at most the "
            f"{vocabulary} of the model that checks its guesses"
        )
