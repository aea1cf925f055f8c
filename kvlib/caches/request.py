"""What every cache remembers of an open request."""

from __future__ import annotations

from typing import Any

from kvlib.caches.step import Ticket


class Request:
    """An open request; a cache keeps what it likes in ``state``.

    length   tokens that it has seen, planned ones included
    begun    what its length was before its last plan
    ticket   that of its last step, None once the step is taken back
    gap      the first token that some layer may lack, because the next step was planned before
             every layer had appended; None if no token is missing
    """

    __slots__ = ("begun", "gap", "length", "state", "ticket")

    def __init__(self, state: Any) -> None:
        self.length = self.begun = 0
        self.state = state
        self.ticket: Ticket | None = None
        self.gap: int | None = None

    def gap_after(self, layers: int, sure: int) -> int | None:
        """The gap if the last step stays as it is: every layer then has the first `sure` tokens."""
        finished = self.ticket is None or len(self.ticket.appended) >= layers
        return self.gap if finished or self.gap is not None else sure
