"""Checkers of a decode loop, and of what is still to be run after a prompt was edited."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kvbook.exercises.cached_slots import Slots, logits_after, recompute, tiny_model
from kvbook.exercises.received import token_list
from kvbook.exercises.report import Finding, checker, expect_close, expect_equal
from kvlib.caches import Cache
from kvlib.model import Decoder


@checker
def check_decode(decode: Any) -> Iterator[str]:
    """decode(forward, prompt, n) -> n greedy tokens; forward is a Slots."""
    model = tiny_model()
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, 64, int(rng.integers(2, 8))).tolist()
    for prompt, n in (([7, 21, 3, 40, 12], 6), ([50], 4), (drawn, 3), ([9, 9, 33], 1)):
        slots = Slots(model, 32)
        got = decode(slots, list(prompt), n)
        wanted = recompute(model, prompt, n)
        _look_at_calls(slots.calls, prompt, wanted[0])
        new = token_list(got, f"{n} tokens after a prompt of {len(prompt)}")
        if new[: n - 1] == wanted[1:] and new != wanted:
            raise Finding(
                "the first new token is missing: it is chosen by the logits of the prompt itself"
            )
        expect_equal(new, wanted, f"{n} tokens after a prompt of {len(prompt)}")
        if prompt is not drawn:
            yield f"{n} new after a prompt of {len(prompt)}: the same tokens as by recomputation"
        rows, needed = sum(len(t) for t, _ in slots.calls), len(prompt) + n - 1
        if rows == needed + 1:
            raise Finding(
                f"{rows} tokens were run where {needed} are enough: the last new token is only "
                "returned, so the logits after it are not needed"
            )
        expect_equal(rows, needed, "tokens run in all", why="each token is run once")
    yield "every token was run once: the prompt in one call, then one per call"


def _look_at_calls(calls: list[tuple[list[int], int]], prompt: list[int], first: int) -> None:
    """Where the tokens went: the fault shows before any token is wrong. first: the first new one.

    Where it happens to be the prompt's last token, to run it next is right.
    """
    length = len(prompt)
    if not calls:
        raise Finding("forward was never called")
    if calls[0] != (prompt, 0):
        tokens, start = calls[0]
        if tokens == prompt[-1:] or start > 0:
            raise Finding(
                f"the first call ran {len(tokens)} of the prompt's {length} tokens at position "
                f"{start}: the keys of the others were never stored. Run the whole prompt at 0"
            )
        expect_equal((tokens, start), (prompt, 0), "the first call, tokens and position")
    held = length
    for tokens, start in calls[1:]:
        if start == held + 1:
            raise Finding(
                f"positions 0 to {held - 1} are written, and the next token was put at {start}, "
                f"one position late. Slot {held} stays zero and is attended to, and every later "
                "key is rotated one position too far"
            )
        if start == 0 and len(tokens) > 1:
            raise Finding(
                f"{len(tokens)} tokens were run again from position 0: that is recomputation. "
                "Their keys are in the slots already; run the new token alone"
            )
        twice = tokens == prompt[-1:] and prompt[-1] != first
        if start == held and twice and held == length and length > 1:
            raise Finding(
                f"token {prompt[-1]}, the last of the prompt, was run at position {length - 1} "
                f"and again at {length}, so it stands in the cache twice. The first new token "
                "comes from the logits that the call with the prompt returned"
            )
        if start != held:
            raise Finding(
                f"{held} slots are written, so the next position is {held}; got {start}"
                + (": a stored key is overwritten" if start < held else "")
            )
        held += len(tokens)


# ---------------------------------------- an edited prompt


@checker
def check_reuse(reuse: Any) -> Iterator[str]:
    """reuse(cache, seq_id, held, wanted) -> tokens still to be run; truncates the cache."""
    model = tiny_model()
    base = [7, 21, 3, 40, 12, 9, 55, 30]
    for what, wanted in (
        ("an edit in the middle", [*base[:3], 41, *base[4:], 2]),
        ("a text that only grew", [*base, 17, 4]),
        ("another text altogether", [1, *base[1:5]]),
        ("the same text again", list(base)),
        ("the text cut short", base[:5]),
    ):
        run = _try_reuse(reuse, model, base, wanted, what)
        yield f"{what}: {run} of {len(wanted)} tokens are run, and the logits are right"
    rng = np.random.default_rng(0)
    for _ in range(4):
        held = rng.integers(0, 64, int(rng.integers(1, 12))).tolist()
        rest = rng.integers(0, 64, int(rng.integers(1, 8))).tolist()
        wanted = [*held[: int(rng.integers(0, len(held) + 1))], *rest]
        _try_reuse(reuse, model, held, wanted, f"{held} held, {wanted} wanted")


def _try_reuse(reuse: Any, model: Decoder, held: list[int], wanted: list[int], what: str) -> int:
    """One edit of a text; how many tokens were run for it."""
    cache = model.new_cache(2, 24)
    cache.add("chat")
    model.forward(held, cache, cache.plan(["chat"], [len(held)]))
    feed = reuse(cache, "chat", list(held), list(wanted))
    rest = token_list(feed, f"{what}: the tokens to run")
    _look_at_reuse(cache, held, wanted, rest, what)
    logits = model.forward(rest, cache, cache.plan(["chat"], [len(rest)]))
    expect_close(logits[0], logits_after(model, wanted), f"{what}: logits", atol=1e-4)
    return len(rest)


def _look_at_reuse(
    cache: Cache, held: list[int], wanted: list[int], feed: list[int], what: str
) -> None:
    kept = cache.seq_len("chat")
    same = next(
        (i for i, (a, b) in enumerate(zip(held, wanted, strict=False)) if a != b),
        min(len(held), len(wanted)),
    )
    if not feed:
        raise Finding(
            f"{what}: there is nothing left to run, so there are no logits from which to choose "
            "the next token. Truncate the cache by one token, and run the last token again"
        )
    if kept > same:
        raise Finding(
            f"{what}: the texts differ from position {same} on, and the cache still holds "
            f"{kept} tokens. A key after the first difference was computed from the old text, "
            "even where the token is the same: truncate the cache to the common beginning"
        )
    if kept + len(feed) > len(wanted):
        raise Finding(
            f"{what}: {kept} tokens are held and {len(feed)} are to be run, but the text has "
            f"{len(wanted)}: some would stand in the cache twice. Run only what is not held"
        )
    expect_equal(feed, wanted[kept:], f"{what}: tokens to run after {kept} held ones")
    best = min(same, len(wanted) - 1)
    if kept < best:
        raise Finding(f"{what}: the result is right, but {best} tokens could be kept, got {kept}")
