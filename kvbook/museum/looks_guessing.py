"""Looks at guesses: a text that is written with them, and the shares of a token drawn from them.
See `kvbook.museum.looks`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from kvbook.museum.looks import ASKED, LONGER, text, zeroed
from kvbook.museum.tiny import spread
from kvlib.arrays import to_numpy
from kvlib.model.decoder import Decoder
from kvlib.serve import Scheduler, greedy, probabilities
from kvlib.speculation import DraftModel, PromptLookup, Text, accept, lower_layers

BRANCH = "class Stack:\n    def __init__(self, "  # four letters are about as likely to follow
KEPT = 4  # top-k


def with_guesses(model: Decoder) -> str:
    """a name asked for, guesses looked up in the text; windows of 32 except in the last layer"""
    windows = (32,) * (model.config.num_hidden_layers - 1) + (None,)
    model = Decoder(replace(model.config, windows=windows), model.weights, model.tokenizer)
    return text(model, [ASKED.format("tfre")], zeroed(model), 16, drafter=PromptLookup())


def how_many_guesses_are_right(model: Decoder) -> str:
    """24 new tokens, with guesses made by the first three of the model's five layers"""
    drafter = DraftModel(lower_layers(model, 3), max_seqs=1)
    server = Scheduler(model, zeroed(model), drafter=drafter, stop_tokens=())
    server.add("a", model.tokenizer.encode(2 * LONGER), max_new_tokens=24)
    new = model.tokenizer.decode(server.run()["a"])
    r = server.requests["a"]
    return f"{new!r}, {r.accepted} of {r.drafted} guesses right"


def shares_of_a_token(model: Decoder) -> str:
    """shares of the next token at top-k 4; each possible guess counts with its probability"""
    ids = model.tokenizer.encode(BRANCH)
    q = probabilities(_logits(lower_layers(model, 3), ids), 1.0, KEPT)
    return _shares(model, ids, {guess: q[0, guess] for guess in np.flatnonzero(q).tolist()}, q)


def shares_with_a_draft_model(model: Decoder) -> str:
    """shares of the next token at top-k 4, over 144 guesses made by the first three layers"""
    ids, drafter = model.tokenizer.encode(BRANCH), DraftModel(lower_layers(model, 3), max_seqs=1)
    guesses, seeds = Counter[int](), 144
    for seed in range(seeds):
        (draft,) = drafter.draft([Text("a", ids, 1, 1.0, KEPT, None, seed)])
        guesses.update(map(int, draft.tokens))
    q = np.asarray(draft.q)
    return _shares(model, ids, {token: n / seeds for token, n in sorted(guesses.items())}, q)


def along_a_tree(model: Decoder) -> str:
    """a name asked for; one step checks four branches: three wrong letters, then the right name"""
    ids, name = model.tokenizer.encode(ASKED.format("tfre")), "tfre"
    wrong = model.tokenizer.encode("abc")
    fed = [ids[-1], *wrong, *model.tokenizer.encode(name)]
    parents = [-1, 0, 0, 0, 0, 4, 5, 6]
    cache = zeroed(model)
    cache.add("a")
    model.forward(ids[:-1], cache, cache.plan(["a"], [len(ids) - 1]))
    step = cache.plan(["a"], [len(fed)], parents=[parents])
    logits = model.forward(fed, cache, step, rows="all")
    return repr(
        model.tokenizer.decode([greedy(logits[j : j + 1, ...])[0] for j in (0, 4, 5, 6, 7)])
    )


def _shares(model: Decoder, ids: list[int], guesses: Mapping[int, float], q: np.ndarray) -> str:
    """The token after a text, over evenly spread verdicts and numbers.

    guesses: a guess → its share of the guesses. q (1, V): the distribution that comes with it.
    """
    points, found, kept = spread(), np.zeros(q.shape[1]), 0.0
    for guess, share in guesses.items():
        p = probabilities(_logits(model, [*ids, guess], 2), 1.0, KEPT)  # at the guess, and after
        for verdict, number in points:
            new = accept(p.copy(), [guess], q, [verdict], [number] * 2)
            found[new[0]] += share / len(points)
            kept += share / len(points) * (len(new) == 2)
    said = [f"{chr(token)} {_percent(found[token])}" for token in np.flatnonzero(p[0])]
    others = _percent(found[p[0] == 0].sum())
    return f"{', '.join(said)}, others {others}; guesses kept: {_percent(kept)}"


def _logits(model: Decoder, ids: list[int], rows: int = 1) -> np.ndarray:
    cache = zeroed(model)
    cache.add("a")
    step = cache.plan(["a"], [len(ids)])
    wanted = list(range(len(ids) - rows, len(ids)))
    return np.asarray(to_numpy(model.forward(ids, cache, step, rows=wanted)))


def _percent(share: float) -> str:
    return f"{round(100 * share)} %"
