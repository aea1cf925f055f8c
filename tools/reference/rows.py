"""Batches: slices of real code, repeated strings, and recall rows, by a curriculum."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from kvlib.reference.recall import far_row, recall_row


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
