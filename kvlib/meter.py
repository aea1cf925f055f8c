"""Counting what a computation does: operations, and bytes read, written and copied.

Attention, caches and the model report to every meter that is open. A multiplication and an addition
count as two operations, as in the roofline literature (doi:10.1145/1498765.1498785).
"""

from dataclasses import dataclass, field

OPEN: "list[Meter]" = []  # "if OPEN:" is `counting()` without a call


@dataclass
class Count:
    """Operations, and bytes read, written and copied.

    >>> count = Count()
    >>> count.add(flops=2, read=8, written=0, copied=0)
    >>> count.flops, count.read
    (2, 8)
    """

    flops: int = 0
    read: int = 0
    written: int = 0
    copied: int = 0

    def add(self, flops: int, read: int, written: int, copied: int) -> None:
        self.flops += flops
        self.read += read
        self.written += written
        self.copied += copied


@dataclass
class Meter(Count):
    """Counts everything reported between ``with Meter() as m:`` and the end of the block.

    ``by_label`` splits the same totals by their source: "attention", "append", "linear", ...
    Meters may be nested; each counts all that happens inside it.

    >>> with Meter() as meter:
    ...     report("demo", flops=10, read=4)
    >>> meter.flops, meter.by_label["demo"].read
    (10, 4)
    """

    by_label: dict[str, Count] = field(default_factory=dict)

    def __enter__(self) -> "Meter":
        OPEN.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        # By identity: dataclasses compare by value, and two idle meters are equal.
        OPEN[:] = [m for m in OPEN if m is not self]

    def intensity(self) -> float:
        """Operations per byte moved (read, written or copied); 0.0 if nothing moved."""
        moved = self.read + self.written + self.copied
        return self.flops / moved if moved else 0.0


def counting() -> bool:
    """Whether any meter is open. Ask this first if the counts themselves take time to compute.

    >>> counting()
    False
    """
    return bool(OPEN)


def report(label: str, *, flops: int = 0, read: int = 0, written: int = 0, copied: int = 0) -> None:
    """Tell every open meter what was done, in operations and bytes.

    >>> with Meter() as meter:
    ...     report("copy on write", copied=128)
    >>> meter.by_label["copy on write"].copied
    128
    """
    for meter in OPEN:
        meter.add(flops, read, written, copied)
        meter.by_label.setdefault(label, Count()).add(flops, read, written, copied)
