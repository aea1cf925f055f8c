"""Start the process that runs a notebook's code, with as little around it as it needs."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kvbook.grading.answer import Remote
from kvbook.grading.channel import Channel, Gone, Late
from kvbook.grading.limits import Limits
from kvbook.grading.sandbox import INSIDE, PACKAGE, walled
from kvbook.grading.walls import end_all

MODULE = "kvbook.grading.answering"
# one thread each: forking is safe, and the address space is not spent on stacks
ENVIRONMENT = {
    "MPLBACKEND": "Agg",
    "KVLIB_BACKEND": "numpy",
    "KVLIB_PROGRESS": "off",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "LANG": "C.UTF-8",
}
KEPT = ("PATH", "LD_LIBRARY_PATH", "CXX", "SYSTEMROOT")
CLOSING = 2.0  # seconds that the process has to end a child


class Hand:
    """The process with a notebook's code, in an empty folder; ended at the end of `with`."""

    def __init__(self, job: dict[str, Any], folder: str, limits: Limits, *, sandbox: bool) -> None:
        self._job, self._folder, self._sandbox = job, folder, sandbox
        self.seconds, self.forks = limits.seconds, bool(job["fork"])

    def __enter__(self) -> Hand:
        work, paths, command = self._folder, _paths(), [sys.executable, "-m", MODULE]
        if self._sandbox:
            command = [*walled(work, paths), *command]
            root = INSIDE
        else:
            root = os.path.join(work, "package")
            shutil.copytree(PACKAGE, os.path.join(root, "kvlib"))
        environment = {key: os.environ[key] for key in KEPT if key in os.environ} | ENVIRONMENT
        environment |= {"HOME": work, "PYTHONPATH": os.pathsep.join([root, *paths])}
        environment["TMPDIR"] = work
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        here = there = None
        if os.name == "nt":
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        else:
            here, there = socket.socketpair()
            command, pipes["pass_fds"] = [*command, str(there.fileno())], [there.fileno()]
        self._process = subprocess.Popen(
            command, stderr=subprocess.DEVNULL, cwd=work, env=environment,
            start_new_session=True, **pipes,
        )  # fmt: skip
        if here is None or there is None:
            assert self._process.stdin is not None and self._process.stdout is not None
            self.channel = Channel(self._process.stdout.fileno(), self._process.stdin.fileno())
        else:
            there.close()
            here.setblocking(False)  # or a process that does not listen could hold up a deadline
            self._socket = here.detach()
            self.channel = Channel(self._socket, self._socket)
        with suppress(Gone):  # where it died before it read its job, the events will say so
            self.channel.send(self._job)
        return self

    def __exit__(self, *error: Any) -> None:
        """End it, and with it whatever it has started."""
        end_all(os.getpid())
        self._process.kill()
        self._process.wait()

    @contextmanager
    def check(self) -> Iterator[Remote]:
        """An answer's process for one check, which may take the time that the limits allow."""
        until = time.monotonic() + self.seconds
        if not self.forks:
            self.channel.until = until
            self.channel.send({"op": "open"})
            yield Remote(self.channel)
            return
        self.channel.until = until + CLOSING
        here, there = socket.socketpair()
        here.setblocking(False)
        with here, there:
            self.channel.send({"op": "open"})
            sending = socket.socket(fileno=os.dup(self.channel.writing))
            with sending:
                try:
                    socket.send_fds(sending, [b"."], [there.fileno()])
                except OSError:
                    raise Gone("nobody listens") from None
            there.close()
            own = Channel(here.fileno(), here.fileno())
            own.until = until
            try:
                yield Remote(own)
            finally:
                self.channel.until = time.monotonic() + CLOSING
                self._close()

    def _close(self) -> None:
        """Have the child ended; Broken where the process does not even do that."""
        try:
            self.channel.send({"op": "close"})
            head, _ = self.channel.receive()
        except (Late, Gone):
            raise Broken from None
        if head.get("event") != "closed":
            raise Broken


class Broken(BaseException):
    """The process with the notebook's code is of no more use: another has to be started."""


def _paths() -> list[str]:
    """Where the grader's own Python finds modules, apart from the folder that kvlib lies in."""
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return [p for p in map(os.path.abspath, given) if Path(p).resolve() != PACKAGE.parent]
