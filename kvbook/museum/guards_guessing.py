"""Tests that catch the bugs of the museum: guesses, and what remains of them. See `guards`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kvbook.museum.tiny import close, logits_of_all, prompt, small_model, spread
from kvlib.serve.generation import generate
from kvlib.speculation import Draft, Drafter, DraftModel, Text, accept

LAW = 0.02  # how far shares over evenly spread numbers may be from probabilities


class _Repeat(Drafter):
    """Guesses the last token again and again."""

    def draft(self, texts: Sequence[Text]) -> list[Draft]:
        return [Draft([text.tokens[-1]] * text.most) for text in texts]


def guesses_change_no_token() -> None:
    """New tokens with guesses, most of them wrong, through full layers and through windows."""
    for windows in ((None, None), (3, None)):
        model, settings = small_model(windows), dict[str, Any](max_new_tokens=10, stop_tokens=())
        wanted = generate(model, [prompt(7)], **settings)
        assert generate(model, [prompt(7)], drafter=_Repeat(), **settings) == wanted


def a_draft_model_has_read_the_whole_text() -> None:
    """Its cache holds the text and all guesses but the last, also after wrong guesses."""
    drafter, ids = DraftModel(small_model(), max_seqs=1), prompt(5)
    for _ in range(4):
        (found,) = drafter.draft([Text("a", ids, most=3)])
        assert drafter.cache.seq_len("a") == len(ids) + len(found.tokens) - 1
        ids.append((found.tokens[0] + 1) % 31)  # no guess was right


def a_guessed_token_has_the_law_of_the_model() -> None:
    """The first token after one guess, over evenly spread verdicts and numbers."""
    rng, points = np.random.default_rng(0), spread()
    for _ in range(3):
        p, q = rng.dirichlet(np.ones(4), 2), rng.dirichlet(np.ones(4), 1)
        shares = np.zeros(4)
        for guess in range(4):
            for verdict, number in points:
                new = accept(p.copy(), [guess], q, [verdict], [number, number])
                shares[new[0]] += q[0, guess] / len(points)
        off = np.abs(shares - p[0]).max()
        assert off <= LAW, f"shares {shares.round(2)}, wanted {p[0].round(2)}"


def a_drawn_guess_has_the_law_it_states() -> None:
    """Guesses of 500 seeds against the q that comes with them: all within five deviations."""
    drafter, counts, n = DraftModel(small_model(), max_seqs=100), np.zeros(31), 500
    for first in range(0, n, 100):
        texts = [Text(seed, [3, 1], 1, 1.0, seed=seed) for seed in range(first, first + 100)]
        for text, draft in zip(texts, drafter.draft(texts), strict=True):
            q = np.asarray(draft.q)[0]
            counts[draft.tokens[0]] += 1
            drafter.free(text.name)
    assert (np.abs(counts - n * q) <= 5 * np.sqrt(n * q * (1 - q))).all(), counts


def a_path_of_a_tree_is_what_it_is_alone() -> None:
    """Logits of each guess of a tree, and of the text that ends with it, read from the start."""
    model, ids, parents = small_model(), prompt(6), [-1, 0, 0, 1, 2, 4]
    guesses, cache = prompt(6, seed=1), model.new_cache(1, 16)
    cache.add("a")
    model.forward(ids, cache, cache.plan(["a"], [6]))
    step = cache.plan(["a"], [6], parents=[parents])
    logits = model.forward(guesses, cache, step, rows="all")
    for path in ([0, 1, 3], [0, 2, 4, 5]):
        alone = logits_of_all(model, ids + [guesses[j] for j in path])
        close(logits[path], alone[6:])
