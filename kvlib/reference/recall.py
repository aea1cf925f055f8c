"""The recall task: names bound to short strings, asked for again later.

A prompt is ordinary-looking Python. Somewhere it says ``mq = 'tfre'``; other names are bound
around it, other code lies between, and the prompt ends with ``mq = '``. The right continuation is
``tfre``: nothing but the context can tell. A cache that lost or damaged that key answers wrongly,
so accuracy on this task shows what a small change in loss hides.

The reference model is trained on rows from :func:`recall_row` and measured
with :func:`recall_prompt`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from importlib import resources

from kvlib.arguments import check_integer

VALUE_LENGTH = 4
LEAST_DISTANCE, MOST_BYTES = 16, 2**24
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_RESERVED = frozenset({"as", "if", "in", "is", "or"})


@cache
def sample_lines() -> tuple[bytes, ...]:
    """Lines (with their newline) of the frozen Python sample that ships with the model."""
    text = resources.files("kvlib.reference").joinpath("sample.py.txt").read_bytes()
    return tuple(line for line in text.splitlines(keepends=True) if line.strip())


def fresh_names(rng: random.Random, count: int, lengths: Sequence[int] = (2, 3)) -> list[str]:
    """``count`` different random lower-case names, each of one of the given lengths."""
    names: dict[str, None] = {}
    if sum(len(_LETTERS) ** n for n in set(lengths)) < 2 * count:
        raise ValueError(f"{count} different names of lengths {tuple(lengths)} are too many")
    while len(names) < count:
        name = "".join(rng.choices(_LETTERS, k=rng.choice(lengths)))
        if name not in _RESERVED:
            names[name] = None
    return list(names)


def fresh_value(rng: random.Random) -> str:
    """A random string of ``VALUE_LENGTH`` lower-case letters."""
    return "".join(rng.choices(_LETTERS, k=VALUE_LENGTH))


def binding(name: str, value: str) -> bytes:
    """One line that binds ``name``, such as ``b"mq = 'tfre'\\n"``."""
    return f"{name} = '{value}'\n".encode("ascii")


def recall_prompt(
    rng: random.Random,
    distance: int,
    names: int = 4,
    *,
    lead: int = 64,
    filler: Sequence[bytes] | None = None,
) -> tuple[bytes, bytes]:
    """One question and its answer.

    Args:
        rng: source of all randomness; the same state gives the same prompt.
        distance: bytes from the first byte of the value where it is bound to the place where the
            answer's first byte belongs (the end of the prompt). 16 to 2^24.
        names: how many names are bound in the prompt, the asked one included.
        lead: about how many bytes of other code come before the bindings.
        filler: lines of code, each with its newline; the shipped sample if not given.

    Returns:
        ``(prompt, answer)``: the prompt ends with ``name = '`` and the answer is the value's
        ``VALUE_LENGTH`` bytes.

    Raises:
        ValueError: a distance below 16 or above 2^24, fewer than one name or too many.
    """
    distance = check_integer("distance", distance, LEAST_DISTANCE, MOST_BYTES)
    names = check_integer("names", names, 1)
    lead = check_integer("lead", lead, 0, MOST_BYTES)
    lines = sample_lines() if filler is None else filler
    asked, *others = fresh_names(rng, names)
    value = fresh_value(rng)
    bound = binding(asked, value)
    gap = distance - len(bound)
    before, between, room = [], [], gap
    for other in others:
        line = binding(other, fresh_value(rng))
        if rng.random() < 0.5 and len(line) <= room // 2:
            between.append(line)
            room -= len(line)
        else:
            before.append(line)
    head = _shuffle_in(rng, _take(rng, lines, lead, exact=False), before)
    middle = _shuffle_in(rng, _take(rng, lines, room, exact=True), between)
    prompt = b"".join([*head, bound, *middle, f"{asked} = '".encode("ascii")])
    return prompt, value.encode("ascii")


def _take(rng: random.Random, lines: Sequence[bytes], size: int, *, exact: bool) -> list[bytes]:
    """Neighbouring lines of ``size`` bytes together; if ``exact``, the last one is cut to fit."""
    taken: list[bytes] = []
    at = rng.randrange(len(lines))
    while size > 0:
        line = lines[at % len(lines)]
        if len(line) > size:
            if not exact:
                break
            line = line[: size - 1] + b"\n"
        taken.append(line)
        size -= len(line)
        at += 1
    return taken


def _shuffle_in(rng: random.Random, lines: list[bytes], extra: list[bytes]) -> list[bytes]:
    """``extra`` put at random places between ``lines``, whose order is kept."""
    merged = list(lines)
    for line in extra:
        merged.insert(rng.randint(0, len(merged)), line)
    return merged


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
    """A training row of many bindings and many questions, with a loss weight for every byte.

    Bytes that nothing in the context predicts (a name, a value bound for the first time) weigh 0,
    so the gradient is about recall. ``filler_share`` is the chance that the next lines are code.

    Returns:
        ``(row, weights)``, both of ``length``.
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
    """A training row that binds every name first and asks for each once, after other code.

    In :func:`recall_row` a question is a binding again, so the nearest one is seldom far. Here
    distances reach the row's length. ``names`` is lowered where so many would not leave half of
    the row to other code.

    Returns:
        ``(row, weights)``, both of ``length``.
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
            code = b"".join(_take(rng, filler, piece, exact=False))
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
