"""What is kept of a reader's work: their own answers, in a file that is theirs."""

import errno
import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvbook.__main__ import main
from kvbook.exercises import progress as module
from kvbook.exercises.intro import check_times_computed
from kvbook.exercises.naive import check_token_passes
from kvbook.exercises.paged import check_append
from kvbook.exercises.progress import export, path, progress
from kvbook.exercises.report import checker

LABEL = "intro-times-computed"
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "a folder" / "progress.json"
    monkeypatch.setenv("KVLIB_PROGRESS", str(file))
    return file


def times_computed(position: int, steps: int) -> int:
    return max(0, steps - position)


def wrong(position: int, steps: int) -> int:
    return steps


wrong.__name__ = "times_computed"


def test_tries_and_the_first_pass_are_kept(kept: Path) -> None:
    check_times_computed(wrong)
    assert progress().entries == {LABEL: {"tries": 1}} and progress().done == ()
    before = date.today().isoformat()
    check_times_computed(times_computed)
    today = progress().entries[LABEL]["passed"]
    assert before <= today <= date.today().isoformat(), "midnight may have passed between"
    assert progress().entries == {LABEL: {"tries": 2, "passed": today}}
    check_times_computed(wrong)
    assert progress().entries[LABEL] == {"tries": 3, "passed": today}, "passed once is passed"
    assert [e.label for e in progress().done] == [LABEL]
    assert json.loads(kept.read_text())["version"] == 1
    assert [p.name for p in kept.parent.iterdir()] == ["progress.json"]


def test_stubs_and_the_pages_solutions_are_not_the_readers_work(kept: Path) -> None:
    def solution_times_computed(position: int, steps: int) -> int:
        return times_computed(position, steps)

    def stub(position: int, steps: int) -> None: ...

    stub.__name__ = "times_computed"
    check_times_computed(solution_times_computed)
    check_times_computed(stub)
    assert not kept.exists() and progress().entries == {}


def test_every_module_of_a_chapter_counts_for_it(kept: Path) -> None:
    def append(*args: Any) -> int:
        return 0

    def token_passes(prompt: int, new: int) -> int:
        return 0

    check_append(append)
    check_token_passes(token_passes)
    assert progress().entries.keys() == {"paged-append", "naive-token-passes"}

    @checker
    def check_other(other: Any) -> Any:
        yield f"somebody's own exercise: {other(1)}"

    assert check_other(lambda x: x)
    assert len(progress().entries) == 2


def test_the_table(kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_times_computed(times_computed)
    text = repr(progress())
    assert "done: 1 of " in text and "exercises, 1 of " in text
    (row,) = [line for line in text.splitlines() if "Once, or how many times?" in line]
    assert row.split()[-4:] == ["1", "5", "1", date.today().isoformat()]
    assert max(map(len, text.splitlines())) <= 88
    assert main(["progress", "--export", str(tmp_path / "mine.json")]) == 0
    assert "Once, or how many times?" in capsys.readouterr().out
    assert json.loads((tmp_path / "mine.json").read_text())["exercises"].keys() == {LABEL}
    with pytest.raises(FileExistsError):
        export(tmp_path / "mine.json")


@pytest.mark.parametrize("text", ["{", "[]", '{"exercises": 3}', '{"exercises": {"a": 1}}'])
def test_a_broken_file_is_put_aside(kept: Path, text: str) -> None:
    kept.parent.mkdir()
    kept.write_text(text)
    assert progress().entries == {}
    assert kept.with_suffix(".broken").read_text() == text
    check_times_computed(times_computed)
    assert progress().done


def test_a_disk_that_cannot_be_written_stops_no_check(kept: Path) -> None:
    kept.parent.write_text("a file where the folder should be")
    assert check_times_computed(times_computed).passed
    assert progress().entries == {}


def test_a_user_without_a_home_is_stopped_by_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:  # what Path.home does where neither HOME nor the user has an entry
        raise RuntimeError("Could not determine home directory.")

    for name in ("KVLIB_PROGRESS", "XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "_kept", lambda: True)
    monkeypatch.setattr(Path, "home", no_home)
    for platform in ("linux", "darwin", "win32"):
        monkeypatch.setattr(sys, "platform", platform)
        assert path() is None and progress().entries == {}
        assert check_times_computed(times_computed).passed


def test_a_folder_that_cannot_be_looked_into_stops_no_check(kept, monkeypatch) -> None:
    def refused(*_: object, **__: object) -> object:  # root may look everywhere, so it is told no
        raise PermissionError(errno.EACCES, "Permission denied", str(kept))

    monkeypatch.setattr(Path, "stat", refused)
    monkeypatch.setattr(Path, "open", refused)
    assert progress().entries == {}
    assert check_times_computed(times_computed).passed


def test_where_it_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KVLIB_PROGRESS", "XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for platform, folder in (
        ("linux", ".local/share"), ("darwin", "Library/Application Support"),
        ("win32", "AppData/Local"),
    ):
        monkeypatch.setattr(sys, "platform", platform)
        assert path() == tmp_path / folder / "kvlib" / "progress.json"
        assert not str(path()).startswith(str(REPOSITORY))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert path() == tmp_path / "data" / "kvlib" / "progress.json"
    monkeypatch.setenv("KVLIB_PROGRESS", "off")
    assert path() is None and progress().entries == {}
    check_times_computed(times_computed)
    assert list(tmp_path.iterdir()) == []


def test_only_notebooks_keep_it_unasked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KVLIB_PROGRESS", raising=False)
    monkeypatch.setattr(module, "path", lambda: tmp_path / "progress.json")
    for shell, kept in (
        (None, False), (SimpleNamespace(), False), (SimpleNamespace(kernel=1), True),
    ):
        ipython = SimpleNamespace(get_ipython=lambda shell=shell: shell)
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        check_times_computed(times_computed)
        assert (tmp_path / "progress.json").exists() == kept


def test_a_plain_script_keeps_nothing(tmp_path: Path) -> None:
    code = (
        "from kvbook.exercises.intro import check_times_computed as check\n"
        "def times_computed(p, s): return max(0, s - p)\n"
        "assert check(times_computed)"
    )
    environment = {k: v for k, v in os.environ.items() if k != "KVLIB_PROGRESS"}
    environment |= {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, cwd=REPOSITORY)
    assert list(tmp_path.iterdir()) == []
