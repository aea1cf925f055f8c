"""One step that checks guesses: what each request is fed, and which tokens it gets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kvlib.arguments import check_integer, describe
from kvlib.arrays import Array
from kvlib.caches import Step
from kvlib.sampling import greedy, probabilities, rng_at
from kvlib.serving import DECODING, Place, Request, draw
from kvlib.speculation.acceptance import JUDGED, accept, agreed
from kvlib.speculation.draft import Drafter, Text, asked

Gamma = int | Callable[[Request], int]
WEIGHT = 1 / 8  # of a verdict in `Request.lately`


def check_gamma(gamma: Any) -> Gamma:
    """The number of guesses per step, or a function of a request that says it; refuses others."""
    return gamma if callable(gamma) else check_integer("gamma", gamma, 0)


def guess(drafter: Drafter, gamma: Gamma, running: Iterable[Request], vocabulary: int) -> None:
    """Ask for guesses for the requests that decode, where a request has none yet.

    A request gets fewer than gamma where it ends before: the last token of a text is never fed.
    """
    texts, requests = [], []
    for r in running:
        if r.state != DECODING or r.draft is not None:
            continue
        wanted = gamma if isinstance(gamma, int) else check_integer("gamma(request)", gamma(r), 0)
        most = min(wanted, r.max_new_tokens - len(r.new) - 1)
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
    guesses = {r: parts[r][1:] for r in ends if r.draft}
    counts = {r: 1 + len(guesses.get(r, ())) for r in ends}
    logits = forward([row for r, end in ends.items() for row in range(end - counts[r], end)])
    first, at = {}, 0
    for r, n in counts.items():
        first[r], at = at, at + n
    drawn = {r for r in ends if r.temperature and guesses.get(r) and r.draft.q is not None}
    plain = [Place(r, first[r] + i, i) for r in ends if r not in drawn for i in range(counts[r])]
    each = iter(draw(plain, logits))
    found = {}
    for r in ends:
        n = counts[r] - 1
        if r in drawn:
            settings = r.temperature, r.top_k, r.top_p
            p = probabilities(logits[first[r] : first[r] + n + 1, ...], *settings)
            verdicts = rng_at(r.seed, r.length, JUDGED).random(n)  # one for each position
            numbers = rng_at(r.seed, r.length).random(n + 1)
            found[r] = accept(p, guesses[r], r.draft.q, verdicts, numbers)
        else:
            found[r] = agreed([next(each) for _ in range(n + 1)], guesses.get(r, []))
    return found


def judged(r: Request, guesses: int, right: int) -> None:
    """Note how many of a request's guesses were right.

    The guesses behind the first wrong one are not judged, so `lately` counts one wrong at most.
    """
    r.draft = None
    r.drafted += guesses
    r.accepted += right
    for verdict in [1.0] * right + [0.0] * (right < guesses):
        r.lately += WEIGHT * (verdict - r.lately)


def check_drafter(drafter: Any) -> None:
    """Refuse what cannot guess."""
    if drafter is not None and not callable(getattr(drafter, "draft", None)):
        raise TypeError(
            "drafter must be a kvlib.speculation.Drafter such as PromptLookup(), "
            f"got {describe(drafter)}"
        )
