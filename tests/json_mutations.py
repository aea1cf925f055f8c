"""Mutations of configs and headers, each drawn by a seed of its own."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

NUMBERS: list[Any] = [
    *(0, -1, 1, 2, 3, 7, 2**31, 2**63, 2**64, 10**9, 10**18, 10**39, 10**40, 10**400, -(10**400)),
    *(0.0, -0.0, 0.5, 1e-300, 1e300, -1.5, float("inf"), float("-inf"), float("nan")),
]
OTHERS: list[Any] = [
    *(None, True, False, "", "x", "\ud800", "a\0b", "\x1b[2J", "x" * 5000, "1", "silu", "llama3"),
    *([], {}, [0], [None], [[]], {"a": 1}, {"__float__": "Infinity"}, [1] * 3000, ["x"] * 1000),
    *(["full_attention"], ["sliding_attention"], {"rope_type": "yarn", "factor": 4.0}),
    *({"full_attention": {"rope_theta": 1e4}, "sliding_attention": {"rope_theta": 1e4}},),
]
NAMES = [
    *("strange", "", "a\0b", "\ud800", "x" * 5000, "__float__", "text_config", "rope_scaling"),
    *("layer_types", "sliding_window", "num_hidden_layers", "rope_parameters", "model_type"),
    *("architectures", "quantization_config", "clip_qkv", "attn_logit_softcapping", "_note"),
    *("dtype", "shape", "data_offsets", "__metadata__", "weight_map"),
]
TEXTS = [
    *(b"9" * 5000, b"1" + b"0" * 400, b"1e999", b"-1e400", b"NaN", b"Infinity", b"-Infinity"),
    *(b"[" * 40 + b"]" * 40, b"[" * 3000, b'{"a":' * 3000, b"\xff", b"\x00", b"\xef\xbb\xbf"),
    *(b'"\\ud800"', b"\xed\xa0\x80", b",", b":", b'"', b"}", b"//", b"1.", b"01", b"\\", b"null"),
]


def parts(data: Any) -> list[tuple[Any, Any]]:
    """Every place in the object: the object or list that holds it, and its key or index."""
    found, waiting = [], [data]
    while waiting:
        part = waiting.pop()
        keys = list(part) if isinstance(part, dict) else range(min(len(part), 20))
        for key in keys:
            found.append((part, key))
            if isinstance(part[key], (dict, list)):
                waiting.append(part[key])
    return found


def mutated(data: dict[str, Any], rng: random.Random) -> bytes:
    """The object as JSON with one to three changes to its values, its keys or its text."""
    data = copy.deepcopy(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = parts(data)
        if not places:
            break
        part, key = rng.choice(places)
        change = rng.randrange(7)
        if change < 3:
            part[key] = copy.deepcopy(rng.choice(NUMBERS))
        elif change == 3:
            part[key] = copy.deepcopy(rng.choice(OTHERS))
        elif change == 4:
            del part[key]
        elif change == 5 and isinstance(part, dict):
            part[rng.choice(NAMES)] = copy.deepcopy(rng.choice(NUMBERS + OTHERS))
        elif isinstance(part[key], (int, float)) and not isinstance(part[key], bool):
            factor = rng.choice((2, 10, 1000, 0.5, -1, 10**6))
            part[key] = part[key] * (factor if abs(part[key]) < 10**300 else 2)
    text = json.dumps(data).encode()
    if rng.random() < 0.25:
        text = damaged(text, rng)
    return text


def damaged(text: bytes, rng: random.Random) -> bytes:
    """The text with one piece cut out, overwritten or doubled."""
    start = rng.randrange(len(text) + 1)
    stop = min(len(text), start + rng.choice((0, 0, 1, 1, 2, 8, 40)))
    kind = rng.randrange(4)
    if kind == 0:
        return text[:start]
    if kind == 1:
        return text[:start] + rng.choice(TEXTS) + text[stop:]
    if kind == 2:
        return text[:stop] + text[start:]
    return text[:start] + bytes(rng.randrange(256) for _ in range(stop - start)) + text[stop:]


def mutations(
    bases: list[dict[str, Any]], count: int, seed: str
) -> Iterator[tuple[random.Random, bytes]]:
    """So many mutated texts; each has a seed of its own, so that a share is the first of all."""
    for i in range(count):
        rng = random.Random(f"{seed} {i}")
        yield rng, mutated(bases[i % len(bases)], rng)
