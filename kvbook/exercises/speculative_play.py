"""What the loop of the exercise runs: two models that read tokens, and the text that they write."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kvbook.exercises.expect import Finding
from kvlib.model import Decoder
from kvlib.serve import greedy

# Cuts a cache to `start` tokens, reads the tokens after them, and chooses the next after each.
Read = Callable[[list[int], int], list[int]]


class Written:
    """A target and a drafter that look up their choices, which depend on every token of the text.

    right: the share of guesses that equal the target's choice, if the drafter read the same text.
    """

    V, STATES = 64, 4099

    def __init__(self, rng: np.random.Generator, right: float) -> None:
        self.table = rng.integers(0, self.V, self.STATES)
        other = (self.table + rng.integers(1, self.V, self.STATES)) % self.V
        self.drafted = np.where(rng.random(self.STATES) < right, self.table, other)

    def reader(self, table: np.ndarray) -> Read:
        """One of the two, with a cache of its own: the state after each token."""
        states = [1]

        def read(tokens: list[int], start: int) -> list[int]:
            del states[start + 1 :]
            for token in tokens:
                states.append((states[-1] * 131 + token + 1) % self.STATES)
            return [int(table[state]) for state in states[start + 1 :]]

        return read

    def text(self, prompt: Sequence[int], n: int) -> list[int]:
        """The prompt and the n tokens that the target writes after it."""
        found, read = list(prompt), self.reader(self.table)
        found += read(found, 0)[-1:]
        while len(found) < len(prompt) + n:
            found += read(found[-1:], len(found) - 1)
        return found


def of_model(model: Decoder, most: int) -> Read:
    """A model and its cache, which has room for `most` tokens."""
    cache = model.new_cache(1, most)
    cache.add("text")

    def read(tokens: list[int], start: int) -> list[int]:
        cache.truncate("text", start)
        step = cache.plan(["text"], [len(tokens)])
        return greedy(model.forward(tokens, cache, step, rows="all"))

    return read


class Play:
    """One text: what is known of it, what the drafter guesses next, and what an answer did wrong.

    truth: the prompt, and after it more tokens of the target than the answer can come to see.
    """

    def __init__(self, prompt: Sequence[int], n: int, gamma: int, truth: Sequence[int]) -> None:
        self.prompt, self.n, self.gamma, self.truth = list(prompt), n, gamma, list(truth)
        self.known = len(prompt)  # tokens of the text that the answer can know
        self.guesses: list[int] = []
        self.right = self.guessed = 0
        self.last = ""  # what the last step of the target found, in words
        self.finding: Finding | None = None

    @property
    def text(self) -> list[int]:
        """What is known of the text."""
        return self.truth[: self.known]

    @property
    def left(self) -> int:
        """New tokens that are still to come."""
        return len(self.prompt) + self.n - self.known

    def wrong(self, words: str) -> Finding:
        """The first thing that is wrong, kept in case the answer catches it."""
        self.finding = self.finding or Finding(words)
        return self.finding

    def ended(self) -> None:
        """Raise what was wrong, if the answer went on in spite of it."""
        if self.finding is not None:
            raise self.finding

    def checked(self, guesses: Sequence[int]) -> None:
        """The target has read the known text and these guesses."""
        n, before = common(guesses, self.truth[self.known :]), self.known - 1
        self.known += n + 1
        self.right, self.guessed, self.guesses = self.right + n, self.guessed + len(guesses), []
        self.last = (
            f". The target's last step began with {before} tokens in the cache and read one more "
            f"token of the text and {len(guesses)} guesses, of which {n} "
            f"{'was' if n == 1 else 'were'} accepted: {before} + 1 + {n} = {before + 1 + n} tokens "
            "are right"
            if guesses
            else ""
        )


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two texts begin with alike."""
    both = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(both) if x != y), min(len(a), len(b)))
