"""What an exhibit is: a bug that shipped, rebuilt in kvlib, with what is known about it."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvbook.museum.mutation import Bug, applied

if TYPE_CHECKING:
    from kvlib.model.decoder import Decoder

ROOMS = ("masks", "positions", "memory", "numbers", "sharing", "forgetting", "guesses")


def by_a_model(folder: str) -> str:
    """How to cite a bug that was seen nowhere but in code which a language model wrote."""
    where = f"sleepyeldrazi/llm_programming_tests, {folder}"
    return f"code written by a language model in a public benchmark ({where})"


@dataclass(frozen=True, repr=False)
class Symptom:
    """What one look at the reference model shows without and with the bug."""

    exhibit: str
    look: str
    healthy: str
    broken: str

    @property
    def shows(self) -> bool:
        """Whether the two differ."""
        return self.healthy != self.broken

    def __repr__(self) -> str:
        look = textwrap.wrap(f"({self.look})", 78, initial_indent="  ", subsequent_indent="   ")
        return "\n".join([self.exhibit, *look, *self.lines()])

    def lines(self) -> list[str]:
        """The two looks, one below the other, narrow enough for a page."""
        rows = []
        for label, text in (("healthy", self.healthy), ("mutant ", self.broken)):
            rows += textwrap.wrap(
                text, 76, initial_indent=f"  {label}  ", subsequent_indent=" " * 11
            )
        return rows


@dataclass(frozen=True, repr=False)
class Exhibit(Bug):
    """A bug that real systems shipped, rebuilt in kvlib.

        with exhibit.installed(): ...      kvlib has the bug inside the block
        exhibit.source                     the bug: what is called in place of kvlib's function
        exhibit.cite                       where it was shipped
        exhibit.happened                   what was wrong there
        exhibit.symptom()                  what it does to the reference model
        exhibit.caught_by                  the test that catches it; exhibit.test is its text

    look: a function of a model that returns what a user would see. room: one of ROOMS.
    """

    room: str
    cite: str
    happened: str
    look: Callable[[Decoder], str]
    caught_by: Callable[[], None]

    def installed(self) -> AbstractContextManager[None]:
        """A with block in which kvlib has this bug; the end of the block removes it."""
        return applied(self)

    @property
    def title(self) -> str:
        """The name in words."""
        return self.name.replace("_", " ")

    @property
    def test(self) -> str:
        """The text of the test that catches it."""
        return inspect.getsource(self.caught_by).rstrip()

    def symptom(self, model: Decoder | None = None) -> Symptom:
        """The same look at a healthy kvlib and at one with the bug.

        model: the reference model unless given. Only its weights are used, and it is not changed.
        """
        if model is None:
            from kvlib.reference import load_reference_model

            model = load_reference_model()
        healthy = self.look(fresh(model))
        with self.installed():
            broken = self.look(fresh(model))
        return Symptom(self.title, _first_line(self.look), healthy, broken)

    def __repr__(self) -> str:
        lines = [f"{self.name}  ({self.room})"]
        for label, text in (
            ("happened", self.happened),
            ("shipped in", self.cite),
            ("here", f"{self.bug.__name__} in place of {self.module}, {self.function}"),
            ("caught by", self.caught_by.__name__),
        ):
            start = f"  {label + ':':<12}"
            lines += textwrap.wrap(text, 76, initial_indent=start, subsequent_indent=" " * 14)
        return "\n".join(lines)


def fresh(model: Decoder) -> Decoder:
    """The same weights in a new decoder, because a decoder keeps tables of rotations."""
    from kvlib.model.decoder import Decoder

    return Decoder(model.config, model.weights, model.tokenizer)


def _first_line(function: Callable[..., Any]) -> str:
    return (inspect.getdoc(function) or function.__name__).splitlines()[0].rstrip(".")
