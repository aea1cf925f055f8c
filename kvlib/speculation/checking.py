"""Decoding with guesses: one step checks what a drafter has guessed for each request."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

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
    """A request that decodes is fed its last token and guesses, and gets the right ones.

    The arguments are those of :class:`kvlib.Scheduler`.
    """

    def __init__(self, model: Decoder, cache: Cache, drafter: Drafter, gamma: Gamma) -> None:
        check_drafter(drafter, model.config.vocab_size)
        self.model, self.cache, self.drafter, self.gamma = model, cache, drafter, gamma

    def guess(self, running: Iterable[Request]) -> None:
        """Ask for guesses for the requests that decode, where a request has none yet.

        A request gets fewer than gamma where it ends before: the last token of a text is never
        fed. If the cache can undo a part only of steps of up to `undoable` tokens, no step gets
        longer.
        """
        texts: dict[Request, Text] = {}
        for r in running:
            if r.state != DECODING or r.draft is not None:
                continue
            most = self.gamma
            if not isinstance(most, int):
                most = check_integer("gamma(request)", most(r), 0)
            most = min(most, r.max_new_tokens - len(r.new) - 1)
            if self.cache.undoable is not None:
                most = min(most, self.cache.undoable - 1)
            if most > 0:
                texts[r] = Text(r.name, r.text, most, r.temperature, r.top_k, r.top_p, r.seed)
        if texts:
            drafts = get_drafts(self.drafter, [*texts.values()], self.model.config.vocab_size)
            for r, draft in zip(texts, drafts, strict=True):
                r.draft = draft

    def parents(self, feed: Feed) -> dict[str, Any]:
        """Of a tree, the last token of the text is number 0, and guess j is number j + 1."""
        trees = [
            [-1, *(parent + 1 for parent in r.draft.parents[: len(part) - 1])]
            if len(part) > 1 and r.draft and r.draft.parents is not None
            else None
            for r, part in feed.items()
        ]
        return {"parents": trees} if any(trees) else {}

    def logit_rows(self, feed: Feed) -> Any:
        """The row of each last token, and of each guess."""
        drafts = fed_drafts(feed)
        if not any(r.draft for r in drafts):
            return "last"
        ends = dict(zip(feed, accumulate(map(len, feed.values())), strict=True))
        return [
            row for r, d in drafts.items() for row in range(ends[r] - len(d.tokens) - 1, ends[r])
        ]

    def tokens(self, feed: Feed, logits: Array) -> dict[Request, list[int]]:
        """The guesses that are right, and the token after them."""
        drafts = fed_drafts(feed)
        if not any(r.draft for r in drafts):
            return super().tokens(feed, logits)
        rows: dict[Request, range] = {}
        at = 0
        for r, draft in drafts.items():
            rows[r] = range(at, at + 1 + len(draft.tokens))
            at = rows[r].stop
        plain = [
            Draw(r, row, ahead)
            for r, draft in drafts.items()
            if not (r.temperature and draft.q is not None)
            for row, ahead in zip(rows[r], _ahead(draft), strict=True)
        ]
        tokens = draw_tokens(plain, logits)
        each = {(d.request, d.row): token for d, token in zip(plain, tokens, strict=True)}
        found = {}
        for r, draft in drafts.items():
            if r.temperature and draft.q is not None:
                x = logits[rows[r].start : rows[r].stop, ...]
                p = probabilities(x, r.temperature, r.top_k, r.top_p)
                found[r] = _accept_drawn(r, draft, draft.q, p)
            else:
                best = [each[r, row] for row in rows[r]]
                found[r] = accept_matching(best, draft.tokens, draft.tree)
        return found

    def keep(self, cache: Cache, r: Request, fed: int, tokens: list[int], used: int) -> bool:
        """Keep the guesses that were right in the cache, and count them.

        The guesses after the first wrong one, or after the end, are not judged, so `lately` counts
        one wrong at most, and of a tree one if none of several siblings was right.
        """
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
    """The guesses that a step feeds, of each request that gets a token from it."""
    return {
        r: r.draft.first(len(part) - 1) if r.draft else Draft()
        for r, part in feed.items()
        if completed(r, part)
    }


def _accept_drawn(r: Request, draft: Draft, q: np.ndarray, p: np.ndarray) -> list[int]:
    """The tokens that a request gets from guesses that were drawn from q, and p at each of them.

    Of two guesses with the same parent, each is judged by a stream of its own. A step goes along
    one path, so it judges one set of siblings per position.
    """
    ahead, rank = _ahead(draft), ranks(draft.tree)
    levels = max(ahead)
    streams = [rng_at(r.seed, r.length, JUDGED + 2 * k) for k in range(max(rank, default=-1) + 1)]
    by_rank = [stream.random(levels) for stream in streams]
    verdicts = [by_rank[k][at - 1] for k, at in zip(rank, ahead[1:], strict=True)]
    numbers = rng_at(r.seed, r.length).random(levels + 1)[ahead]
    path, token = accept_tree(p, draft.tokens, draft.tree, q, verdicts, numbers)
    return [*(int(draft.tokens[j]) for j in path), token]


def _ahead(draft: Draft) -> list[int]:
    """How many tokens after the text each row of a request draws: the last token, and guesses."""
    return [0, *(depth + 1 for depth in draft.depths())]


def accept_matching(
    tokens: Sequence[int], draft: Sequence[int], parents: Sequence[int] | None = None
) -> list[int]:
    """The tokens of a text from guesses that were not drawn: those that are right, and one more.

    tokens: the n + 1 tokens that the model chooses, after the text and after each guess, each as
    if the guesses before it were right. So the text is the same as without guesses.
    parents: of a tree of guesses; a chain unless given

    >>> accept_matching([4, 5, 6], draft=[4, 7])
    [4, 5]
    >>> accept_matching([7, 5, 6], draft=[4, 7], parents=(-1, -1))
    [7, 6]
    """
    after, at = children(chain(len(draft)) if parents is None else parents), -1
    found = [int(tokens[0])]
    while right := [j for j in after.get(at, ()) if draft[j] == found[-1]]:
        at = right[0]
        found.append(int(tokens[at + 1]))
    return found


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
