"""What a mutant of the museum is."""

from typing import NamedTuple


class Mutant(NamedTuple):
    """``seen``: where the bug was shipped; empty where it is one that lies near."""

    name: str
    module: str
    function: str
    old: str
    new: str
    killed_by: str
    seen: str = ""
