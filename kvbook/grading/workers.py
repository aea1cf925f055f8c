"""The checking process as the grader sees it: a job goes in, and events come out."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import kvlib
from kvbook.grading.hand import ENVIRONMENT
from kvbook.grading.walls import end_all

LONGEST = 1_000_000  # characters of one event
ENDING = 5.0  # seconds that the process has to end by itself once it has said its last


class Worker:
    """`python -m kvbook.grading.checking`, ended at the end of `with`."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        self._job, self.ending = job, False

    def __enter__(self) -> Worker:
        self._folder = tempfile.TemporaryDirectory(prefix="grade-", ignore_cleanup_errors=True)
        root = str(Path(kvlib.__file__).resolve().parent.parent)
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kvbook.grading.checking"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(paths)},
            cwd=self._folder.name,
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
            json.dump({**self._job, "folder": os.path.realpath(self._folder.name)}, pipe)
        return self

    def _listen(self) -> None:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline(LONGEST):
            self.lines.put(line)
        self.lines.put(None)

    def __exit__(self, *error: Any) -> None:
        """End it, and with it whatever it has started."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING if self.ending else 0)
        end_all(self._process.pid)
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()


class Events:
    """The events of one worker."""

    def __init__(self, worker: Worker) -> None:
        self._lines = worker.lines
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
            if isinstance(event, dict) and "kind" in event:
                return event
        self.late = True
        return None
