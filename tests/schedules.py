"""The kit's random lives of a cache (kvlib.exercises.kit), for the caches of caches.py by name."""

from typing import Any

from caches import MAX_SEQ_LEN, MAX_SEQS, build, coded

from kvlib.exercises.kit import Terms, schedule, seeded
from kvlib.exercises.kit.layers import Choose
from kvlib.exercises.kit.schedule import TOLERANCE, close

__all__ = ["TOLERANCE", "Schedule", "close", "seeded"]


class Schedule(schedule.Schedule):
    """A life of the cache of that name, every unused number in it NaN."""

    def __init__(self, name: str, choose: Choose, xp: Any, dtype: Any = None) -> None:
        terms = Terms(MAX_SEQS, MAX_SEQ_LEN, unit=8 if coded(name) else 1)
        super().__init__(lambda layers: build(name, layers, xp, dtype), choose, xp=xp, terms=terms)
