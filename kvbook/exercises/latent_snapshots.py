"""The checker of a recurrent state that can go back, because it keeps copies of itself."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kvbook.exercises.counted import allocated
from kvbook.exercises.latent_states import States, Tokens, expect_state
from kvbook.exercises.report import Finding, checker

MIB = 2**20
OWN = "the state begins as zeros, and each object has one of its own, made in __init__"


@checker
def check_states(states: type) -> Iterator[str]:
    """States(Dk, Dv, every) with append(k (T, Dk), v (T, Dv)), read(q (Dk,)) → (Dv,) and
    truncate(length) → how many tokens to append again."""
    _reads(states)
    yield "read gives M.T @ q, however the tokens were cut into chunks"

    _goes_back(states)
    yield (
        "truncate goes back to the newest copy at or before the length, also to one from the "
        "middle of a chunk, and says how many tokens are missing"
    )

    _other_tokens(states)
    yield "a copy stays as it was, until the tokens that it was made of are truncated away"

    _ends(states)
    _exact(states)
    _in_float32(states)
    yield (
        "the present length needs nothing, the state before the first copy is zero, and a copy is "
        "exact even after numbers beside which float32 forgets the rest"
    )

    _little_memory(states)
    yield "a long chunk takes the memory of its copies, and truncate gives theirs back"

    _lives(states)
    yield "two objects at once, with random chunks and lengths, stand where they should"


def drawn(rng: np.random.Generator, tokens: int, dk: int, dv: int) -> Tokens:
    """Tokens of small whole numbers, so that float32 sums them exactly in any order."""
    k, v = (rng.integers(1, 5, (tokens, d)) * rng.choice((-1, 1), (tokens, d)) for d in (dk, dv))
    return Tokens(dk, dv, k.astype(np.float32), v.astype(np.float32))


def _reads(states: type) -> None:
    rng = np.random.default_rng(91)
    for dk, dv in ((3, 5), (4, 4)):
        tokens = drawn(rng, 9, dk, dv)
        for chunks in ([9], [1] * 9, [4, 2, 3]):
            one = States(states, dk, dv, 4)
            expect_state(one, Tokens(dk, dv), "before the first token", why=OWN)
            one.append_all(tokens, chunks)
            said = f"after chunks of {', '.join(map(str, chunks))} tokens"
            expect_state(one, tokens, said, chunks=chunks)


def _goes_back(states: type) -> None:
    """11 tokens in chunks of 2, 3 and 6, with copies after 4 and 8."""
    chunks = [2, 3, 6]
    tokens = drawn(np.random.default_rng(92), 11, 3, 5)
    for length, stands in ((6, 4), (9, 8), (8, 8), (4, 4)):
        one = States(states, 3, 5, 4)
        one.append_all(tokens, chunks)
        one.truncate(length, tokens, chunks)
        expect_state(one, tokens[:stands], f"after truncate({length})", before=tokens)
        if stands < length:
            one.append(tokens[stands:length])
            expect_state(one, tokens[:length], f"after truncate({length}) and the missing tokens")


def _other_tokens(states: type) -> None:
    rng = np.random.default_rng(93)
    tokens = drawn(rng, 11, 3, 5)
    one = States(states, 3, 5, 4)
    one.append_all(tokens, [11])
    for turn in range(3):
        one.truncate(6, tokens)
        other = tokens[:4] + drawn(rng, 7, 3, 5)
        what = f"after truncate(6), the copy after 4 tokens, {turn + 1} times"
        expect_state(one, tokens[:4], what, before=tokens)
        one.append(other[4:])
        one.truncate(8, other)
        what = "after 7 other tokens and truncate(8)"
        expect_state(one, other[:8], what, before=other, old=tokens[:8])
        one.append(other[8:])
        tokens = other


def _ends(states: type) -> None:
    tokens = drawn(np.random.default_rng(94), 7, 3, 5)
    one = States(states, 3, 5, 4)
    one.append(tokens)
    one.truncate(7, tokens)
    expect_state(one, tokens, "after truncate(7) of 7 tokens, which needs nothing")
    one.truncate(5, tokens)
    expect_state(one, tokens[:4], "after truncate(7) and truncate(5)", before=tokens)
    one.truncate(3, tokens[:4])
    expect_state(one, Tokens(3, 5), "after truncate(3), before the first copy", before=tokens[:4])
    one.append(tokens[:3])
    one.truncate(0, tokens[:3])
    expect_state(one, Tokens(3, 5), "after truncate(0)", before=tokens[:3])
    one = States(states, 3, 5, 1)
    one.append(tokens)
    one.truncate(6, tokens)
    expect_state(one, tokens[:6], "with every = 1, after truncate(6)", before=tokens)


def _exact(states: type) -> None:
    """Token 5 is so large that float32 loses all the others beside it."""
    tokens = drawn(np.random.default_rng(95), 7, 3, 5)
    tokens.k[5:6] = tokens.v[5:6] = 2.0**20
    one = States(states, 3, 5, 4)
    one.append(tokens)
    one.truncate(4, tokens)
    why = (
        "the numbers of token 5 were about a million times as large as the others, so float32 had "
        "rounded the others away. A subtraction does not bring them back; a copy of the state does"
    )
    expect_state(one, tokens[:4], "after truncate(4) of 7 tokens", before=tokens, why=why)


def _in_float32(states: type) -> None:
    """Check that the state and its copies are float32, which has no number 2^24 + 1."""
    one = States(states, 3, 5, 1)  # a copy after each token, so that none is recomputed
    q = np.array([1, 0, 0], np.float32)
    for number in (2**24, 1, -(2**24)):
        one.append(Tokens(3, 5, q[None], np.full((1, 5), number, np.float32)))
    got = one.read(q)
    if got.any():
        raise Finding(
            "after three tokens that add 2^24, 1 and -2^24, read gives "
            f"{got[np.argmax(got != 0)]:g}, needed 0: float32 has no number 2^24 + 1, so the state "
            "has more digits than float32. Keep M and its copies in float32"
        )


def _little_memory(states: type) -> None:
    dk = dv = 32  # a state of 4 KiB
    tokens = drawn(np.random.default_rng(96), 1024, dk, dv)
    one = States(states, dk, dv, 256)
    _, peak = allocated(one.append_lightly, tokens.k, tokens.v)
    if peak > MIB:
        raise Finding(
            f"a chunk of 1,024 tokens with every = 256: {peak / MIB:.1f} MiB were allocated at "
            "once, and 4 copies of the state take 16 KiB. Keep no state per token: add one outer "
            "product after the other, and copy what you keep (a view keeps its whole array alive)"
        )
    expect_state(one, tokens, "after a chunk of 1,024 tokens")
    one.truncate(700, tokens)
    expect_state(one, tokens[:512], "after a chunk of 1,024 tokens and truncate(700)")
    _forgets(states)


def _forgets(states: type) -> None:
    """Copies of 64 KiB, beside which the tokens are small."""
    one = States(states, 128, 128, 1)
    tokens = drawn(np.random.default_rng(98), 4, 128, 128)

    def again() -> None:
        for _ in range(32):
            one.append(tokens)
            one.truncate(0, tokens)

    _, peak = allocated(again)
    if peak > 4 * MIB:
        raise Finding(
            "32 times 4 tokens with every = 1, each time followed by truncate(0): more than 4 MiB "
            "were held in the end, and 4 copies take 0.25 MiB. Forget the copies after the length "
            "that truncate goes back to"
        )
    one.append(tokens[:3])
    expect_state(one, tokens[:3], "after 32 times 4 tokens and truncate(0), and 3 tokens")


def _lives(states: type) -> None:
    rng = np.random.default_rng(97)
    for every in (1, 3, 50):
        both = [(States(states, 4, 2, every), Tokens(4, 2)) for _ in range(2)]
        for _ in range(25):
            i = int(rng.integers(2))
            one, tokens = both[i]
            more = drawn(rng, int(rng.integers(1, 9)), 4, 2)
            one.append(more)
            tokens = tokens + more
            length = int(rng.integers(len(tokens) + 1))
            if rng.random() < 0.5:
                one.truncate(length, tokens)
                stands = length if length == len(tokens) else length // every * every
                tokens = tokens[:stands]
            both[i] = one, tokens
            for other, held in both:
                expect_state(other, held, f"two objects with every = {every}")
