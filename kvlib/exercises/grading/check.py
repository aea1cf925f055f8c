"""Ask a checker about one answer, in a child process where the platform can fork."""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import time
from dataclasses import dataclass
from typing import Any

from kvlib.exercises.catalogue import Exercise
from kvlib.exercises.grading.draws import redrawn
from kvlib.exercises.grading.guard import Guard
from kvlib.exercises.grading.limits import Limits
from kvlib.exercises.grading.output import Printed

Found = dict[str, Any]
LONGEST = 10_000  # characters of a finding


@dataclass(frozen=True)
class Bench:
    """What every check needs: who notices tricks, the limits, and a file that is not for children.

    private: the descriptor on which the worker speaks to its parent.
    """

    guard: Guard
    limits: Limits
    private: int


def check_here(exercise: Exercise, space: dict[str, Any], draw: int, bench: Bench) -> Found:
    """What the checker finds: status, finding, proved. An answer that ends the process ends it."""
    if exercise.name not in space:
        return _found("missing", f"the notebook does not define {exercise.name}")
    checker = exercise.check()
    with Printed(bench.limits.output), redrawn(draw):
        try:
            report = checker(space[exercise.name])
            found = _found(report.status, report.finding, report.proved)
        except BaseException as error:  # SystemExit, or an object that fools the checker
            found = _found("not yet", f"{exercise.name} raised {type(error).__name__}: {error}")
    if changed := bench.guard.changed():
        bench.guard.restore()
        return _found("not yet", f"{changed[0]} was replaced while the answer was being checked")
    return found


def check_apart(exercise: Exercise, space: dict[str, Any], draw: int, bench: Bench) -> Found:
    """The same in a forked child: it may loop, fill its memory or die, and the next is asked."""
    reading, writing = os.pipe()
    nonce = secrets.token_hex(16)  # who says it asked the checker: no answer that merely writes
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            os.close(bench.private)
            found = check_here(exercise, space, draw, bench)
            os.write(writing, json.dumps({"nonce": nonce, **found}).encode())
        finally:
            os._exit(0)
    os.close(writing)
    try:
        answer = _read(reading, time.monotonic() + bench.limits.seconds)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if answer is None:
        return _found("stopped", f"it took more than {bench.limits.seconds:g} seconds")
    try:
        said = dict(json.loads(answer))
        if said.pop("nonce", None) == nonce:
            return said
    except (ValueError, TypeError):
        pass
    return _found("stopped", f"{exercise.name} ended the process it ran in")


def _read(pipe: int, until: float) -> bytes | None:
    """All that comes until the other end closes; None where it is late."""
    parts: list[bytes] = []
    while (left := until - time.monotonic()) > 0:
        if not select.select([pipe], [], [], left)[0]:
            continue
        parts.append(os.read(pipe, 1 << 16))
        if not parts[-1]:
            return b"".join(parts)
    return None


def _found(status: str, finding: str, proved: tuple[str, ...] = ()) -> Found:
    return {"status": status, "finding": finding[:LONGEST], "proved": list(proved)}
