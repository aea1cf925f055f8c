"""The checker of a policy of the reader's own: the reference model reads and is asked under it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from kvbook.exercises.received import shown, whole
from kvbook.exercises.report import Finding, checker
from kvbook.exercises.wording import apart

LAYERS = 5  # of the reference model
TEXT, CHUNK = 1024, 64  # bytes that are read for the loss, tokens per step
TRIALS, DISTANCE = 5, 256
MISSES = 1  # strings that may be lost
BUDGETS = (128, 64)
Pairs = tuple[tuple[int, int], ...]


@checker
def check_my_policy(my_policy: Callable[..., Any]) -> Iterator[str]:
    """my_policy(L, budget) → [(heavy, recent), ...], one pair per layer, L · budget in all."""
    drawn = np.random.default_rng(51)
    for budget in (*BUDGETS, *drawn.integers(64, 400, 4).tolist()):
        _pairs(my_policy(LAYERS, budget), LAYERS, budget)
    yield "there is one pair per layer, and all layers together keep no more than the budget allows"

    for budget in BUDGETS:
        mine = _pairs(my_policy(LAYERS, budget), LAYERS, budget)
        yield from _beats(mine, equal_shares(LAYERS, budget), budget)


def _beats(mine: Pairs, rival: Pairs, budget: int) -> Iterator[str]:
    found = recalled(mine, stop=True)
    if len(found) - sum(found) > MISSES:
        raise Finding(_why_lost(mine, budget, found))
    yield (
        f"with {budget} tokens per layer, the model finds {sum(found)} of {TRIALS} strings; "
        f"under H2O, which keeps {budget} in every layer, it finds {sum(recalled(rival))}"
    )
    bits, most = bits_per_byte(mine), bits_per_byte(rival)
    if bits > most:
        said = apart(bits, most, ".3f")
        raise Finding(
            f"with {budget} tokens per layer, your policy finds the strings, but the text takes "
            f"{said[0]} bits per byte, and only {said[1]} with H2O in every layer. Layers that "
            "keep very few tokens predict badly, so let them keep more tokens, or different ones"
        )
    none = [i for i, (heavy, _) in enumerate(mine) if not heavy]
    if len(none) > 1:
        raise Finding(
            f"with {budget} tokens per layer, {len(none)} layers keep no heavy token: "
            f"{', '.join(map(str, none))}. At most one layer may have none"
        )
    yield f"the text takes {bits:.2f} bits per byte, and {most:.2f} under H2O"


def _pairs(result: Any, layers: int, budget: int) -> Pairs:
    """The policy as plain pairs, if it keeps to the form and to the budget."""
    what = f"my_policy({layers}, {budget})"
    if isinstance(result, np.ndarray) and result.ndim == 2:
        result = list(result)
    if not isinstance(result, list | tuple):
        raise Finding(f"{what}: got {shown(result)}, needed a list of pairs (heavy, recent)")
    if len(result) != layers:
        hint = ""
        if len(result) == 2:
            hint = ": one pair for each layer, not one for all"
        raise Finding(f"{what}: got a list of {len(result)}, needed {layers} pairs{hint}")
    found = []
    for i, pair in enumerate(result):
        pair = list(pair) if isinstance(pair, np.ndarray) and pair.ndim == 1 else pair
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise Finding(f"{what}: layer {i} is {shown(pair)}, needed a pair (heavy, recent)")
        heavy, recent = (
            whole(x, f"{what}: {name} of layer {i}")
            for x, name in zip(pair, ("heavy", "recent"), strict=True)
        )
        if heavy < 0:
            raise Finding(f"{what}: layer {i} keeps {heavy} heavy tokens; 0 is the least")
        if recent < 1:
            raise Finding(
                f"{what}: layer {i} keeps {recent} recent tokens; the newest one must stay, so "
                "recent is at least 1"
            )
        found.append((heavy, recent))
    total = sum(map(sum, found))
    if total > layers * budget:
        each = max(map(sum, found)) == budget and total == layers * budget
        raise Finding(
            f"{what}: the layers keep {total} tokens together, but the budget is {layers} layers "
            f"times {budget} = {layers * budget}{'' if each else _why_over(found, layers, budget)}"
        )
    return tuple(found)


def _why_over(found: Sequence[tuple[int, int]], layers: int, budget: int) -> str:
    if all(pair[1] == budget for pair in found):
        return ": the heavy tokens are a part of the budget, not an addition to it"
    if max(map(sum, found)) >= layers * budget:
        return ": one layer has all of it, so nothing is left for the others"
    return ": if one layer gets more tokens, the others must get fewer"


def equal_shares(layers: int, budget: int) -> Pairs:
    """H2O as the chapter has it: each layer keeps half of its budget by sums, half by age."""
    return ((budget // 2, budget - budget // 2),) * layers


def _why_lost(mine: Pairs, budget: int, found: Sequence[bool]) -> str:
    sums = [heavy + recent for heavy, recent in mine]
    lost = f"{len(found) - sum(found)} of the first {len(found)} strings were lost"
    start = f"with {budget} tokens per layer, {lost}"
    most = int(np.argmax(sums))
    if max(sums) - min(sums) <= 2:
        return (
            f"{start}. All layers keep the same, as with H2O, and none reaches back {DISTANCE} "
            "bytes. Take tokens from some layers, and give them to others"
        )
    if max(sums) < DISTANCE:
        return (
            f"{start}. No layer reaches back {DISTANCE} bytes: the largest, layer {most}, keeps "
            f"{max(sums)} tokens. Give one layer more"
        )
    reaching = [i for i, (_, recent) in enumerate(mine) if recent >= DISTANCE]
    if not reaching:
        return (
            f"{start}. Layer {most} keeps {mine[most][0]} tokens by their sums and the newest "
            f"{mine[most][1]}; a string that nobody has asked for yet has a small sum, so it is "
            "evicted. Give this layer fewer heavy tokens and more recent ones"
        )
    usual = equal_shares(LAYERS, max(BUDGETS))
    for i in reaching:
        if sum(recalled((*usual[:i], mine[i], *usual[i + 1 :]), stop=True)) < TRIALS - MISSES:
            continue
        least = min((j for j in range(LAYERS) if j != i), key=lambda j: (mine[j][1], sums[j]))
        return (
            f"{start}. Layer {i} is the layer in which this model finds a string, and it reaches "
            f"back {mine[i][1]} tokens, but layer {least} keeps only {mine[least][0]} heavy and "
            f"{mine[least][1]} recent ones, too few even to see the name that is asked for. Leave "
            "more of the newest tokens to every layer"
        )
    most = max(reaching, key=lambda i: mine[i][1])
    return (
        f"{start}. Layer {most} reaches back {mine[most][1]} tokens, but it is not the layer in "
        "which this model finds a string. Try another"
    )


def _cache(pairs: Pairs) -> Any:
    """An empty cache whose layers keep what the pairs say."""
    from kvlib.caches import H2O, BlockPool, PagedCache, Scored

    rules = [Scored(H2O(recent=recent), heavy + recent) for heavy, recent in pairs]
    model = _model()
    return PagedCache(model.layer_specs, BlockPool(400, 16), retention=rules, xp=np)


@cache
def _model() -> Any:
    from kvlib import load_reference_model

    return load_reference_model(xp=np)


@cache
def recalled(pairs: Pairs, stop: bool = False) -> tuple[bool, ...]:
    """Whether the model finds each string; stop: no further than needed to know that it fails."""
    from kvlib import quality

    found: list[bool] = []
    for seed in range(TRIALS):
        asked = quality.recall(
            _model(), _cache(pairs), trials=1, distance=DISTANCE, chunk=CHUNK, seed=seed
        )
        found += asked.right
        if stop and len(found) - sum(found) > MISSES:
            break
    return tuple(found)


@cache
def bits_per_byte(pairs: Pairs) -> float:
    """The mean loss on the first bytes of the shipped sample."""
    from kvlib import quality
    from kvlib.reference import sample_text

    text = list(sample_text().encode()[:TEXT])
    return quality.loss(_model(), _cache(pairs), text, chunk=CHUNK).bits_per_token
