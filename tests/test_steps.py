"""`make test` runs every step, reports each, and fails at the end."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import steps
from repository import ROOT

MAKEFILE = """\
good: ; @echo good ran
bad: ; @echo bad ran; exit 3
slow: ; @echo slow ran; exec sleep 3600
waits: ; @for i in $$(seq 600); do test -e made && echo waits ran && exit; sleep 0.1; done; exit 1
makes: ; @touch made; echo makes ran
.PHONY: good bad slow waits makes
"""


@pytest.fixture
def makefile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "Makefile").write_text(MAKEFILE)
    monkeypatch.setattr(steps, "ROOT", tmp_path)
    monkeypatch.delenv("MAKEFLAGS", raising=False)
    return tmp_path


def test_a_step_that_fails_does_not_hide_the_others(makefile, capfd) -> None:
    assert steps.main(["waits+makes+bad", "good"]) == 2  # make's own status for a failed recipe
    out = capfd.readouterr().out
    assert re.findall("^(.*) ran$", out, re.M) == ["waits", "makes", "bad", "good"]
    assert "3 of 4 steps passed" in out
    assert "bad failed: `make bad` runs this step alone" in out
    assert steps.main(["good"]) == 0


def test_every_step_of_make_test_says_what_to_do() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("TEST_STEPS")]
    assert set(line.partition("=")[2].replace("+", " ").split()) <= set(steps.REMEDIES)


def test_ctrl_c_stops(makefile: Path) -> None:
    script = (
        f"import pathlib, steps; steps.ROOT = pathlib.Path({str(makefile)!r}); "
        "raise SystemExit(steps.main(['slow', 'good']))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment, start_new_session=True,
        # a shell that runs the tests in the background has told them to ignore ctrl-C
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "slow ran\n"
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: everyone in the foreground
    try:
        out, err = process.communicate(timeout=300)  # less than the step would sleep
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode == steps.INTERRUPTED and "Stopped in slow" in err, err
    assert "good ran" not in out
