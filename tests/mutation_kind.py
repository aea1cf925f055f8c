"""A mutant, and the check of killers.py that must refuse it."""

from dataclasses import dataclass

from kvlib.exercises import museum


@dataclass(frozen=True, repr=False)
class Mutant(museum.Mutant):
    """One change to kvlib; ``killed_by`` names a check."""

    killed_by: str
