"""The checker of what the two forms of latent attention multiply."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kvbook.exercises.latent_count_wrong import (
    Sizes,
    absorbed_wrong,
    both_wrong,
    counted,
    expanded_wrong,
)
from kvbook.exercises.received import whole_number
from kvbook.exercises.report import Finding, checker

SMALL = Sizes(T=2, S=11, H=3, C=23, N=7, R=5, V=13)  # each mistake gives a number of its own
V3 = Sizes(T=1, S=4096, H=128, C=512, N=128, R=64, V=128)
FORMS = ("expanded", "absorbed")


@checker
def check_multiplications(multiplications: Callable[..., Any]) -> Iterator[str]:
    """multiplications(T, S, H, C, N, R, V) → (expanded, absorbed), both whole numbers."""
    _expect(multiplications, SMALL)
    _expect(multiplications, Sizes(T=3, S=3, H=2, C=5, N=4, R=1, V=6))
    yield "each product of two matrices counts once, for every head"

    _expect(multiplications, V3)
    decode = [f"{n / 1e6:,.0f}" for n in counted(V3)]
    yield (
        f"DeepSeek-V3, one new token and 4,096 cached ones: {decode[0]} million multiplications "
        f"per layer in the expanded form, {decode[1]} million in the absorbed one"
    )

    for t in (4096, 128, 171):
        _expect(multiplications, V3._replace(T=t))
    prompt = [n / 1e9 for n in counted(V3._replace(T=4096))]
    yield (
        f"a prompt of 4,096 tokens in one step: {prompt[0]:,.0f} billion in the expanded form, "
        f"{prompt[1]:,.0f} billion in the absorbed one"
    )

    lows, highs = (1, 1, 1, 2, 1, 1, 1), (40, 400, 20, 200, 60, 40, 60)
    for row in np.random.default_rng(71).integers(lows, highs, (12, 7)).tolist():
        _expect(multiplications, Sizes(*row))
    yield "it holds for other sizes"


def _expect(multiplications: Callable[..., Any], z: Sizes) -> None:
    what = ", ".join(f"{name} = {n:,}" for name, n in z._asdict().items())
    result = multiplications(*z)
    if not isinstance(result, tuple | list) or len(result) != 2:
        many = f" of {len(result)}" if isinstance(result, tuple | list) else ""
        raise Finding(
            f"got {type(result).__name__}{many}, needed two numbers: (expanded, absorbed)"
        )
    got = [whole_number(n, f"{what}: {form}") for n, form in zip(result, FORMS, strict=True)]
    right = list(counted(z))
    if got == right:
        return
    for words, wrong in both_wrong(z, *right).items():
        if got == wrong:
            raise Finding(f"{what}: {words}")
    for form, n, needed in zip(FORMS, got, right, strict=True):
        if n == needed:
            continue
        suspects = expanded_wrong(z) if form == "expanded" else absorbed_wrong(z)
        why = next((f": {words}" for words, wrong in suspects.items() if n == wrong), "")
        raise Finding(f"{what}: {form} takes {needed:,} multiplications, got {n:,}{why}")
