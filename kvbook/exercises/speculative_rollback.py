"""The checker of a loop that guesses, checks, and keeps what is right in two caches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kvbook.exercises.cached import recompute, tiny_model
from kvbook.exercises.received import token_list
from kvbook.exercises.report import Finding, checker
from kvbook.exercises.speculative_fed import Drafter, Target
from kvbook.exercises.speculative_play import Play, Read, Written, of_model
from kvlib.speculation import lower_layers


@checker
def check_speculate(speculate: Callable[..., Any]) -> Iterator[str]:
    """speculate(target, drafter, prompt, n, gamma) → n greedy tokens; target(tokens, start)."""
    rng = np.random.default_rng(64)
    _played(speculate, Written(rng, right=0.7), _prompt(rng), 1, 3)
    yield "one new token needs no guesses: it follows from the prompt"

    seen = [_played(speculate, Written(rng, right=0.0), _prompt(rng), 12, 3)]
    yield "where every guess is refused, both caches drop all of them"

    seen += [_played(speculate, Written(rng, right=0.7), _prompt(rng), 40, 4) for _ in range(2)]
    yield "where some are accepted, both caches keep these and drop the others"

    seen += [_played(speculate, Written(rng, right=1.0), _prompt(rng), 25, g) for g in (1, 3)]
    yield "where all are accepted, the drafter is also fed the last guess before it guesses on"

    for right, n, gamma in ((0.5, 30, 1), (0.8, 30, 2), (0.6, 17, 7), (0.9, 30, 5)):
        seen.append(_played(speculate, Written(rng, right), _prompt(rng), n, gamma))
    right, guesses = (sum(x) for x in zip(*seen, strict=True))
    yield (
        f"with 1 to 7 guesses per step, the target gets the text that it writes alone; {right} of "
        f"{guesses} guesses were right, as many as this drafter can get"
    )

    _on_a_model(speculate, _prompt(rng))
    yield "with two models and caches of kvlib, no step reads the key of a refused guess"


def _prompt(rng: np.random.Generator) -> list[int]:
    found: list[int] = rng.integers(0, Written.V, int(rng.integers(3, 9))).tolist()
    return found


def _played(
    speculate: Callable[..., Any], written: Written, prompt: list[int], n: int, gamma: int
) -> tuple[int, int]:
    """One text; how many of the guesses were right, and how many there were."""
    play = Play(prompt, n, gamma, written.text(prompt, n + gamma + 2))
    target, drafter = written.reader(written.table), written.reader(written.drafted)
    _run(speculate, play, target, drafter)
    return play.right, play.guessed


def _on_a_model(speculate: Callable[..., Any], prompt: list[int]) -> None:
    """A random model, and its own first layer as the drafter."""
    model, n, gamma = tiny_model(), 10, 3
    play = Play(prompt, n, gamma, [*prompt, *recompute(model, prompt, n + gamma + 2)])
    most = len(play.truth)
    _run(speculate, play, of_model(model, most), of_model(lower_layers(model, 1), most))


def _run(speculate: Callable[..., Any], play: Play, target: Read, drafter: Read) -> None:
    got = speculate(
        Target(play, target), Drafter(play, drafter), list(play.prompt), play.n, play.gamma
    )
    play.ended()
    _expect_tokens(got, play)


def _expect_tokens(result: Any, play: Play) -> None:
    what = f"{play.n} new tokens with gamma = {play.gamma}"
    got, start = token_list(result, what), len(play.prompt)
    right = play.truth[start : start + play.n]
    if got == right:
        return
    if got == play.prompt + right:
        raise Finding(f"{what}: the prompt is returned, too; return the new tokens alone")
    if len(got) > play.n and got[: play.n] == right:
        raise Finding(
            f"{what}: got {len(got)} tokens, needed {play.n}. The last step may bring more than "
            "are wanted; cut them off"
        )
    if got == right[1:] or (play.n > 1 and got[: play.n - 1] == right[1:]):
        raise Finding(
            f"{what}: the first new token is missing; the target chose it after the prompt"
        )
    if got and got == right[: len(got)]:
        raise Finding(f"{what}: got only {len(got)} of them, though they are the right ones")
    i = next((i for i, (a, b) in enumerate(zip(got, right, strict=False)) if a != b), 0)
    came = f"token {i} is {got[i]}" if got else "got none"
    raise Finding(
        f"{what}: {came}, needed {right[i]}, the token that the target chooses there. Every step "
        "gives the accepted guesses, and after them the choice of the target"
    )
