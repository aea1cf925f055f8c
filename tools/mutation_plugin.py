"""A pytest plugin for tools/mutation_run.py: each mutant in a process forked after collection."""

from __future__ import annotations

import functools
import gc
import json
import os
import select
import signal
import sys
import tempfile
import threading
from collections import defaultdict
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from mutants_drawn import Case
from tqdm import tqdm

# Tests that put mutants in themselves; with one in place already they fail whatever it is.
OF_MUTANTS = {"test_every_mutant_is_killed", "test_a_broken_kernel_is_seen"}


def sampled(item: Any) -> bool:
    """Whether KVLIB_TESTS changes what this test runs."""
    return (
        "effort" in item.fixturenames
        or item.get_closest_marker("pairwise") is not None
        or item.get_closest_marker("every") is not None
        or hasattr(item.obj, "hypothesis")
    )


class Runner:
    """A pytest plugin: instead of running the tests once, runs them for each mutant."""

    def __init__(self, cases: list[Case], seconds: float, every: bool, out: Path) -> None:
        self.cases, self.seconds, self.every, self.out = cases, seconds, every, out
        self.killed: dict[str, str | None] = {}
        self.outside: list[str] = []  # mutants whose function no test of these calls
        self.broken: list[str] = []  # tests that fail without a mutant
        self._failed: list[str] = []  # in the child
        self._pipe = -1

    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings

        # conftest.py has loaded its profile. An example that fails need not be made small.
        settings.register_profile(
            "mutants", settings.default, phases=(Phase.explicit, Phase.generate)
        )
        settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self._failed.append(report.nodeid)
            self._tell("fail", report.nodeid)

    def pytest_runtestloop(self, session: Any) -> bool:
        items = [
            item
            for item in session.items
            if (self.every or sampled(item)) and item.originalname not in OF_MUTANTS
        ]
        turn: dict[str, int] = defaultdict(int)  # the first case of each test, then the second ...
        order = {}
        for item in items:
            name = item.nodeid.partition("[")[0]
            order[item.nodeid], turn[name] = turn[name], turn[name] + 1
        items.sort(key=lambda item: order[item.nodeid])
        print(f"{len(items)} tests, {len(self.cases)} mutants", file=sys.stderr)
        with tempfile.NamedTemporaryFile() as file:
            self.broken, ended = self._fork(None, items, file.name)
            if ended != "done":
                raise RuntimeError(f"without a mutant the tests ended with: {ended}")
            calls = json.loads(Path(file.name).read_text(encoding="utf-8"))
        mine = {
            case.name: [i for i in items if case.name in calls[i.nodeid]] for case in self.cases
        }
        self.cases.sort(key=lambda case: len(mine[case.name]))
        for case in tqdm(self.cases, unit="mutant", dynamic_ncols=True):
            healthy = [i for i in mine[case.name] if i.nodeid not in self.broken]
            if healthy:
                failed, ended = self._fork(case, healthy, "")
                if ended.startswith("error"):
                    raise RuntimeError(f"{case.name} could not be run: {ended}")
                self.killed[case.name] = failed[0] if failed else None if ended == "done" else ended
            else:
                self.outside.append(case.name)
            self._save()
        return True

    def _save(self) -> None:
        """After each mutant, so that a run that is stopped leaves what it has found."""
        found = {"broken": self.broken, "outside": self.outside, "killed": self.killed}
        self.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

    def _fork(self, case: Case | None, items: list[Any], calls: str) -> tuple[list[str], str]:
        """Run the tests in a separate process: what failed, and "done" or how it ended."""
        there, here = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(there)
            self._pipe = here
            self._child(case, items, calls)
        os.close(here)
        failed, last, text = [], "nothing", ""
        ended = ""
        while not ended:
            if not select.select([there], [], [], self.seconds)[0]:
                ended = f"more than {self.seconds:g} s: {last}"
            elif not (part := os.read(there, 1 << 16).decode()):
                ended = f"the process ended: {last}"
            *lines, text = (text + part).split("\n") if not ended else [text]
            for line in lines:
                kind, _, what = line.partition(" ")
                last = what if kind == "start" else last
                failed += [what] if kind == "fail" else []
                ended = line if kind in ("done", "error") else ended
        os.close(there)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # and what it has started
        os.waitpid(child, 0)
        return failed, ended

    def _tell(self, kind: str, what: str = "") -> None:
        os.write(self._pipe, f"{kind} {what}".strip().replace("\n", " ").encode() + b"\n")

    def _child(self, case: Case | None, items: list[Any], calls: str) -> NoReturn:
        os.setsid()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        try:
            with ExitStack() as stack:
                watch = None
                if case is None:
                    watch = Calls(self.cases)
                else:
                    stack.enter_context(case.applied())
                for item, following in zip(items, [*items[1:], None], strict=True):
                    self._tell("start", item.nodeid)
                    if watch:
                        watch.begin(item.nodeid)
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                    if case is not None and self._failed:
                        break
                if watch:
                    watch.end()
                    Path(calls).write_text(json.dumps(watch.found), encoding="utf-8")
            self._tell("done")
        except BaseException as error:
            self._tell("error", repr(error))
        finally:
            os._exit(0)


class Calls:
    """Which tests call which mutants' functions."""

    def __init__(self, cases: list[Case]) -> None:
        self.found: dict[str, list[str]] = {}
        self._cases: dict[Any, list[Case]] = defaultdict(list)
        for case in cases:
            self._cases[case.code].append(case)
        gc.unfreeze()
        kind = functools._lru_cache_wrapper
        self._caches = [x for x in gc.get_objects() if isinstance(x, kind)]

    def begin(self, test: str) -> None:
        """From here on it is this test that calls; what earlier ones left in caches is dropped."""
        self.end()
        for cached in self._caches:
            cached.cache_clear()
        found: dict[str, None] = {}
        self.found[test] = found  # type: ignore[assignment]
        seen: set[Any] = set()

        def called(frame: FrameType, event: str, _: Any) -> None:
            code = frame.f_code
            if event != "call" or code not in self._cases:
                return
            launch = frame.f_locals.get("launch")  # of kernels.processor.run
            unit = launch.kernel.unit if launch is not None else None
            if (code, unit) not in seen:
                seen.add((code, unit))
                found.update(
                    dict.fromkeys(c.name for c in self._cases[code] if c.unit in (None, unit))
                )

        threading.setprofile(called)
        sys.setprofile(called)

    def end(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
