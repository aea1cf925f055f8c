"""A change to kvlib, and the check of killers.py that must refuse it."""

from copy import copy
from dataclasses import dataclass
from typing import Any

from kvbook import museum


@dataclass(frozen=True, repr=False)
class Mutant(museum.Mutant):
    """One change to the text of kvlib; ``killed_by`` names a check."""

    killed_by: str


@dataclass(frozen=True, repr=False)
class Bug(museum.Bug):
    """One function of kvlib that does something else; ``killed_by`` names a check."""

    killed_by: str


def changed(thing: Any, **attributes: Any) -> Any:
    """A copy with other attributes."""
    thing = copy(thing)
    for name, value in attributes.items():
        setattr(thing, name, value)
    return thing
