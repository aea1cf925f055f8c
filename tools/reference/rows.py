"""Batches: slices of real code, repeated strings, and recall rows, by a curriculum."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kvlib.reference.recall import VALUE_LENGTH, binding, fresh_names, fresh_value, take


@dataclass(frozen=True)
class Stage:
    """What one stage of the curriculum mixes; shares are of a batch's rows."""

    code: float
    repeat: float
    dense: float
    far: float  # the rest are recall rows between real code
    names: tuple[int, int]
    name_lengths: tuple[int, ...]
    repeat_length: tuple[int, int]
    advance_at: float  # running recall accuracy (first byte of an answer) that ends the stage


STAGES = (
    Stage(0.25, 0.40, 0.35, 0.0, (2, 4), (1,), (4, 24), 0.85),
    Stage(0.35, 0.25, 0.40, 0.0, (3, 8), (1, 2), (8, 48), 0.85),
    Stage(0.50, 0.10, 0.20, 0.0, (4, 12), (2, 3), (8, 64), 0.92),
    Stage(0.72, 0.02, 0.03, 0.13, (2, 16), (2, 3), (8, 64), 2.0),
    # Never reached by itself: for going on where many names are still mixed up (--stage 4).
    Stage(0.50, 0.00, 0.05, 0.35, (4, 32), (2, 3), (8, 64), 2.0),
)


def repeat_row(
    rng: random.Random, length: int, sizes: tuple[int, int]
) -> tuple[bytes, list[float]]:
    """Random strings said again and again; only bytes that a copy predicts carry loss."""
    alphabet = rng.sample(range(33, 127), rng.choice((12, 26, 60)))
    row, weights = bytearray(), []
    while len(row) < length:
        said = bytes(rng.choices(alphabet, k=rng.randint(*sizes)))
        for copy in range(rng.randint(2, 4)):
            row += said
            # The first two bytes of a copy cannot be told: nothing says which string returns.
            weights += [0.0] * len(said) if copy == 0 else [0.0] * 2 + [1.0] * (len(said) - 2)
            noise = rng.choices(alphabet, k=rng.randint(0, 8))
            row += bytes(noise)
            weights += [0.0] * len(noise)
    return bytes(row[:length]), weights[:length]


class Rows:
    """Batches for one seed. A step's batch depends on (seed, step, stage, shape) alone."""

    def __init__(self, text: bytes, seed: int) -> None:
        self.text = np.frombuffer(text, dtype=np.uint8)
        self.lines = [line for line in text.splitlines(keepends=True) if 1 < len(line) < 120]
        self.lines = [line for line in self.lines if line.strip() and b"\0" not in line]
        self.seed = seed

    def batch(
        self, step: int, stage: int, rows: int, length: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tokens (rows, length + 1) uint8, loss weights (rows, length) float32 of the byte that
        follows each position, and whether that byte is an answer (rows, length) bool."""
        plan = STAGES[stage]
        tokens = np.zeros((rows, length + 1), dtype=np.uint8)
        weights = np.ones((rows, length), dtype=np.float32)
        answers = np.zeros((rows, length), dtype=bool)
        for row in range(rows):
            rng = random.Random(f"{self.seed}/{step}/{row}")
            # Stratified: row r of the batch always draws from the same slice of the shares.
            kind = (row + rng.random()) / rows
            if kind < plan.code:
                at = rng.randrange(len(self.text) - length - 1)
                tokens[row] = self.text[at : at + length + 1]
                continue
            if kind < plan.code + plan.repeat:
                data, weight = repeat_row(rng, length + 1, plan.repeat_length)
            else:
                data, weight = self.recall(rng, plan, kind - plan.code - plan.repeat, length + 1)
                marked = np.asarray(weight, dtype=np.float32)[1:]
                answers[row] = (marked == 1.0) | (marked == 2.0)
            tokens[row] = np.frombuffer(data, dtype=np.uint8)
            weights[row] = np.asarray(weight, dtype=np.float32)[1:]
        return tokens, weights, answers

    def recall(
        self, rng: random.Random, plan: Stage, kind: float, length: int
    ) -> tuple[bytes, list[float]]:
        """A dense row, a far one, or a mixed one. Code weighs 0.999, to tell it from answers."""
        most = plan.names[1] if kind < plan.dense else plan.names[1] // 2 + 1
        names = rng.randint(plan.names[0], most)
        if plan.dense <= kind < plan.dense + plan.far:
            return far_row(
                rng,
                length,
                names=names,
                name_lengths=plan.name_lengths,
                filler=self.lines,
                filler_weight=0.999,
                answer_weight=2.0,
            )
        dense = kind < plan.dense
        return recall_row(
            rng,
            length,
            names=names,
            name_lengths=plan.name_lengths,
            filler=self.lines,
            filler_share=0.0 if dense else rng.choice((0.3, 0.5, 0.7)),
            filler_weight=0.999,
            answer_weight=1.0 if dense else 2.0,
        )


def recall_row(
    rng: random.Random,
    length: int,
    *,
    names: int,
    name_lengths: Sequence[int] = (2, 3),
    filler: Sequence[bytes] = (),
    filler_share: float = 0.0,
    filler_weight: float = 1.0,
    answer_weight: float = 1.0,
) -> tuple[bytes, list[float]]:
    """A row of `length` bytes with many bindings and questions, and the loss weight of every byte.

    Bytes that nothing in the context predicts (a name, a value bound for the first time) weigh 0,
    so the gradient is about recall. ``filler_share`` is the chance that the next lines are code.
    """
    pool = fresh_names(rng, names, name_lengths)
    values: dict[str, str] = {}
    parts: list[bytes] = []
    weights: list[float] = []
    while len(weights) < length:
        if filler and rng.random() < filler_share:
            at, run = rng.randrange(len(filler)), rng.randint(1, 6)
            for line in filler[at : at + run]:
                parts.append(line)
                weights += [filler_weight] * len(line)
            continue
        name = rng.choice(pool)
        known = name in values
        line = binding(name, values.setdefault(name, fresh_value(rng)))
        parts.append(line)
        weights += _binding_weights(name, answer_weight if known else 0.0)
    return b"".join(parts)[:length], weights[:length]


def far_row(
    rng: random.Random,
    length: int,
    *,
    names: int,
    name_lengths: Sequence[int] = (2, 3),
    filler: Sequence[bytes],
    filler_weight: float = 1.0,
    answer_weight: float = 1.0,
) -> tuple[bytes, list[float]]:
    """The same for a row that binds every name first and asks for each once, after other code.

    In `recall_row`, a question is a binding again, so the nearest one is seldom far. Here
    distances reach the row's length. ``names`` is lowered where so many would not leave half of
    the row to other code.
    """
    pool = fresh_names(rng, max(1, min(names, length // 56)), name_lengths)
    bound = [(name, fresh_value(rng), 0.0) for name in pool]
    asked = [(name, value, answer_weight) for name, value, _ in bound]
    rng.shuffle(asked)
    room = length - 2 * sum(len(binding(name, value)) for name, value, _ in bound)
    middle = int(room * rng.uniform(0.1, 0.9))
    pieces: list[tuple[str, str, float] | int] = [*bound, middle, *asked]
    for _ in range(4):
        pieces.insert(rng.randint(0, len(pieces)), (room - middle) // 4)
    parts: list[bytes] = []
    weights: list[float] = []
    for piece in [*pieces, length]:
        if isinstance(piece, int):
            code = b"".join(take(rng, filler, piece, exact=False))
            parts.append(code)
            weights += [filler_weight] * len(code)
        else:
            name, value, weight = piece
            parts.append(binding(name, value))
            weights += _binding_weights(name, weight)
    missing = max(0, length - len(weights))
    row = b"".join(parts) + b"\n" * missing
    return row[:length], (weights + [0.0] * missing)[:length]


def _binding_weights(name: str, answer_weight: float) -> list[float]:
    """Loss weights of a binding's bytes: its name cannot be told, its punctuation is easy."""
    return [0.0] * len(name) + [0.1] * 4 + [answer_weight] * VALUE_LENGTH + [0.1] * 2
