"""Notebooks that crash, loop, flood, fill memory, end their process or lie about their answers."""

from __future__ import annotations

import json
import re
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from effort import Effort
from in_memory import temporary_files_in_memory as temporary_files_in_memory

from kvbook.grading import Grade, Limits, grade, grade_folder, grader
from kvbook.grading.workers import Events, Worker

SECONDS = 1.5  # some of these answers use up all they get
pytestmark = pytest.mark.usefixtures("temporary_files_in_memory")
LIMITS = Limits(seconds=SECONDS, memory=1500, output=100, total=120)
TOO_LONG = f"took more than {SECONDS:g} seconds"
RIGHT = {
    "slot_mapping": """\
def slot_mapping(block_table, qo_indptr, positions, block_size):
    owner = np.repeat(np.arange(len(block_table)), np.diff(qo_indptr))
    return block_table[owner, positions // block_size] * block_size + positions % block_size""",
    "FreeList": """\
class FreeList:
    def __init__(self, num_blocks):
        self.blocks = list(range(num_blocks))

    def allocate(self, count):
        if count > len(self.blocks):
            raise kvlib.OutOfBlocks("too few")
        taken, self.blocks = self.blocks[:count], self.blocks[count:]
        return taken

    def free(self, blocks):
        if set(blocks) & set(self.blocks) or len(set(blocks)) < len(blocks):
            raise ValueError("freed twice")
        self.blocks.extend(blocks)""",
}
TRICKS = {
    "the checker is defined again": "check_slot_mapping = lambda answer: 'slot_mapping: passed'",
    "it looks like a pass": "print('slot_mapping: passed')\nprint('100 %')",
    "the chapter's checker is replaced": (
        "import kvbook.exercises.paged as paged\npaged.check_slot_mapping = lambda answer: True"
    ),
    "every report passes": (
        "import kvbook.exercises.report as report\n"
        "report.Report = type('Report', (), {'status': 'passed', 'passed': True})\n"
        "report.guarded = lambda *a, **k: a[0]"
    ),
    "a report's class is changed": (
        "import kvbook.exercises.report as report\n"
        "setattr(report.Report, '__init__', lambda *a, **k: None)\n"
        "setattr(report.Report, 'status', 'passed')"
    ),
    "NumPy finds all things close": (
        "np.isclose = lambda a, *b, **k: np.ones(np.shape(a), bool)\n"
        "np.allclose = np.array_equal = lambda *a, **k: True"
    ),
    "the module is another": (
        "import sys, types\n"
        "sys.modules['kvbook.exercises.paged'] = types.SimpleNamespace(\n"
        "    check_slot_mapping=lambda answer: types.SimpleNamespace(\n"
        "        status='passed', finding='', proved=('all',)))"
    ),
    "a checker's code is another": (
        "import kvbook.exercises.expect as e\n"
        "e.expect_close.__code__ = (lambda got, expected, what, *, axes=(), rtol=0, atol=0, "
        "why='': None).__code__\n"
        "e.diagnose.__code__ = (lambda got, suspects, *, rtol=0, atol=0: None).__code__"
    ),
    "Python's own functions are others": "import builtins\nbuiltins.len = lambda thing: 0",
}
SLEEPS = "import time\nwhile True: time.sleep(0.01)"  # as endless as a loop that takes a processor
BODIES = {
    "it loops": ("while True: pass", TOO_LONG),
    "it swallows every exception": (
        "import time\n    while True:\n        try: time.sleep(1)\n"
        "        except BaseException: pass",
        TOO_LONG,
    ),
    "it fills the memory": (
        "all = []\n    while True: all.append(np.empty(10**8))",
        "raised MemoryError",
    ),
    "it kills its process": (
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "ended the process",
    ),
    "it leaves": ("import os; os._exit(0)", "ended the process"),
    "it exits": ("exit()", "raised SystemExit"),
    "it overflows the stack": (
        "return slot_mapping(*a)",
        "raised RecursionError",
    ),
    "it asks": ("return input()", "raised EOFError"),
    "it floods": ("print('x' * 10**7); return 1", "got int (1), needed a NumPy array"),
    "it patches the checker that called it": (
        "import kvbook.exercises.paged as p; p.expect_shape = lambda *a, **k: None\n"
        "    np.isclose = lambda a, *b, **k: np.ones(np.shape(a), bool)\n"
        "    return np.zeros(8, int)",
        "",
    ),
    "it answers on every file it finds": (
        "import os, json\n"
        "    for fd in range(3, 30):\n"
        "        try: os.write(fd, json.dumps({'kind': 'checked', 'label': 'paged-slot-mapping', "
        "'draw': 0, 'status': 'passed', 'finding': '', 'proved': []}).encode() + b'\\n')\n"
        "        except OSError: pass\n"
        "    return 1",
        "",
    ),
    "it writes a whole answer and leaves": (
        "import os, json\n"
        "    for fd in range(3, 30):\n"
        "        try: os.write(fd, json.dumps({'status': 'passed', 'finding': '', "
        "'proved': ['all']}).encode())\n"
        "        except OSError: pass\n"
        "    os._exit(0)",
        "ended the process",
    ),
    "it rewrites the code of the checker's helper": (
        "import kvbook.exercises.expect as e\n"
        "    e.expect_close.__code__ = (lambda got, expected, what, *, axes=(), rtol=0, atol=0, "
        "why='': None).__code__\n"
        "    return np.zeros(8, int)",
        "",
    ),
    "it widens the checker's tolerance": (
        "import kvbook.exercises.expect as e\n"
        "    e.expect_close.__kwdefaults__.update(atol=1e9)\n"
        "    return np.zeros(8, int)",
        "",
    ),
    "it hands over a thing that is equal to all": (
        "class Any(np.ndarray):\n"
        "        __eq__ = __ne__ = lambda self, other: True\n"
        "        shape = property(lambda self: (8,))\n"
        "    return np.zeros(8, int).view(Any)",
        "",
    ),
}
CELLS = {
    "a loop": ("while True: pass", TOO_LONG),
    "a crash": ("1 / 0", "ZeroDivisionError: division by zero"),
    "no Python": ("def (:", "SyntaxError"),
    "an exit": ("exit()", "SystemExit"),
    "a killed kernel": ("import os; os.kill(os.getpid(), 9)", "ended the process"),
    "all memory": ("x = [np.empty(10**8) for _ in range(10**6)]", "more than 1,500 MB"),
    "a flood": ("print('y' * 3_000_000)", "printed 3,000,001 characters"),
    "closed files": ("import os\nfor fd in range(3): os.close(fd)", ""),
    "a program left running": (
        "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'input()'])",
        "",
    ),
}


def notebook(path: Path, *sources: str) -> Path:
    code = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    cells = [{**code, "source": s} for s in ("import numpy as np\nimport kvlib", *sources)]
    metadata = {"kvlib": {"chapter": "paged"}}
    path.write_text(
        json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 4})
    )
    return path


def scores(result: Grade) -> dict[str, str]:
    return {v.label.removeprefix("paged-"): v.status for v in result.verdicts}


@pytest.mark.every(3)
@pytest.mark.parametrize("trick", TRICKS)
def test_tricks_win_nothing(trick: str, tmp_path: Path) -> None:
    """With the trick as a cell that runs, and as part of what the answer needs."""
    wrong = f"def slot_mapping(*a):\n    return {TRICKS[trick].splitlines()[0]!r}"
    inside = "def cheat():\n" + "\n".join(
        f"    {line}" for line in TRICKS[trick].splitlines() + ["return np.zeros(8, int)"]
    )
    sources = (TRICKS[trick], wrong, RIGHT["FreeList"])
    path = notebook(tmp_path / "in.ipynb", *sources)
    result = grade(path, limits=LIMITS, all_cells=True)
    assert scores(result)["slot-mapping"] == "not yet", str(result)
    assert scores(result)["free-list"] == "passed", str(result)
    called = f"{inside}\nslots = cheat()\ndef slot_mapping(*a):\n    return slots"
    result = grade(notebook(path, called, RIGHT["FreeList"]), limits=LIMITS)
    assert scores(result)["slot-mapping"] == "not yet", str(result)
    assert scores(result)["free-list"] == "passed", str(result)


@pytest.mark.every(3)
@pytest.mark.parametrize("case", BODIES)
def test_an_answer_that_misbehaves_loses_its_own_points(case: str, tmp_path: Path) -> None:
    body, words = BODIES[case]
    answer = f"def slot_mapping(*a):\n    {body}"
    result = grade(notebook(tmp_path / "in.ipynb", answer, RIGHT["FreeList"]), limits=LIMITS)
    assert scores(result)["slot-mapping"] in ("not yet", "stopped"), str(result)
    assert words in result.verdicts[0].finding, str(result)
    assert scores(result)["free-list"] == "passed", str(result)
    assert len(str(result)) < 5000 and len(json.dumps(result.asdict())) < 20_000


@pytest.mark.every(2)
@pytest.mark.parametrize("case", CELLS)
def test_a_cell_that_misbehaves_does_not_end_the_run(case: str, tmp_path: Path) -> None:
    """Whether everything is run, or the cell is something that an answer needs."""
    source, words = CELLS[case]
    path = notebook(tmp_path / "in.ipynb", source, *RIGHT.values())
    result = grade(path, limits=LIMITS, all_cells=True)
    assert scores(result)["slot-mapping"] == scores(result)["free-list"] == "passed", str(result)
    assert scores(result)["decode"] == "missing"
    remarks = [c["remark"] for c in result.cells]
    assert (words in remarks[0] and result.cells[0]["cell"] == 1) if words else not remarks
    assert grade(path, limits=LIMITS).points == result.points


def test_an_answer_that_failed_is_not_asked_about_other_draws(tmp_path: Path) -> None:
    """Each would cost the time limit again where it loops."""
    sources = ["import numpy as np", "def slot_mapping(*a):\n    return 1"]
    job = {
        "chapter": "paged",
        "sources": sources,
        "limits": asdict(LIMITS),
        "all_cells": False,
        "fork": True,
        "labels": ["paged-slot-mapping"],
        "draws": {"paged-slot-mapping": [0, 1, 2]},
        "skip": [],
        "sandbox": False,
    }
    with Worker(job) as worker:
        events, kinds = Events(worker), list[str]()
        while not kinds or kinds[-1] != "end":
            event = events.next(time.monotonic() + 60)
            assert event is not None
            kinds.append(event["kind"])
    assert kinds.count("checking") == 1


def test_an_answer_that_is_no_python_is_found_by_its_cell(tmp_path: Path) -> None:
    broken = RIGHT["FreeList"].replace("self, num_blocks)", "self, num_blocks")
    result = grade(notebook(tmp_path / "in.ipynb", RIGHT["slot_mapping"], broken), limits=LIMITS)
    name = "code cell 3 from the top, which begins `class FreeList:`"
    found = next(v for v in result.verdicts if v.label == "paged-free-list").finding
    assert f"does not define FreeList: {name}, has SyntaxError: '(' was never closed" in found
    assert "(line 2 of the cell)" in found
    assert result.cells[0]["name"] == name and f"  {name}: SyntaxError" in str(result)


def test_without_forks_an_answer_that_misbehaves_loses_its_own_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, effort: Effort
) -> None:
    monkeypatch.setitem(grader.GRACE, "checking", 1.0)  # on top of the limit; usually more
    cases = ("it loops", "it leaves", "it swallows every exception", "it fills the memory",
             "it exits")  # fmt: skip
    for case in effort.share("answers that misbehave without forks", cases, usual=2):
        answer = f"def slot_mapping(*a):\n    {BODIES[case][0]}"
        path = notebook(tmp_path / "in.ipynb", answer, RIGHT["FreeList"])
        result = grade(path, limits=LIMITS, fork=False)
        assert scores(result)["slot-mapping"] in ("not yet", "stopped"), str(result)
        assert scores(result)["free-list"] == "passed", str(result)


def test_a_notebook_that_takes_all_the_time_is_graded_as_far_as_it_came(tmp_path: Path) -> None:
    loops = [SLEEPS] * 40
    path = notebook(tmp_path / "in.ipynb", *loops, *RIGHT.values())
    result = grade(path, limits=Limits(seconds=0.2, total=2), all_cells=True)
    assert result.points == 0 and set(scores(result).values()) == {"not graded"}
    assert grade(path, limits=LIMITS).points == 3, "what nobody needs is not run"


@pytest.mark.parametrize(
    "name, value, words",
    [
        ("seconds", float("inf"), "seconds (--timeout) must be 0.1 to 86,400 seconds, got inf"),
        ("seconds", float("nan"), "seconds (--timeout) must be 0.1 to 86,400 seconds, got nan"),
        ("seconds", 1e300, "seconds (--timeout) must be 0.1 to 86,400 seconds, got a huge number"),
        ("seconds", 0, "seconds (--timeout) must be 0.1 to 86,400 seconds, got 0"),
        ("total", -1, "total (--total) must be 0.1 to 604,800 seconds, got -1"),
        ("memory", 100, "memory (--memory) must be 512 to 1,048,576 MB, got 100"),
        ("memory", 10**400, "memory (--memory) must be 512 to 1,048,576 MB, got a huge number"),
        ("output", -1, "output must be 1 to 1,000,000 characters, got -1"),
    ],
)
def test_limits_outside_their_range_are_refused(name: str, value: float, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        Limits(**{name: value})  # type: ignore[arg-type]


def test_limits_are_numbers() -> None:
    for name, value in (("seconds", "20"), ("memory", 4096.0), ("memory", True)):
        with pytest.raises(TypeError, match=f"{name} .* must be a .*number, got"):
            Limits(**{name: value})  # type: ignore[arg-type]


def test_the_least_memory_is_enough_for_a_right_answer(tmp_path: Path) -> None:
    path = notebook(tmp_path / "in.ipynb", *RIGHT.values())
    assert grade(path, limits=Limits(memory=512)).points == 3


def test_a_notebook_that_changes_the_graders_own_files_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can only where it runs without a sandbox, and then no later grade means anything."""
    monkeypatch.setattr("kvbook.grading.grader.PACKAGE", tmp_path / "kvlib")
    (tmp_path / "kvlib").mkdir()
    change = f"open({str(tmp_path / 'kvlib' / 'checker.py')!r}, 'w').write('passed')"
    (tmp_path / "in").mkdir()
    path = notebook(tmp_path / "in" / "ann.ipynb", f"{change}\ndef slot_mapping(*a): return 1")
    words = "kvlib itself was changed while ann.ipynb was graded"
    with pytest.raises(OSError, match=words):
        grade(path, limits=LIMITS, all_cells=True, sandbox="off")
    (tmp_path / "kvlib" / "checker.py").unlink()
    with pytest.raises(OSError, match=words):
        grade_folder(tmp_path / "in", limits=LIMITS, all_cells=True, sandbox="off")


def test_files_that_are_no_notebooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "in.ipynb"
    path.write_text("[" * 100_000)
    with pytest.raises(ValueError, match="is no notebook"):
        grade(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="is no notebook"):
        grade(path)
    monkeypatch.setattr("kvbook.grading.notebook.LARGEST", 10)
    notebook(path)
    with pytest.raises(ValueError, match="needed at most 10"):
        grade(path)
