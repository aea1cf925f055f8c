"""How many guesses of a draft model are right, measured in kvlib."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvlib import DenseCache, Scheduler
from kvlib.model.decoder import Decoder
from kvlib.quality import loss, teacher_forced
from kvlib.reference import sample_text
from kvlib.serve import probabilities
from kvlib.speculation import DraftModel, expected_tokens

PROMPT, NEW, GAMMA = 512, 256, 4
SETTINGS = {"greedy": 0.0, "temperature 1": 1.0}


def prompts(held: dict[str, bytes], length: int = PROMPT) -> list[list[int]]:
    """The first bytes of each held-out module."""
    return [list(text[:length]) for text in held.values()]


def spot(model: Decoder, draft: Decoder) -> dict[str, float]:
    """Figures that a test can afford: on the shipped sample, which no version of Python changes."""
    text = list(sample_text().encode())
    starts = [text[at : at + 256] for at in (0, 4000, 8000)]
    first = loss(draft, draft.new_cache(1, 1024), text[:1024])
    greedy = acceptance(model, draft, starts, new=48)
    return {"bits_of_1024": round(first.bits_per_token, 4), **greedy}


def acceptance(
    model: Decoder,
    draft: Decoder,
    starts: Sequence[list[int]],
    *,
    new: int = NEW,
    temperature: float = 0.0,
    gamma: int = GAMMA,
) -> dict[str, float]:
    """Guesses of `draft` for what `model` writes: each prompt continued by `new` tokens.

    Returns
    share     the probability that a guess is accepted, its mean over all new tokens: whether the
              two models' likeliest tokens agree, or at a temperature the sum over the vocabulary of
              min(p, q)
    expected  tokens per step that the formula predicts from it for `gamma` guesses
    measured  tokens per step in `kvlib.Scheduler`, steps with fewer guesses left out
    """
    texts = written(model, starts, new, temperature)
    share = float(np.mean([overlap(model, draft, t, new, temperature) for t in texts]))
    scheduler = Scheduler(
        model,
        model.new_cache(len(starts), len(starts[0]) + new),
        drafter=DraftModel(draft, max_seqs=len(starts)),
        gamma=gamma,
        stop_tokens=(),
    )
    for i, start in enumerate(starts):
        scheduler.add(i, start, new, temperature=temperature, seed=i)
    scheduler.run()
    tokens: list[int] = []
    for name in scheduler.requests:
        full = False
        for event in (e for e in scheduler.events if e.request == name):
            if event.kind in ("decode", "prefill"):
                full = event.tokens == gamma + 1 and event.kind == "decode"
                tokens += [1] * full
            elif event.kind == "accept" and full:
                tokens[-1] += 1
    return {
        "share": round(share, 4),
        "expected": round(expected_tokens(share, gamma), 3),
        "measured": round(sum(tokens) / len(tokens), 3),
    }


def written(
    model: Decoder, starts: Sequence[list[int]], new: int, temperature: float
) -> list[list[int]]:
    """The prompts with what the model writes after them, without guesses."""
    scheduler = Scheduler(model, model.new_cache(len(starts), len(starts[0]) + new), stop_tokens=())
    for i, start in enumerate(starts):
        scheduler.add(i, start, new, temperature=temperature, seed=i)
    found = scheduler.run()
    return [[*start, *found[i]] for i, start in enumerate(starts)]


def overlap(model: Decoder, draft: Decoder, text: list[int], new: int, temperature: float) -> float:
    """Mean probability, over a text's `new` last tokens, that a guess for one is accepted."""
    rows = [
        teacher_forced(m, DenseCache(m.layer_specs, 1, len(text), xp=np), text, chunk=256)[
            len(text) - new - 1 : -1
        ]
        for m in (model, draft)
    ]
    if not temperature:
        return float((rows[0].argmax(axis=1) == rows[1].argmax(axis=1)).mean())
    p, q = (probabilities(r, temperature) for r in rows)
    return float(np.minimum(p, q).sum(axis=1).mean())
