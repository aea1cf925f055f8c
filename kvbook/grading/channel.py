"""Messages between two processes: a head in JSON and the bytes of its arrays, one frame each.

Nothing that comes in is ever executed or unpickled. A frame that is too large, torn or no JSON
raises `Gone`; one that comes too late raises `Late`.
"""

from __future__ import annotations

import json
import os
import select
import struct
import time
from collections.abc import Sequence
from typing import Any

LARGEST = 256 * 2**20  # bytes of the arrays of one frame
LONGEST = 16 * 2**20  # bytes of its head
FOREVER = float("inf")
_SIZES = struct.Struct("<QQ")  # bytes of the head, bytes of the arrays


class Late(BaseException):
    """The other side took too long. No ``except Exception`` of a checker swallows it."""


class Gone(BaseException):
    """The other side has ended, or says what cannot be understood."""


class Channel:
    """Frames over two descriptors, which may be one socket.

    until   a time of time.monotonic() after which reading and writing raise Late
    """

    def __init__(self, reading: int, writing: int) -> None:
        self.reading, self.writing = reading, writing
        self.until = FOREVER

    def send(self, head: Any, arrays: Sequence[Any] = ()) -> None:
        """Write one frame. Surrogates in texts pass, as JSON escapes them."""
        text = json.dumps(head).encode("ascii")
        parts = [memoryview(x).cast("B") for x in arrays if memoryview(x).nbytes]
        size = sum(len(part) for part in parts)
        if len(text) > LONGEST or size > LARGEST:
            raise Gone(f"a message of {len(text) + size:,} bytes")
        self._write(_SIZES.pack(len(text), size) + text)
        for part in parts:
            self._write(part)

    def receive(self) -> tuple[dict[str, Any], bytearray]:
        """The next frame: its head, a dict, and the bytes of its arrays."""
        head, arrays = _SIZES.unpack(self._read(_SIZES.size))
        if head > LONGEST or arrays > LARGEST:
            raise Gone("a message that is too large")
        text, data = self._read(head), self._read(arrays)
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Gone(f"no message: {error}") from None
        if not isinstance(found, dict):
            raise Gone("no message")
        return found, data

    def close(self) -> None:
        for descriptor in {self.reading, self.writing}:
            os.close(descriptor)

    def _read(self, count: int) -> bytearray:
        found = bytearray()
        while len(found) < count:
            self._wait([self.reading], [])
            try:
                part = os.read(self.reading, min(count - len(found), 1 << 20))
            except BlockingIOError:
                continue
            except OSError:
                part = b""
            if not part:
                raise Gone("nothing more comes")
            found += part
        return found

    def _write(self, data: bytes | memoryview) -> None:
        rest = memoryview(data)
        while rest:
            self._wait([], [self.writing])
            try:
                rest = rest[os.write(self.writing, rest[: 1 << 20]) :]
            except BlockingIOError:
                continue
            except OSError:
                raise Gone("nobody listens") from None

    def _wait(self, reading: list[int], writing: list[int]) -> None:
        if os.name == "nt":  # there the grader ends the process instead
            return
        while True:
            left = self.until - time.monotonic()
            if left <= 0:
                raise Late
            if any(select.select(reading, writing, [], min(left, 60.0))[:2]):
                return
