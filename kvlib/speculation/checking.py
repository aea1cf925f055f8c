"""One step that checks guesses: what each request is fed, and which tokens it gets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from kvlib.arguments import check_integer, describe
from kvlib.arrays import Array
from kvlib.caches import Cache, Step
from kvlib.sampling import greedy, probabilities, rng_at
from kvlib.serving import DECODING, Place, Request, draw, noted
from kvlib.speculation.acceptance import JUDGED, accept_tree, agreed
from kvlib.speculation.draft import Draft, Drafter, Text, asked
from kvlib.speculation.draft_model import DraftModel
from kvlib.speculation.tree import chain, ranks

Gamma = int | Callable[[Request], int]
WEIGHT = 1 / 8  # of a verdict in `Request.lately`


def check_gamma(gamma: Any) -> Gamma:
    """The number of guesses per step, or a function of a request that says it; refuses others."""
    return gamma if callable(gamma) else check_integer("gamma", gamma, 0)


def guess(
    drafter: Drafter,
    gamma: Gamma,
    running: Iterable[Request],
    vocabulary: int,
    undoable: int | None = None,
) -> None:
    """Ask for guesses for the requests that decode, where a request has none yet.

    A request gets fewer than gamma where it ends before: the last token of a text is never fed. If
    the cache can undo a part only of steps of up to `undoable` tokens, no step gets longer.
    """
    texts, requests = [], []
    for r in running:
        if r.state != DECODING or r.draft is not None:
            continue
        wanted = gamma if isinstance(gamma, int) else check_integer("gamma(request)", gamma(r), 0)
        most = min(wanted, r.max_new_tokens - len(r.new) - 1)
        if undoable is not None:
            most = min(most, undoable - 1)
        if most > 0:
            drawn = r.temperature, r.top_k, r.top_p, r.seed
            texts.append(Text(r.name, r.text, most, *drawn))
            requests.append(r)
    if texts:
        for r, draft in zip(requests, asked(drafter, texts, vocabulary), strict=True):
            r.draft = draft


def without_guesses(parts: dict[Request, list[int]]) -> bool:
    """Feed no guesses in this step; returns whether there were any."""
    found = [r for r, part in parts.items() if r.state == DECODING and len(part) > 1]
    for r in found:
        parts[r] = parts[r][:1]
    return bool(found)


def planned(cache: Cache, parts: Mapping[Request, list[int]]) -> tuple[Step, list[int]]:
    """Plan the step that feeds each request its part, and the tokens that it feeds.

    A request that is fed guesses is fed its last token before them. So guess j of a tree is number
    j + 1 among its new tokens, and the last token is number 0, which the others follow.
    """
    names, lengths = [r.name for r in parts], [*map(len, parts.values())]
    fed = [t for part in parts.values() for t in part]
    if len(fed) > len(names):  # most steps: all decode, none has guesses
        trees = [_parents(r, n) for r, n in zip(parts, lengths, strict=True)]
        if any(trees):
            return cache.plan(names, lengths, fed, parents=trees), fed
    return cache.plan(names, lengths, fed), fed


def _parents(r: Request, fed: int) -> list[int] | None:
    if r.draft is None or r.draft.parents is None:
        return None
    return [-1, *(parent + 1 for parent in r.draft.parents[: fed - 1])]


def next_tokens(
    parts: Mapping[Request, list[int]], step: Step, forward: Callable[[Any], Array]
) -> dict[Request, list[int]]:
    """The tokens that requests get from a step, which is run here; those with none are left out.

    parts: what each request is fed, in the order of the step. A request whose prompt is not
    through gets no token, one that decodes gets one and those of its guesses that are right.
    forward: the model's forward pass, as a function of the rows whose logits are wanted.
    """
    ends = {r: row for row, (r, part) in enumerate(parts.items()) if r.held + len(part) >= r.length}
    if not any(r.draft for r in ends):
        logits = forward("last")
        if len(ends) == len(parts) and not any(r.temperature for r in ends):
            tokens = greedy(logits)  # most steps: all decode, none draws
        else:
            tokens = draw([Place(r, row) for r, row in ends.items()], logits) if ends else []
        return {r: [token] for r, token in zip(ends, tokens, strict=True)}
    ends = {r: step.qo_indptr[row + 1] for r, row in ends.items()}
    drafts = {r: r.draft.first(len(parts[r]) - 1) if r.draft else Draft() for r in ends}
    counts = {r: 1 + len(draft.tokens) for r, draft in drafts.items()}
    logits = forward([row for r, end in ends.items() for row in range(end - counts[r], end)])
    first, at = {}, 0
    for r, n in counts.items():
        first[r], at = at, at + n
    drawn = {r for r, draft in drafts.items() if r.temperature and draft.q is not None}
    plain = [
        Place(r, first[r] + row, ahead)
        for r, draft in drafts.items()
        if r not in drawn
        for row, ahead in enumerate(_ahead(draft))
    ]
    each = iter(draw(plain, logits))
    found = {}
    for r, draft in drafts.items():
        if draft.q is not None and r in drawn:
            settings = r.temperature, r.top_k, r.top_p
            p = probabilities(logits[first[r] : first[r] + counts[r], ...], *settings)
            found[r] = _accepted(r, draft, draft.q, p)
        else:
            found[r] = agreed([next(each) for _ in range(counts[r])], draft.tokens, draft.parents)
    return found


def _ahead(draft: Draft) -> list[int]:
    """How many tokens after the text each row of a request draws: the last token, and guesses."""
    return [0, *(depth + 1 for depth in draft.depths())]


def _accepted(r: Request, draft: Draft, q: np.ndarray, p: np.ndarray) -> list[int]:
    """The tokens that a request gets from guesses that were drawn from q, and p at each of them.

    Of two guesses with the same parent, each is judged by a stream of its own. A step goes along
    one path, so it judges one set of siblings per position.
    """
    parents = chain(len(draft.tokens)) if draft.parents is None else draft.parents
    ahead, rank = _ahead(draft), ranks(parents)
    levels = max(ahead)
    streams = [rng_at(r.seed, r.length, JUDGED + 2 * k) for k in range(max(rank, default=-1) + 1)]
    by_rank = [stream.random(levels) for stream in streams]
    verdicts = [by_rank[k][at - 1] for k, at in zip(rank, ahead[1:], strict=True)]
    numbers = rng_at(r.seed, r.length).random(levels + 1)[ahead]
    path, token = accept_tree(p, draft.tokens, parents, q, verdicts, numbers)
    return [*(int(draft.tokens[j]) for j in path), token]


def keep_right(cache: Cache, r: Request, fed: int, tokens: list[int], used: int) -> None:
    """After a step, keep the guesses that were right in the cache, and note how many they are.

    tokens: the guesses that were right, and one more. used: how many of these the request gets:
    fewer where one of them ends it. The guesses after the first wrong one, or after the end, are
    not judged, so `lately` counts one wrong at most, and of a tree one if none of several siblings
    was right.
    """
    draft, r.draft = r.draft.first(fed - 1), None
    path = draft.path(tokens[:-1])
    if used < len(tokens):
        missed = False
    elif draft.parents is None:
        missed = len(path) < fed - 1
    else:
        missed = (path[-1] if path else -1) in draft.parents
    right = min(used, len(path))
    r.drafted += fed - 1
    r.accepted += right
    for verdict in [1.0] * right + [0.0] * missed:
        r.lately += WEIGHT * (verdict - r.lately)
    if fed > used:  # the cache forgets the wrong guesses
        r.held -= fed - used
        if draft.parents is None:
            cache.truncate(r.name, r.held)
        else:
            path = path[: used - 1]
            cache.keep(r.name, [0, *(j + 1 for j in path)])
        r.left = noted(cache, r)


def check_drafter(drafter: Any, vocabulary: int) -> None:
    """Refuse what cannot guess, and a draft model that knows more tokens than the model."""
    if isinstance(drafter, type):  # its `draft` can be called, but not without an instance
        raise TypeError(
            f"drafter must be an instance such as PromptLookup(), got the class {drafter.__name__}"
        )
    if drafter is not None and not callable(getattr(drafter, "draft", None)):
        raise TypeError(
            "drafter must be a kvlib.speculation.Drafter such as PromptLookup(), "
            f"got {describe(drafter)}"
        )
    if drafter is not None and not callable(getattr(drafter, "free", None)):
        raise TypeError(
            f"{type(drafter).__name__} needs a method free(name), which forgets a request that has "
            "ended; it may derive from kvlib.speculation.Drafter, whose free does nothing"
        )
    if isinstance(drafter, DraftModel) and drafter.model.config.vocab_size > vocabulary:
        raise ValueError(
            f"drafter's model has {drafter.model.config.vocab_size} tokens, needed: at most the "
            f"{vocabulary} of the model that checks its guesses"
        )
