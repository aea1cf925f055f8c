"""Guesses, how they are judged, and what replaces those that are refused."""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kvbook.museum import guards_guessing, looks
from kvbook.museum.exhibit import Exhibit, collector
from kvbook.museum.mutation import Call
from kvlib.arrays import Array
from kvlib.caches import Cache
from kvlib.speculation import Draft, DraftModel, Text
from kvlib.speculation.acceptance import inverse

Path = tuple[list[int], int]  # the guesses accepted, and the token after them

EXHIBITS: list[Exhibit] = []
shipped = collector("guesses", EXHIBITS)


@shipped(
    "kvlib.caches.protocol",
    "Cache.truncate",
    cite="mlx-lm #1423, mlx-swift-lm #424",
    caught_by=guards_guessing.guesses_change_no_token,
)
def guesses_stay_in_a_ring(truncate: Call, cache: Cache, seq_id: Hashable, length: int) -> None:
    """Once a window was full, truncating removed nothing, so later tokens read refused guesses."""
    windows = [spec.window for spec in cache.layers if spec.window is not None]
    if length == cache.seq_len(seq_id) or all(length < window for window in windows):
        truncate(cache, seq_id, length)


@shipped(
    "kvlib.speculation.draft_model",
    "DraftModel._opened",
    cite="lablup/mlxcel #994 (fixed in #1002)",
    caught_by=guards_guessing.a_draft_model_has_read_the_whole_text,
)
def draft_cut_by_two_too_many(opened: Call, drafter: DraftModel, text: Text) -> bool:
    """After each refusal, the draft model's cache lost two tokens too many; the text stayed right
    but got slower."""
    before = drafter._cached.get(text.name)
    refused = before is not None and before.agreeing(text.tokens) < len(before.tokens)
    found: bool = opened(drafter, text)
    if refused and found:
        length = drafter.cache.seq_len(text.name)
        drafter.cache.truncate(text.name, max(0, length - 2))
    return found


@shipped(
    "kvlib.speculation.acceptance",
    "_accept",
    cite="transformers #28508 (fixed before 4.37.0)",
    caught_by=guards_guessing.a_guessed_token_has_the_law_of_the_model,
    look=looks.shares_of_a_token,
)
def rest_through_a_softmax(
    accepted: Call, p: Array, tokens: Any, parents: Any, q: Array, verdicts: Any, numbers: Any
) -> Path:
    """What remains after a refusal went through a softmax instead of being divided by its sum."""
    path, token = accepted(p, tokens, parents, q, verdicts, numbers)
    for j in refused(path, parents)[:1]:
        row = parents[j] + 1
        rest = np.maximum(p[row] - q[j], 0.0)
        token = inverse(np.exp(rest), numbers[row])  # a token without any rest weighs 1
    return path, token


@shipped(
    "kvlib.speculation.acceptance",
    "_accept",
    cite="vllm-ascend #16370",
    caught_by=guards_guessing.a_guessed_token_has_the_law_of_the_model,
    look=looks.shares_of_a_token,
    lines=("[*verdicts, numbers[-1]]", "inverse(rest, numbers[at + 1])"),
)
def one_number_for_verdict_and_token(
    accepted: Call, p: Array, tokens: Any, parents: Any, q: Array, verdicts: Any, numbers: Any
) -> Path:
    """The random number that refused a guess also drew the token that replaced it."""
    path: Path = accepted(p, tokens, parents, q, verdicts, [*verdicts, numbers[-1]])
    return path


@shipped(
    "kvlib.speculation.acceptance",
    "_accept",
    cite="openvino.genai #4190",
    caught_by=guards_guessing.a_guessed_token_has_the_law_of_the_model,
    look=looks.shares_of_a_token,
)
def token_after_the_one_that_is_due(
    accepted: Call, p: Array, tokens: Any, parents: Any, q: Array, verdicts: Any, numbers: Any
) -> Path:
    """The replacement of a refused guess was drawn from the row of the position after it."""
    path, token = accepted(p, tokens, parents, q, verdicts, numbers)
    for j in refused(path, parents)[:1]:
        token = inverse(p[j + 1], numbers[parents[j] + 1])
    return path, token


@shipped(
    "kvlib.speculation.acceptance",
    "_accept",
    cite="vllm-ascend #2881",
    caught_by=guards_guessing.a_guessed_token_has_the_law_of_the_model,
    look=looks.shares_of_a_token,
)
def row_emptied_in_place(
    accepted: Call, p: Array, tokens: Any, parents: Any, q: Array, verdicts: Any, numbers: Any
) -> Path:
    """The refused guess was set to 0 in the model's own probabilities, before they judged it."""
    for j, token in enumerate(tokens):
        p[parents[j] + 1, token] = 0.0  # meant for a copy, from which a guess is replaced
    path: Path = accepted(p, tokens, parents, q, verdicts, numbers)
    return path


@shipped(
    "kvlib.speculation.acceptance",
    "_accept",
    cite="vllm-ascend #13730 (fixed in #13470)",
    caught_by=guards_guessing.a_guessed_token_has_the_law_of_the_model,
    look=looks.shares_of_a_token,
    lines=("[0.0] * len(tokens)", "verdicts[j] * among[tokens[j]] < rest[tokens[j]]"),
)
def every_guess_accepted(
    accepted: Call, p: Array, tokens: Any, parents: Any, q: Array, verdicts: Any, numbers: Any
) -> Path:
    """The random number of the verdict was always 0, so every guess was accepted."""
    path: Path = accepted(p, tokens, parents, q, [0.0] * len(tokens), numbers)
    return path


def refused(path: Sequence[int], parents: Sequence[int]) -> list[int]:
    """The guesses in whose place a token is drawn: those that follow the last one accepted."""
    last = path[-1] if path else -1
    return [j for j, parent in enumerate(parents) if parent == last]


@shipped(
    "kvlib.speculation.draft_model",
    "DraftModel.draft",
    cite="jaymody/speculative-sampling #3, transformers #32867",
    caught_by=guards_guessing.a_drawn_guess_has_the_law_it_states,
)
def likeliest_guess_called_drawn(
    draft: Call, drafter: DraftModel, texts: Sequence[Text]
) -> list[Draft]:
    """The draft model guessed its likeliest token, but the rule of acceptance assumes a drawn
    one."""
    drafts: list[Draft] = draft(drafter, texts)
    return [d if d.q is None else replace(d, tokens=d.q.argmax(axis=1).tolist()) for d in drafts]


@shipped(
    "kvlib.caches.trees",
    "depths",
    cite="lablup/mlxcel #1214 (found and fixed there)",
    caught_by=guards_guessing.a_path_of_a_tree_is_what_it_is_alone,
)
def row_taken_for_a_position(depths: Call, parents: Sequence[int]) -> list[int]:
    """In a tree of guesses, each guess got its row as its position, also if several were
    alternatives."""
    return list(range(len(parents)))
