"""The process in which a notebook's code runs. Started by `hand`, for one notebook.

It knows the cells, the names of the answers and the limits. What is checked, on which inputs and
with what result, is known to the checking process alone, which calls the answers from outside.
"""

from __future__ import annotations

import importlib
import linecache
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kvbook.grading.channel import Channel, Gone
from kvbook.grading.guard import Guard
from kvbook.grading.limits import Limits
from kvbook.grading.needed import Statement, needed, statements
from kvbook.grading.output import Printed
from kvbook.grading.serve import Server
from kvbook.grading.walls import harden

Send = Callable[[dict[str, Any]], None]


def main() -> None:
    if len(sys.argv) > 1:
        channel = Channel(int(sys.argv[1]), int(sys.argv[1]))
    else:
        channel = Channel(os.dup(0), os.dup(1))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    job, _ = channel.receive()
    for chapter in job["together"]:  # their checkers are watched, too
        importlib.import_module(f"kvbook.exercises.{chapter}")
    limits, guard = Limits(**job["limits"]), Guard()
    harden()
    limits.apply()
    space = run_cells(job, limits, channel.send)
    guard.restore()
    channel.send({"event": "ready"})
    with suppress(Gone):
        _until_gone(channel, space, limits, guard, job["fork"])
    os._exit(0)  # threads of the notebook do not keep us here


def _until_gone(
    channel: Channel, space: dict[str, Any], limits: Limits, guard: Guard, fork: bool
) -> None:
    def together(label: str) -> dict[str, Any]:
        from kvbook.grading.check import check_here

        return check_here(label, space, limits, guard)

    server = Server(channel, space, together)
    while True:
        head, data = channel.receive()
        if head["op"] != "open":
            with Printed(limits.output):
                server.serve(head, data)
        elif fork:
            _fork(channel, space, limits, together)
        else:
            server = Server(channel, space, together)


def _fork(channel: Channel, space: dict[str, Any], limits: Limits, together: Any) -> None:
    """One check in a child of its own: it may loop, fill its memory or die, and the next is asked.

    The child speaks on a socket that comes with the message; "close" ends it.
    """
    taken = socket.socket(fileno=os.dup(channel.reading))
    _, (descriptor,), _, _ = socket.recv_fds(taken, 1, 1)
    taken.close()
    child = os.fork()
    if child == 0:
        try:
            channel.close()
            own = Channel(descriptor, descriptor)
            server = Server(own, space, together)
            with Printed(limits.output):
                while server.serve(*own.receive()):
                    pass
        finally:
            os._exit(0)
    os.close(descriptor)
    channel.receive()  # "close"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    channel.send({"event": "closed"})


def run_cells(job: dict[str, Any], limits: Limits, send: Send) -> dict[str, Any]:
    """Run what the exercises need, statement by statement; what it defined."""
    space: dict[str, Any] = {"__name__": "__main__", "display": lambda *things, **_: None}
    found, broken = statements(job["sources"])
    for cell, source in enumerate(job["sources"]):
        lines = source.splitlines(keepends=True)
        linecache.cache[f"<cell {cell}>"] = (len(source), None, lines, f"<cell {cell}>")
    for cell, error in broken.items():
        send({"event": "broken", "cell": cell, "error": error})
    wanted = found if job["all_cells"] else needed(found, job["names"])
    skipped = {tuple(place) for place in job["skip"]}
    for statement in wanted:
        if (statement.cell, statement.line) not in skipped:
            run_statement(statement, space, limits, send)
    return space


def run_statement(statement: Statement, space: dict[str, Any], limits: Limits, send: Send) -> None:
    """Run one statement. A MemoryError ends the process: what filled the memory still holds it."""
    place = {"cell": statement.cell, "line": statement.line}
    send({"event": "running", **place})
    printed, error, full = Printed(limits.output), "", False
    with printed:
        try:
            exec(statement.code, space)
        except MemoryError:
            full = True
        except BaseException as problem:  # SystemExit and KeyboardInterrupt, too
            error = _named(problem)
    if full:
        send({"event": "full", **place})
        os._exit(1)
    send({"event": "ran", **place, "error": error, "printed": printed.count})


def _named(problem: BaseException) -> str:
    try:
        return f"{type(problem).__name__}: {problem}"[:500]
    except Exception:
        return type(problem).__name__


if __name__ == "__main__":
    main()
