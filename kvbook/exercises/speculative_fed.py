"""The target and the drafter of the exercise, watched while they are fed.

Both know which tokens they hold, and compare them with the text that the target writes alone. What
an answer keeps or feeds wrongly is therefore named at the call in which it happens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from kvbook.exercises.expect import Finding
from kvbook.exercises.received import token_list, whole
from kvbook.exercises.speculative_play import Play, Read, common


class Fed(ABC):
    """A model with a cache: called with tokens, and with the position at which they start."""

    name = ""

    def __init__(self, play: Play, read: Read) -> None:
        self._play, self._read, self._held = play, read, list[int]()

    def __call__(self, tokens: Any, start: Any) -> list[int]:
        play, held = self._play, self._held
        play.ended()
        try:
            fed = token_list(tokens, f"the tokens that the {self.name} is fed")
            start = whole(start, f"start of the {self.name}")
        except Finding as finding:
            raise play.wrong(str(finding)) from None
        if not fed:
            raise play.wrong(f"the {self.name} is fed an empty list; it needs at least one token")
        if not 0 <= start <= len(held):
            raise play.wrong(
                f"the {self.name} is fed with start = {start}, but it holds {len(held)} tokens, so "
                f"start can be 0 to {len(held)}{self._why_gap(start)}{play.last}"
            )
        self._look(fed, start)
        held[start:] = fed
        choices = self._read(fed, start)
        self._note(fed, start, choices)
        return choices

    def _why_gap(self, start: int) -> str:
        return ""

    @abstractmethod
    def _look(self, fed: list[int], start: int) -> None:
        """Raise what is wrong with these tokens at this position."""

    @abstractmethod
    def _note(self, fed: list[int], start: int, choices: list[int]) -> None:
        """Remember what the model has read and chosen."""

    def _look_at_start(self, start: int, text: list[int]) -> None:
        """start must keep what is right, and nothing else; text: what the cache should hold."""
        play, held = self._play, self._held
        right = common(held, text)
        holds = (
            f"the {self.name} holds {len(held)} tokens, of which the first {right} belong to the "
            f"text, but it is fed with start = {start}. So "
        )
        if start > right:
            raise play.wrong(
                f"{holds}it keeps token {held[right]} at position {right}, a refused guess"
                f"{play.last}"
            )
        if start < right:
            lost = f"the token at position {start}, which is right"
            if start < right - 1:
                lost = f"the tokens at positions {start} to {right - 1}, which are right"
            raise play.wrong(f"{holds}it throws away {lost}{play.last}")


class Target(Fed):
    """The model that checks; its choices are the text."""

    name = "target"

    def _look(self, fed: list[int], start: int) -> None:
        play, began = self._play, self._play.known > len(self._play.prompt)
        if play.left <= 0:
            raise play.wrong(f"all {play.n} new tokens are known, and the target is called again")
        self._look_at_start(start, play.text[:-1] if began else play.text)
        unread = play.text[start:]
        i = common(fed, unread)
        if i < min(len(fed), len(unread)):
            raise play.wrong(
                f"the target is fed token {fed[i]} at position {start + i}, where the text has "
                f"{unread[i]}{play.last}"
            )
        if len(fed) >= len(unread):
            self._look_at_guesses(fed[len(unread) :], began)
        elif began:
            raise play.wrong(
                f"the target is fed {len(fed)} of the {len(unread)} known tokens that it has not "
                "read yet; one step should read all of them, and then the guesses"
            )

    def _look_at_guesses(self, guesses: list[int], began: bool) -> None:
        play = self._play
        if len(guesses) > play.gamma:
            raise play.wrong(
                f"gamma is {play.gamma}, but the target is fed {len(guesses)} guesses; leave "
                "out the token that the drafter chooses after the last guess"
            )
        i = common(guesses, play.guesses)
        if i < len(guesses):
            said = f"chose {play.guesses[i]}" if i < len(play.guesses) else "was not asked for it"
            raise play.wrong(f"the target is fed {guesses[i]} as guess {i}, but the drafter {said}")
        needed = min(play.gamma, play.left - 1)
        if began and len(guesses) < needed:
            raise play.wrong(
                f"the target is fed {len(guesses)} guesses, needed {needed}: gamma is "
                f"{play.gamma}, and {play.left} tokens are still to come"
            )

    def _note(self, fed: list[int], start: int, choices: list[int]) -> None:
        unread = self._play.known - start
        if len(fed) >= unread:
            self._play.checked(fed[unread:])


class Drafter(Fed):
    """The model that guesses."""

    name = "drafter"

    def _why_gap(self, start: int) -> str:
        if start != len(self._held) + 1:
            return ""
        return (
            ". It was never fed its own last guess, so after a step that accepted all guesses, it "
            "holds one token fewer than the target, and must be fed that guess first"
        )

    def _look(self, fed: list[int], start: int) -> None:
        play = self._play
        text = play.text + play.guesses
        self._look_at_start(start, text)
        if len(play.guesses) > play.gamma:
            raise play.wrong(
                f"gamma is {play.gamma}, but the drafter is asked for {len(play.guesses) + 1} "
                "guesses in one step"
            )
        unread = text[start:]
        i = common(fed, unread)
        if i == len(fed):
            return
        rest, place = fed[i:], start + i
        if rest == unread[i + 1 :][: len(rest)]:
            raise play.wrong(
                f"the drafter is fed token {rest[0]} at position {place}, where the text has "
                f"{unread[i]}. The drafter was never fed token {unread[i]}, because it was the "
                "last guess of a step that accepted all guesses. The new tokens stay right, but "
                f"from now on the drafter guesses after a text that lacks a token{play.last}"
            )
        needed = f"where the text has {unread[i]}" if i < len(unread) else "which nobody knows yet"
        raise play.wrong(
            f"the drafter is fed token {rest[0]} at position {place}, {needed}{play.last}"
        )

    def _note(self, fed: list[int], start: int, choices: list[int]) -> None:
        play = self._play
        if start + len(fed) == play.known + len(play.guesses):
            play.guesses.append(choices[-1])
