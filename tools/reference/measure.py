"""Bits per byte and recall accuracy of a model in PyTorch."""

from __future__ import annotations

import lzma
import math
import random
from collections.abc import Sequence

import torch
import torch.nn.functional as F

from kvlib.reference.recall import VALUE_LENGTH, recall_prompt

DISTANCES = (16, 32, 64, 128, 256, 512, 1024)


def xz_bits_per_byte(text: bytes) -> float:
    """What ``xz -9`` needs, container included."""
    return 8 * len(lzma.compress(text, preset=9)) / len(text)


@torch.no_grad()
def bits(model, text: bytes, context: int = 2048, stride: int = 1024, batch: int = 2) -> float:
    """Bits the model needs for ``text`` after a separator.

    Windows of ``context`` tokens move by ``stride``; every byte is scored once, with at least
    ``context - stride`` bytes before it (fewer only at the start of the text).
    """
    data = torch.frombuffer(bytearray(b"\0" + text), dtype=torch.uint8).long()
    spans, done = [], 1  # data[done:] has not been scored
    while done < len(data):
        start = max(0, done - (context - stride)) if done > 1 else 0
        end = min(len(data), start + context + 1)
        spans.append((start, end, done))
        done = end
    total = 0.0
    for at in range(0, len(spans), batch):
        group = spans[at : at + batch]
        width = max(end - start for start, end, _ in group)
        tokens = torch.zeros(len(group), width, dtype=torch.long)
        for row, (start, end, _) in enumerate(group):
            tokens[row, : end - start] = data[start:end]
        logits = model(tokens[:, :-1]).float()
        for row, (start, end, first) in enumerate(group):
            have = slice(first - 1 - start, end - 1 - start)
            loss = F.cross_entropy(logits[row, have], tokens[row, 1:][have], reduction="sum")
            total += loss.item() / math.log(2)
    return total


@torch.no_grad()
def recall(
    model,
    distance: int,
    trials: int,
    *,
    names: int = 4,
    seed: int = 0,
    filler: Sequence[bytes] | None = None,
    batch: int = 16,
) -> float:
    """Share of prompts whose whole answer is the greedy continuation.

    The answer is fed as if it had been generated: greedy decoding gives it exactly if every byte of
    it is the likeliest after the ones before.
    """
    right = 0
    for at in range(0, trials, batch):
        rows = []
        for trial in range(at, min(trials, at + batch)):
            rng = random.Random(f"{seed}/{distance}/{trial}")
            rows.append(recall_prompt(rng, distance, names, filler=filler))
        width = max(len(prompt) + len(answer) for prompt, answer in rows)
        tokens = torch.zeros(len(rows), width, dtype=torch.long)
        for row, (prompt, answer) in enumerate(rows):
            text = prompt + answer
            tokens[row, : len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        best = model(tokens).argmax(dim=-1)
        for row, (prompt, answer) in enumerate(rows):
            begin = len(prompt) - 1
            said = best[row, begin : begin + VALUE_LENGTH].tolist()
            right += said == list(answer)
    return right / trials
