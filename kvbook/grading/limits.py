"""How much a notebook may take."""

from __future__ import annotations

from dataclasses import dataclass

MB = 1024 * 1024
DAY = 86_400
# The least and the most of each limit. NumPy alone takes 400 MB of address space.
RANGES = {
    "seconds": (0.1, DAY),
    "memory": (512, 1_048_576),
    "output": (1, 1_000_000),
    "total": (0.1, 7 * DAY),
}
OPTIONS = {"seconds": "--timeout", "memory": "--memory", "total": "--total"}
UNITS = {"seconds": "seconds", "memory": "MB", "output": "characters", "total": "seconds"}


@dataclass(frozen=True)
class Limits:
    """What one notebook may use while it is graded.

    seconds   for one statement of the notebook, and for one check of one exercise
    memory    megabytes of address space (where the platform has RLIMIT_AS)
    output    characters that are kept of what is printed; the rest is counted and dropped
    total     seconds for the whole notebook

    ValueError or TypeError for a limit outside RANGES.
    """

    seconds: float = 20.0
    memory: int = 4096
    output: int = 2000
    total: float = 600.0

    def __post_init__(self) -> None:
        for name, (least, most) in RANGES.items():
            _in_range(name, getattr(self, name), least, most)

    def apply(self) -> None:
        """Limit this process, as far as the platform can."""
        try:
            import resource
        except ImportError:  # Windows: the parent still limits the time
            return
        for kind, most in (
            ("RLIMIT_AS", self.memory * MB),
            ("RLIMIT_FSIZE", 64 * MB),
            ("RLIMIT_CORE", 0),
        ):
            _lower(resource, getattr(resource, kind), most)


def _in_range(name: str, value: object, least: float, most: float) -> None:
    option = f" ({OPTIONS[name]})" if name in OPTIONS else ""
    whole = isinstance(least, int)
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        needed = "a whole number" if whole else "a number"
        raise TypeError(f"{name}{option} must be {needed}, got {type(value).__name__}")
    if not least <= value <= most:  # NaN is in no range
        huge = 10**20 < abs(value) < float("inf")
        got = "a huge number" if huge else str(value)
        raise ValueError(f"{name}{option} must be {least:,} to {most:,} {UNITS[name]}, got {got}")


def _lower(resource: object, kind: int, most: int) -> None:
    soft, hard = resource.getrlimit(kind)  # type: ignore[attr-defined]
    infinite = resource.RLIM_INFINITY  # type: ignore[attr-defined]
    if hard != infinite:
        most = min(most, hard)
    try:
        resource.setrlimit(kind, (most, most))  # type: ignore[attr-defined]
    except (ValueError, OSError):  # macOS refuses limits on address space
        return
