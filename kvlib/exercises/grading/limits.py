"""How much a notebook may take."""

from __future__ import annotations

from dataclasses import dataclass

MB = 1024 * 1024


@dataclass(frozen=True)
class Limits:
    """What one notebook may use while it is graded.

    seconds   for one statement of the notebook, and for one check of one exercise
    memory    megabytes of address space (where the platform has RLIMIT_AS)
    output    characters that are kept of what is printed; the rest is counted and dropped
    total     seconds for the whole notebook
    """

    seconds: float = 20.0
    memory: int = 4096
    output: int = 2000
    total: float = 600.0

    def __post_init__(self) -> None:
        for name in ("seconds", "memory", "output", "total"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)!r}")

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


def _lower(resource: object, kind: int, most: int) -> None:
    soft, hard = resource.getrlimit(kind)  # type: ignore[attr-defined]
    infinite = resource.RLIM_INFINITY  # type: ignore[attr-defined]
    if hard != infinite:
        most = min(most, hard)
    try:
        resource.setrlimit(kind, (most, most))  # type: ignore[attr-defined]
    except (ValueError, OSError):  # macOS refuses limits on address space
        return
