"""Known wrong answers to the exercises of the chapter on caching: each refused in fitting words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kvbook.exercises.cached import (
    Slots,
    check_decode,
    check_kv_bytes,
    check_layer_cache,
    check_reuse,
)
from kvlib.attention import attend

# ---------------------------------------------------------------------------------------- kv_bytes


def kv_bytes(c: Any, batch: int, seq_len: int, size: int) -> int:
    return 2 * c.num_hidden_layers * c.num_key_value_heads * c.head_dim * batch * seq_len * size


WRONG_BYTES = {
    "keys only": (
        lambda c, b, s, n: kv_bytes(c, b, s, n) // 2,
        "a token leaves a key and a value in each layer",
    ),
    "query heads": (
        lambda c, b, s, n: kv_bytes(c, b, s, n) * c.num_attention_heads // c.num_key_value_heads,
        "this counts num_attention_heads",
    ),
    "hidden / heads": (
        lambda c, b, s, n: (
            2
            * c.num_hidden_layers
            * c.num_key_value_heads
            * b
            * s
            * n
            * (c.hidden_size // c.num_attention_heads)
        ),
        "head_dim is a field of its own (24)",
    ),
    "hidden": (
        lambda c, b, s, n: 2 * c.num_hidden_layers * c.hidden_size * b * s * n,
        "this counts hidden_size numbers",
    ),
    "one layer": (
        lambda c, b, s, n: kv_bytes(c, b, s, n) // c.num_hidden_layers,
        "every layer keeps keys and values of its own",
    ),
    "one request": (
        lambda c, b, s, n: kv_bytes(c, 1, s, n),
        "each request of the batch has its own text",
    ),
    "one token": (lambda c, b, s, n: kv_bytes(c, b, 1, n), "multiply by seq_len"),
    "numbers": (lambda c, b, s, n: kv_bytes(c, b, s, 1), "these are numbers, not bytes"),
    "a list": (lambda c, b, s, n: [kv_bytes(c, b, s, n)], "expected one number, got list"),
    "off by one": (lambda c, b, s, n: kv_bytes(c, b, s, n) + 1, "needed 80640"),
}


def test_the_bytes() -> None:
    assert check_kv_bytes(kv_bytes).passed
    assert check_kv_bytes(lambda *a: float(kv_bytes(*a))).passed


@pytest.mark.parametrize("name", WRONG_BYTES)
def test_wrong_bytes(name: str) -> None:
    wrong, message = WRONG_BYTES[name]
    refused(check_kv_bytes(wrong), message)


def refused(report: Any, message: str) -> None:
    assert report.status == "not yet", report
    assert message in report.finding, report.finding


# -------------------------------------------------------------------------------------- LayerCache


class Right:
    """Growing arrays, positions from what is held. The wrong ones below change one line each."""

    def __init__(self, num_kv_heads: int, head_dim: int) -> None:
        self.k = np.zeros((0, num_kv_heads, head_dim), dtype=np.float32)
        self.v = np.zeros((0, num_kv_heads, head_dim), dtype=np.float32)

    def append(self, k: np.ndarray, v: np.ndarray) -> None:
        self.k, self.v = np.concatenate([self.k, k]), np.concatenate([self.v, v])

    def q_pos(self, t: int) -> np.ndarray:
        s = self.k.shape[0]
        return np.arange(s - t, s, dtype=np.int64)

    def attend(self, q: np.ndarray) -> Any:
        kv_pos = np.arange(self.k.shape[0], dtype=np.int64)
        return attend(q, self.k, self.v, self.q_pos(q.shape[0]), kv_pos)


class TopLeftMask(Right):
    def q_pos(self, t: int) -> np.ndarray:
        return np.arange(t, dtype=np.int64)


class NoMask(Right):
    def q_pos(self, t: int) -> np.ndarray:
        return np.full(t, self.k.shape[0], dtype=np.int64)


class OneForAll(Right):
    held: list[tuple[np.ndarray, np.ndarray]] = []

    def append(self, k: np.ndarray, v: np.ndarray) -> None:
        self.held.append((k.copy(), v.copy()))
        self.k, self.v = (np.concatenate(x) for x in zip(*self.held))


class PromptNeverStored(Right):
    def append(self, k: np.ndarray, v: np.ndarray) -> None:
        if k.shape[0] == 1:
            super().append(k, v)
            self.lent = None
        else:
            self.lent = (k, v)

    def attend(self, q: np.ndarray) -> Any:
        if self.lent is not None:
            self_k, self_v = self.lent
            pos = np.arange(q.shape[0], dtype=np.int64)
            return attend(q, self_k, self_v, pos, pos)
        return super().attend(q)


class ZeroSlots(Right):
    """A buffer of fixed length, all of it read."""

    def attend(self, q: np.ndarray) -> Any:
        room = np.zeros((16 - self.k.shape[0], *self.k.shape[1:]), dtype=np.float32)
        k, v = np.concatenate([self.k, room]), np.concatenate([self.v, room])
        kv_pos = np.concatenate([np.arange(self.k.shape[0]), np.zeros(len(room), dtype=np.int64)])
        return attend(q, k, v, self.q_pos(q.shape[0]), kv_pos)


class Views(Right):
    def append(self, k: np.ndarray, v: np.ndarray) -> None:
        if self.k.shape[0]:
            super().append(k, v)
        else:
            self.k, self.v = k, v


class Tiled(Right):
    def attend(self, q: np.ndarray) -> Any:
        groups = q.shape[1] // self.k.shape[1]
        k, v = np.tile(self.k, (1, groups, 1)), np.tile(self.v, (1, groups, 1))
        return attend(q, k, v, self.q_pos(q.shape[0]), np.arange(self.k.shape[0]))


class Unscaled(Right):
    def attend(self, q: np.ndarray) -> Any:
        return super().attend(q * np.float32(np.sqrt(q.shape[2])))


class Wide(Right):
    def attend(self, q: np.ndarray) -> Any:
        return super().attend(q).astype(np.float64)


class LastOnly(Right):
    def attend(self, q: np.ndarray) -> Any:
        return super().attend(q)[-1:]


class Changed(Right):
    def attend(self, q: np.ndarray) -> Any:
        q *= 2
        return super().attend(q / 2)


class NoAttend:
    def __init__(self, num_kv_heads: int, head_dim: int) -> None:
        self.append = lambda k, v: None


class Stub:
    def __init__(self, num_kv_heads: int, head_dim: int) -> None: ...

    def append(self, k: np.ndarray, v: np.ndarray) -> None: ...

    def attend(self, q: np.ndarray) -> Any: ...


def test_the_layer_cache() -> None:
    assert check_layer_cache(Right).passed
    assert check_layer_cache(Stub).status == "not done yet"


@pytest.mark.parametrize(
    "wrong, message",
    [
        (TopLeftMask, "The mask sits in the top left corner"),
        (NoMask, "Within one call, too, a query sees itself"),
        (OneForAll, "one store is shared by all (held belongs to the class)"),
        (OneForAll, "one store is shared by all (held belongs to the class)"),  # the cell run again
        (PromptNeverStored, "Were the earlier ones never stored"),
        (ZeroSlots, "slots that hold no token are attended to"),
        (Views, "append must store a copy"),
        (Tiled, "repeat each, do not tile them"),
        (Unscaled, "not divided by sqrt(D)"),
        (Wide, "is float64, needed float32"),
        (LastOnly, "has shape (1, 4, 8), needed (5, 4, 8)"),
        (Changed, "was changed in place"),
        (NoAttend, "LayerCache has no method attend"),
        (lambda heads, dim: Right(heads, dim), "hand over the class"),
    ],
)
def test_wrong_layer_caches(wrong: Any, message: str) -> None:
    refused(check_layer_cache(wrong), message)


# ------------------------------------------------------------------------------------------ decode


def loop(forward: Slots, prompt: list[int], n: int, late: int = 0) -> list[int]:
    logits, new = forward(prompt, 0), []
    for i in range(n):
        new.append(int(logits.argmax()))
        if i < n - 1:
            logits = forward(new[-1:], len(prompt) + i + late)
    return new


def last_token_twice(forward: Slots, prompt: list[int], n: int) -> list[int]:
    forward(prompt, 0)
    tokens = list(prompt)
    for _ in range(n):
        tokens.append(int(forward(tokens[-1:], len(tokens)).argmax()))
    return tokens[len(prompt) :]


def prompt_never_stored(forward: Slots, prompt: list[int], n: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(n):
        tokens.append(int(forward(tokens[-1:], len(tokens) - 1).argmax()))
    return tokens[len(prompt) :]


def recomputing(forward: Slots, prompt: list[int], n: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(n):
        tokens.append(int(forward(tokens, 0).argmax()))
    return tokens[len(prompt) :]


def one_pass_too_many(forward: Slots, prompt: list[int], n: int) -> list[int]:
    logits, new = forward(prompt, 0), []
    for i in range(n):
        new.append(int(logits.argmax()))
        logits = forward(new[-1:], len(prompt) + i)
    return new


def first_token_lost(forward: Slots, prompt: list[int], n: int) -> list[int]:
    return loop(forward, prompt, n + 1)[1:]


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda f, p, n: loop(f, p, n, late=1), "one position late. Slot 5 stays zero"),
        (lambda f, p, n: loop(f, p, n, late=-1), "a stored key is overwritten"),
        (last_token_twice, "it stands in the cache twice"),
        (prompt_never_stored, "the keys of the others were never stored"),
        (recomputing, "that is recomputation"),
        (one_pass_too_many, "11 tokens were run where 10 are enough"),
        (first_token_lost, "the first new token is missing"),
        (lambda f, p, n: [1] * n, "forward was never called"),
        (lambda f, p, n: loop(f, p, n)[:-1], "6 tokens after a prompt of 5"),
    ],
)
def test_wrong_loops(wrong: Any, message: str) -> None:
    assert check_decode(loop).passed
    refused(check_decode(wrong), message)


# ------------------------------------------------------------------------------------------- reuse


def common(a: list[int], b: list[int]) -> int:
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


def reuse(cache: Any, seq_id: str, held: list[int], wanted: list[int]) -> list[int]:
    keep = min(common(held, wanted), len(wanted) - 1)
    cache.truncate(seq_id, keep)
    return wanted[keep:]


def no_truncate(cache: Any, seq_id: str, held: list[int], wanted: list[int]) -> list[int]:
    return wanted[common(held, wanted) :] or wanted[-1:]


def everything_again(cache: Any, seq_id: str, held: list[int], wanted: list[int]) -> list[int]:
    cache.truncate(seq_id, common(held, wanted))
    return wanted


def nothing_left(cache: Any, seq_id: str, held: list[int], wanted: list[int]) -> list[int]:
    keep = common(held, wanted)
    cache.truncate(seq_id, keep)
    return wanted[keep:]


def equal_anywhere(cache: Any, seq_id: str, held: list[int], wanted: list[int]) -> list[int]:
    keep = min(sum(a == b for a, b in zip(held, wanted)), len(wanted) - 1)
    cache.truncate(seq_id, keep)
    return wanted[keep:]


def from_nothing(cache: Any, seq_id: str, held: list[int], wanted: list[int]) -> list[int]:
    cache.truncate(seq_id, 0)
    return wanted


@pytest.mark.parametrize(
    "wrong, message",
    [
        (no_truncate, "the cache still holds 8 tokens"),
        (everything_again, "some would stand in the cache twice"),
        (nothing_left, "there is nothing left to run"),
        (equal_anywhere, "truncate the cache to the common beginning"),
        (from_nothing, "the result is right, but 3 tokens could be kept, got 0"),
        (lambda *a: reuse(*a)[::-1], "tokens to run after 3 held ones"),
    ],
)
def test_wrong_reuse(wrong: Any, message: str) -> None:
    assert check_reuse(reuse).passed
    refused(check_reuse(wrong), message)
