"""A worker process as the grader sees it: a job goes in, events come out, and it can be ended."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import kvlib

LONGEST = 1_000_000  # characters of one event
ENVIRONMENT = {
    "MPLBACKEND": "Agg",
    "KVLIB_BACKEND": "numpy",
    "KVLIB_PROGRESS": "off",
    # one thread each: forking is safe, and the address space is not spent on stacks
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


class Worker:
    """`python -m kvlib.exercises.grading.worker` in an empty folder, ended at the end of `with`."""

    def __init__(self, job: str) -> None:
        self._job = job

    def __enter__(self) -> Worker:
        self._folder = tempfile.TemporaryDirectory(prefix="grade-", ignore_cleanup_errors=True)
        root = str(Path(kvlib.__file__).resolve().parent.parent)
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kvlib.exercises.grading.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self._folder.name,
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(paths)},
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        assert self._process.stdin is not None
        # where it died before it read its job, the events will say so
        with suppress(BrokenPipeError), self._process.stdin as pipe:
            pipe.write(self._job)
        return self

    def _listen(self) -> None:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline(LONGEST):
            self.lines.put(line)
        self.lines.put(None)

    def __exit__(self, *error: Any) -> None:
        """End it, and with it whatever it has started."""
        if hasattr(os, "killpg"):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()


class Events:
    """The events of one worker, and nothing else that may stand in its output."""

    def __init__(self, worker: Worker, token: str) -> None:
        self._lines, self._token = worker.lines, token
        self.late = False

    def next(self, until: float) -> dict[str, Any] | None:
        """The next event; None where the worker is gone, or (then `late`) silent until then.

        until: a time of time.monotonic(). Lines that are no event do not put it off.
        """
        while (left := until - time.monotonic()) > 0:
            try:
                line = self._lines.get(timeout=left)
            except queue.Empty:
                break
            if line is None:
                return None
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict) and event.pop("token", "") == self._token:
                return event
        self.late = True
        return None
