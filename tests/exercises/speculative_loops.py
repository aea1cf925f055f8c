"""Loops that guess, check and roll back, right and wrong: answers to an exercise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def loop(
    keep: int = 1,
    drafter_keeps: Callable[[int, int, int], int] = lambda new, old, gamma: min(new, old + gamma),
    fill: bool = True,
    choose: Callable[[list[int], list[int]], list[int]] | None = None,
    cut: bool = True,
) -> Callable[..., Any]:
    """The loop of the task with other lengths: t and d, what target and drafter keep.

    keep           the target keeps t + a + keep tokens
    drafter_keeps  (t, t before the step, gamma) → d
    fill           whether the drafter is fed all that it lacks, or the newest token alone
    choose         (choices, guesses) → new tokens
    """

    def speculate(target: Any, drafter: Any, prompt: Any, n: int, gamma: int) -> Any:
        text = [*prompt, target(prompt, 0)[-1]]
        t = d = len(prompt)
        drafter(prompt, 0)
        while len(text) < len(prompt) + n:
            guesses: list[int] = []
            for _ in range(gamma):
                written = [*text, *guesses]
                unread = written[d:] if fill else written[-1:]
                guesses.append(drafter(unread, d)[-1])
                d += len(unread)
            choices = target([text[-1], *guesses], t)
            a = next((i for i in range(gamma) if guesses[i] != choices[i]), gamma)
            text += choices[: a + 1] if choose is None else choose(choices, guesses)[: a + 1]
            t, d = t + a + keep, drafter_keeps(t + a + keep, t, gamma)
        return text[len(prompt) :][: n if cut else None]

    return speculate


def never_cut(target: Any, drafter: Any, prompt: Any, n: int, gamma: int) -> Any:
    """Both caches keep all that they were fed."""
    text, held = list(prompt), 0
    written = 0
    while len(text) < len(prompt) + n:
        guesses: list[int] = []
        for _ in range(gamma):
            unread = [*text, *guesses][written:] or text[-1:]
            guesses.append(drafter(unread, written)[-1])
            written += len(unread)
        fed = [*text, *guesses][held:]
        choices = target(fed, held)[-gamma - 1 :]
        held += len(fed)
        a = next((i for i in range(gamma) if guesses[i] != choices[i]), gamma)
        text += choices[: a + 1]
    return text[len(prompt) :][:n]


def plain(target: Any, drafter: Any, prompt: Any, n: int, gamma: int) -> Any:
    new = [target(prompt, 0)[-1]]
    while len(new) < n:
        new.append(target(new[-1:], len(prompt) + len(new) - 1)[-1])
    return new


def recomputing(target: Any, drafter: Any, prompt: Any, n: int, gamma: int) -> Any:
    text = list(prompt)
    while len(text) < len(prompt) + n:
        text.append(target(text, 0)[-1])
    return text[len(prompt) :]


def drafting_anew(target: Any, drafter: Any, prompt: Any, n: int, gamma: int) -> Any:
    right = loop()
    return right(target, lambda tokens, start: drafter(tokens, 0), prompt, n, gamma)


def with_last_guess(target: Any, drafter: Any, prompt: Any, n: int, gamma: int) -> Any:
    """Another right way: the drafter reads its last guess, too, so both caches are equally long."""
    text, held = list(prompt), 0
    while len(text) < len(prompt) + n:
        fed, at, guesses = text[held:], held, list[int]()
        for _ in range(gamma):
            guesses.append(drafter(fed, at)[-1])
            at, fed = at + len(fed), guesses[-1:]
        drafter(fed, at)
        choices = target(text[held:] + guesses, held)[-gamma - 1 :]
        a = next((i for i in range(gamma) if guesses[i] != choices[i]), gamma)
        held = len(text) + a
        text += choices[: a + 1]
    return text[len(prompt) :][:n]


def self_correcting(target: Any, drafter: Any, prompt: Any, n: int, gamma: int) -> Any:
    text, end, t, d = list(prompt), len(prompt) + n, 0, 0
    while len(text) < end:
        guesses: list[int] = []
        for _ in range(min(gamma, end - len(text) - 1)):
            written = text + guesses
            guesses.append(drafter(written[d:], d)[-1])
            d = len(written)
        choices = target(text[t:] + guesses, t)[-len(guesses) - 1 :]
        a = 0
        while a < len(guesses) and guesses[a] == choices[a]:
            a += 1
        t = len(text) + a
        d = min(d, t)
        text += choices[: a + 1]
    return np.array(text[len(prompt) :])


def prompt_in_pieces(target: Any, drafter: Any, prompt: Any, n: int, gamma: int) -> Any:
    """Reads all but the last token of the prompt first, one by one."""
    for i in range(len(prompt) - 1):
        target(prompt[i : i + 1], i)
        drafter(np.array(prompt[i : i + 1]), np.int64(i))
    text, t, d = list(prompt), len(prompt) - 1, len(prompt) - 1
    while len(text) < len(prompt) + n:
        guesses: list[int] = []
        for _ in range(gamma):
            written = text + guesses
            guesses.append(drafter(written[d:], d)[-1])
            d = len(written)
        choices = target([text[-1], *guesses], t)
        a = sum(np.cumprod([g == c for g, c in zip(guesses, choices)]))
        t += int(a) + 1
        d = min(t, d)
        text += choices[: a + 1]
    return text[len(prompt) :][:n]


def asking_for_one_more(target: Any, drafter: Any, prompt: Any, n: int, gamma: int) -> Any:
    return loop()(target, drafter, prompt, n, gamma + 1)


def with_one_guess(target: Any, drafter: Any, prompt: Any, n: int, gamma: int) -> Any:
    return loop()(target, drafter, prompt, n, 1)


def own_guesses(target: Any, drafter: Any, prompt: Any, n: int, gamma: int) -> Any:
    def fed(tokens: Any, start: int) -> Any:
        return target([*tokens[:-1], 77] if start else tokens, start)

    return loop()(fed, drafter, prompt, n, gamma)


def swallowing(target: Any, drafter: Any, prompt: Any, n: int, gamma: int) -> Any:
    """Lets no message of the two models through."""
    try:
        return loop(keep=0)(target, drafter, prompt, n, gamma)
    except BaseException:
        return plain(lambda tokens, start: [0], drafter, prompt, n, gamma)


def one_call_too_many(target: Any, drafter: Any, prompt: Any, n: int, gamma: int) -> Any:
    new = loop(cut=False)(target, drafter, prompt, n, gamma)
    target(new[-1:], len(prompt) + len(new) - 1)
    return new[:n]


def given(change: Callable[[list[int], list[int]], Any]) -> Callable[..., Any]:
    """The right new tokens, changed: change(new, prompt)."""
    return lambda target, drafter, prompt, n, gamma: change(
        loop()(target, drafter, prompt, n, gamma), prompt
    )
