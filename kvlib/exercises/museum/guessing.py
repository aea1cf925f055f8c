"""Room six, continued: guesses that were refused, and have to be forgotten."""

from __future__ import annotations

from collections.abc import Hashable

from kvlib.caches import Cache
from kvlib.exercises.museum import guards_forgetting, looks_forgetting
from kvlib.exercises.museum.exhibit import Exhibit
from kvlib.exercises.museum.mutation import Call
from kvlib.speculation import DraftModel, Text


def not_on_a_full_ring(truncate: Call, cache: Cache, seq_id: Hashable, length: int) -> None:
    windows = [spec.window for spec in cache.layers if spec.window is not None]
    if length == cache.seq_len(seq_id) or all(length < window for window in windows):
        truncate(cache, seq_id, length)


def two_too_many(opened: Call, drafter: DraftModel, text: Text) -> bool:
    before = drafter._fed.get(text.name)
    refused = before is not None and before.agreeing(text.tokens) < len(before.tokens)
    found: bool = opened(drafter, text)
    if refused and found:
        length = drafter.cache.seq_len(text.name)
        drafter.cache.truncate(text.name, max(0, length - 2))
    return found


EXHIBITS = (
    Exhibit(
        "guesses_stay_in_a_ring",
        "kvlib.caches.protocol",
        "Cache.truncate",
        not_on_a_full_ring,
        room="forgetting",
        cite="mlx-lm #1423, mlx-swift-lm #424",
        happened="When a model refuses guesses, the cache has to forget them. As soon as a window "
        "was full, the cut did nothing and said nothing, so later tokens read the guesses.",
        look=looks_forgetting.with_guesses,
        caught_by=guards_forgetting.guesses_change_no_token,
    ),
    Exhibit(
        "draft_cut_by_two_too_many",
        "kvlib.speculation.draft_model",
        "DraftModel._opened",
        two_too_many,
        room="forgetting",
        cite="lablup/mlxcel #994 (mended in #1002)",
        happened="After each refused guess, the cache of the draft model was cut by two tokens too "
        "many, which were never read again. The text stays right, because every guess is "
        "checked, but ever fewer guesses are.",
        look=looks_forgetting.how_many_guesses_are_right,
        caught_by=guards_forgetting.a_draft_model_has_read_the_whole_text,
    ),
)
