"""Room seven: guesses, how they are judged, and what is left of those that were refused."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kvbook.museum import guards_guessing, looks_guessing
from kvbook.museum.exhibit import Exhibit
from kvbook.museum.mutation import Call
from kvlib.arrays import Array
from kvlib.caches import Cache
from kvlib.speculation import Draft, DraftModel, Text
from kvlib.speculation.acceptance import inverse

Path = tuple[list[int], int]  # the guesses accepted, and the token after them


def not_on_a_full_ring(truncate: Call, cache: Cache, seq_id: Hashable, length: int) -> None:
    windows = [spec.window for spec in cache.layers if spec.window is not None]
    if length == cache.seq_len(seq_id) or all(length < window for window in windows):
        truncate(cache, seq_id, length)


def two_too_many(opened: Call, drafter: DraftModel, text: Text) -> bool:
    before = drafter._cached.get(text.name)
    refused = before is not None and before.agreeing(text.tokens) < len(before.tokens)
    found: bool = opened(drafter, text)
    if refused and found:
        length = drafter.cache.seq_len(text.name)
        drafter.cache.truncate(text.name, max(0, length - 2))
    return found


def through_a_softmax(
    accepted: Call, p: Array, tokens: Any, parents: Any, q: Array, verdicts: Any, numbers: Any
) -> Path:
    path, token = accepted(p, tokens, parents, q, verdicts, numbers)
    for j in refused(path, parents)[:1]:
        row = parents[j] + 1
        rest = np.maximum(p[row] - q[j], 0.0)
        token = inverse(np.exp(rest), numbers[row])  # a token without any rest weighs 1
    return path, token


def one_number_for_both(
    accepted: Call, p: Array, tokens: Any, parents: Any, q: Array, verdicts: Any, numbers: Any
) -> Path:
    path: Path = accepted(p, tokens, parents, q, verdicts, [*verdicts, numbers[-1]])
    return path


def row_after_the_refused_one(
    accepted: Call, p: Array, tokens: Any, parents: Any, q: Array, verdicts: Any, numbers: Any
) -> Path:
    path, token = accepted(p, tokens, parents, q, verdicts, numbers)
    for j in refused(path, parents)[:1]:
        token = inverse(p[j + 1], numbers[parents[j] + 1])
    return path, token


def emptied_in_place(
    accepted: Call, p: Array, tokens: Any, parents: Any, q: Array, verdicts: Any, numbers: Any
) -> Path:
    for j, token in enumerate(tokens):
        p[parents[j] + 1, token] = 0.0  # meant for a copy, from which a guess is replaced
    path: Path = accepted(p, tokens, parents, q, verdicts, numbers)
    return path


def verdicts_of_zero(
    accepted: Call, p: Array, tokens: Any, parents: Any, q: Array, verdicts: Any, numbers: Any
) -> Path:
    path: Path = accepted(p, tokens, parents, q, [0.0] * len(tokens), numbers)
    return path


def refused(path: Sequence[int], parents: Sequence[int]) -> list[int]:
    """The guesses in whose place a token is drawn: those that follow the last one accepted."""
    last = path[-1] if path else -1
    return [j for j, parent in enumerate(parents) if parent == last]


def likeliest(draft: Call, drafter: DraftModel, texts: Sequence[Text]) -> list[Draft]:
    drafts: list[Draft] = draft(drafter, texts)
    return [d if d.q is None else replace(d, tokens=d.q.argmax(axis=1).tolist()) for d in drafts]


def row_in_the_step(depths: Call, parents: Sequence[int]) -> list[int]:
    return list(range(len(parents)))


EXHIBITS = (
    Exhibit(
        "guesses_stay_in_a_ring",
        "kvlib.caches.protocol",
        "Cache.truncate",
        not_on_a_full_ring,
        room="guesses",
        cite="mlx-lm #1423, mlx-swift-lm #424",
        happened="When a model refuses guesses, the cache has to forget them. As soon as a window "
        "was full, the cut did nothing and said nothing, so later tokens read the guesses.",
        look=looks_guessing.with_guesses,
        caught_by=guards_guessing.guesses_change_no_token,
    ),
    Exhibit(
        "draft_cut_by_two_too_many",
        "kvlib.speculation.draft_model",
        "DraftModel._opened",
        two_too_many,
        room="guesses",
        cite="lablup/mlxcel #994 (mended in #1002)",
        happened="After each refused guess, the cache of the draft model was cut by two tokens too "
        "many, which the model never read again. The text stays right, because every guess is "
        "checked, but fewer and fewer guesses are right.",
        look=looks_guessing.how_many_guesses_are_right,
        caught_by=guards_guessing.a_draft_model_has_read_the_whole_text,
    ),
    Exhibit(
        "row_taken_for_a_position",
        "kvlib.caches.trees",
        "depths",
        row_in_the_step,
        room="guesses",
        cite="lablup/mlxcel #1214 (found and mended there)",
        happened="A tree of guesses was checked in one step, and each guess got its row as its "
        "position. That is right for a chain. A second guess for one place puts every guess "
        "after it one position too far.",
        look=looks_guessing.along_a_tree,
        caught_by=guards_guessing.a_path_of_a_tree_is_what_it_is_alone,
    ),
    Exhibit(
        "likeliest_guess_called_drawn",
        "kvlib.speculation.draft_model",
        "DraftModel.draft",
        likeliest,
        room="guesses",
        cite="jaymody/speculative-sampling #3, transformers #32867",
        happened="The draft model guessed its likeliest token, but handed over the probabilities "
        "of all tokens. The rule of acceptance assumes that the guess was drawn from them.",
        look=looks_guessing.shares_with_a_draft_model,
        caught_by=guards_guessing.a_drawn_guess_has_the_law_it_states,
    ),
    Exhibit(
        "every_guess_accepted",
        "kvlib.speculation.acceptance",
        "_accept",
        verdicts_of_zero,
        room="guesses",
        cite="vllm-ascend #13730 (mended in #13470)",
        happened="The random number of the verdict was always 0, so a guess was accepted however "
        "unlikely it was. The text became that of the draft model, and the reported acceptance "
        "was 100 %.",
        look=looks_guessing.shares_of_a_token,
        caught_by=guards_guessing.a_guessed_token_has_the_law_of_the_model,
    ),
    Exhibit(
        "rest_through_a_softmax",
        "kvlib.speculation.acceptance",
        "_accept",
        through_a_softmax,
        room="guesses",
        cite="transformers #28508 (mended before 4.37.0)",
        happened="After a refusal, a token is drawn from what is left of the model's "
        "probabilities. They went through a softmax in place of a division by their sum, so "
        "tokens with nothing left got a probability, too.",
        look=looks_guessing.shares_of_a_token,
        caught_by=guards_guessing.a_guessed_token_has_the_law_of_the_model,
    ),
    Exhibit(
        "one_number_for_verdict_and_token",
        "kvlib.speculation.acceptance",
        "_accept",
        one_number_for_both,
        room="guesses",
        cite="vllm-ascend #16370",
        happened="The random number that refused a guess also drew the token in its place. After a "
        "refusal that number is large, so the draw favours the tokens at the end of the list.",
        look=looks_guessing.shares_of_a_token,
        caught_by=guards_guessing.a_guessed_token_has_the_law_of_the_model,
    ),
    Exhibit(
        "row_emptied_in_place",
        "kvlib.speculation.acceptance",
        "_accept",
        emptied_in_place,
        room="guesses",
        cite="vllm-ascend #2881",
        happened="To replace a refused guess, its probability is set to 0 in a copy of the model's "
        "probabilities. It was set to 0 before the copy was made, so the original lost it, too.",
        look=looks_guessing.shares_of_a_token,
        caught_by=guards_guessing.a_guessed_token_has_the_law_of_the_model,
    ),
    Exhibit(
        "token_after_the_one_that_is_due",
        "kvlib.speculation.acceptance",
        "_accept",
        row_after_the_refused_one,
        room="guesses",
        cite="openvino.genai #4190",
        happened="A refusal was handled one token late: the word that was due was dropped, and the "
        "word predicted to follow it was kept in its place.",
        look=looks_guessing.shares_of_a_token,
        caught_by=guards_guessing.a_guessed_token_has_the_law_of_the_model,
    ),
)
