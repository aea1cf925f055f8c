"""What an exhibit is: a bug that shipped, rebuilt in kvlib, with what is known about it."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvbook.museum.mutation import Bug, Call, applied

if TYPE_CHECKING:
    from kvlib.model.decoder import Decoder

TOPICS = ("masks", "positions", "memory", "numbers", "sharing", "forgetting", "guesses")


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
        return "\n".join([self.exhibit, *look, *labelled(healthy=self.healthy, mutant=self.broken)])


@dataclass(frozen=True, repr=False)
class Exhibit(Bug):
    """A bug that real systems shipped, rebuilt in kvlib.

        with exhibit.installed(): ...      kvlib has the bug inside the block
        exhibit.source                     the bug: what is called instead of kvlib's function
        exhibit.cite                       where it was shipped
        exhibit.happened                   what was wrong there, in one sentence
        exhibit.symptom()                  what it does to the reference model
        exhibit.caught_by                  the test that catches it; exhibit.test is its text

    topic: one of TOPICS. look: a function of a model that returns what a user would see; None for
    bugs that only a test shows. lines: the wrong code of the bug, and the right code of kvlib.
    """

    topic: str
    cite: str
    caught_by: Callable[[], None]
    look: Callable[[Decoder], str] | None = None
    lines: tuple[str, str] | None = None

    def installed(self) -> AbstractContextManager[None]:
        """A with block in which kvlib has this bug; the end of the block removes it."""
        return applied(self)

    @property
    def title(self) -> str:
        """The name in words."""
        return self.name.replace("_", " ")

    @property
    def happened(self) -> str:
        """What was wrong, in one sentence: the docstring of the bug."""
        return " ".join((self.bug.__doc__ or "").split())

    @property
    def test(self) -> str:
        """The text of the test that catches it."""
        return inspect.getsource(self.caught_by).rstrip()

    def symptom(self, model: Decoder | None = None) -> Symptom:
        """Return what the same look shows at a healthy kvlib and at one with the bug.

        model: the reference model unless given. Only its weights are used, and it is not changed.
        Raises ValueError for an exhibit without a look.
        """
        if self.look is None:
            raise ValueError(f"{self.name} has no look at the reference model: print its test")
        if model is None:
            from kvlib.reference import load_reference_model

            model = load_reference_model()
        healthy = self.look(fresh(model))
        with self.installed():
            broken = self.look(fresh(model))
        return Symptom(self.title, _first_line(self.look), healthy, broken)

    def story(self, model: Decoder) -> str:
        """Return the wrong and the right line, the symptom, and the test, one below the other."""
        symptom = self.symptom(model)
        wrong, right = self.lines or ("", "")
        code = labelled(wrong=wrong, right=right) if self.lines else []
        shown = labelled(look=symptom.look, healthy=symptom.healthy, mutant=symptom.broken)
        return "\n".join([self.name, *code, *shown, *labelled(test=self.caught_by.__name__)])

    def __repr__(self) -> str:
        label = labelled(
            bug=self.happened,
            shipped=self.cite,
            replaces=f"{self.module}, {self.function}",
            test=self.caught_by.__name__,
        )
        return "\n".join([f"{self.name}  ({self.topic})", *label])


def collector(topic: str, exhibits: list[Exhibit]) -> Callable[..., Callable[[Call], Call]]:
    """Return a decorator that adds a bug, named as its function, to a list of exhibits."""

    def shipped(module: str, function: str, **label: Any) -> Callable[[Call], Call]:
        def add(bug: Call) -> Call:
            exhibits.append(Exhibit(bug.__name__, module, function, bug, topic, **label))
            return bug

        return add

    return shipped


def labelled(**texts: str) -> list[str]:
    """Return each text after its label, in lines that fit a page."""
    rows = []
    for label, text in texts.items():
        start = f"  {label:<9}"
        rows += textwrap.wrap(text, 78, initial_indent=start, subsequent_indent=" " * 13)
    return rows


def fresh(model: Decoder) -> Decoder:
    """The same weights in a new decoder, because a decoder keeps tables of rotations."""
    from kvlib.model.decoder import Decoder

    return Decoder(model.config, model.weights, model.tokenizer)


def _first_line(function: Callable[..., Any]) -> str:
    return (inspect.getdoc(function) or function.__name__).splitlines()[0].rstrip(".")
