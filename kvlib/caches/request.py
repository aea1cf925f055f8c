"""What every cache remembers of an open request."""

from __future__ import annotations

from typing import Any

from kvlib.caches.step import Ticket


class Request:
    """An open request; a cache keeps what it likes in ``place``.

    length   tokens that it has seen, planned ones included
    begun    what its length was before its last plan
    ticket   that of its last step, None once the step is taken back
    lacks    layer → the first token that the layer may not hold: a pass was planned, and replaced
             by the next one before the layer had appended
    """

    __slots__ = ("begun", "lacks", "length", "place", "ticket")

    def __init__(self, place: Any) -> None:
        self.length = self.begun = 0
        self.place = place
        self.ticket: Ticket | None = None
        self.lacks: dict[int, int] = {}

    def lacking(self, layers: int, sure: int) -> dict[int, int]:
        """``lacks``, if the last pass stays as it is; `sure` tokens every layer would then hold."""
        ticket = self.ticket
        if ticket is None or len(ticket.appended) >= layers:
            return self.lacks
        missed = {i: sure for i in range(layers) if i not in ticket.appended}
        return missed | self.lacks
