"""`python -m kvlib fit` under absurd arguments: 1 means "does not fit", and never an error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT
from test_config import LLAMA

from kvlib.commands import run
from kvlib.costs import Bytes, cli, decode, fit, gpus_needed, max_context
from kvlib.costs.cli import main

PLAN = ["fit", "--model", "llama-3.1-8b", "--gpu", "h100-sxm"]
HUGE = "1" + "0" * 400
LONG = "9" * 5000  # more digits than Python makes an integer of


def ended(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one line of a command that ends with 2."""
    with pytest.raises(SystemExit) as end:
        run(lambda: main(argv))
    out, err = capsys.readouterr()
    assert end.value.code == 2 and out == ""
    line = err.removesuffix("\n")
    assert line.isprintable() and len(line) < 1_500, line
    return line


ABSURD: dict[str, tuple[list[str], str]] = {
    "10^400 requests": ([*PLAN, "--batch", HUGE], "batch is a whole number of about 401 digits"),
    "5,000 digits of requests": ([*PLAN, "--batch", LONG], "argument --batch: got '9999"),
    "10^400 GPUs": ([*PLAN, "--gpus", HUGE], "gpus is a whole number of about 401 digits"),
    "5,000 digits of GPUs": ([*PLAN, "--gpus", LONG], "argument --gpus: got '9999"),
    "10^400 tokens": ([*PLAN, "--context", HUGE], "context is a whole number of about 401 digits"),
    "5,000 digits of tokens": ([*PLAN, "--context", LONG], "argument --context: got '9999"),
    "10^400 thousand tokens": ([*PLAN, "--context", f"{HUGE}k"], "context is a whole number"),
    "blocks of 10^400": ([*PLAN, "--block-size", HUGE], "block_size is a whole number of about"),
    "10^16 requests": ([*PLAN, "--batch", "1" + "0" * 16], "needed: at most 1,000,000,000,000,000"),
    "a model of 5,000 characters": (["fit", "--model", "x" * 5000, "--gpu", "l4"], "unknown model"),
    "a model with a NUL": (["fit", "--model", "a\0b", "--gpu", "l4"], r"unknown model 'a\x00b'"),
    "a GPU of 5,000 characters": ([*PLAN[:3], "--gpu", "x" * 5000], "unknown GPU 'xxx"),
    "a dtype of 5,000 characters": ([*PLAN, "--kv", "x" * 5000], "unknown dtype 'xxx"),
    "escape codes": ([*PLAN[:3], "--gpu", "\x1b[2J"], r"unknown GPU '\x1b[2J'"),
    "escape codes as an option": ([*PLAN, "\x1b[2J"], r"unrecognized arguments: \x1b[2J"),
    "a surrogate": (["fit", "--config", "\ud800", "--gpu", "l4"], r"\ud800: not a file name"),
    "a config of 300 characters": (["fit", "--config", "x" * 300, "--gpu", "l4"], "cannot be read"),
    "a config with a NUL": (["fit", "--config", "a\0b", "--gpu", "l4"], r"a\x00b: not a file name"),
    "no config": (["fit", "--config", "", "--gpu", "l4"], "no such file"),
    "a device": (["fit", "--config", "/dev/null", "--gpu", "l4"], "a pipe or a device"),
}


@pytest.mark.parametrize("case", ABSURD)
def test_absurd_arguments(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv, expected = ABSURD[case]
    assert expected in ended(capsys, *argv)


@pytest.mark.parametrize("key", [*LLAMA, "rope_theta", "rms_norm_eps"])
def test_absurd_numbers_in_a_config(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    for text in (HUGE, LONG, "1e999", "NaN", "-" + HUGE):
        path.write_text(json.dumps({**LLAMA, key: "HERE"}).replace('"HERE"', text))
        line = ended(capsys, "fit", "--config", str(path), "--gpu", "l4")
        assert f"{path}: {key} is " in line


@pytest.mark.parametrize(
    "error",
    [OverflowError("too large"), KeyError("x"), OSError(36, "File name too long"), MemoryError()],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_nobody_foresaw_ends_with_2_in_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*arguments: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(cli, "fit", broken)
    line = ended(capsys, *PLAN)
    assert line.startswith("python -m kvlib fit: ") and type(error).__name__ in line


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_ends_with_2(unbuffered: str) -> None:
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kvlib", *PLAN], cwd=ROOT, env=env, stdout=full,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "No space left on device" in done.stderr


def test_the_largest_arguments_are_computed_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    most = str(10**15)
    assert run(lambda: main([*PLAN, "--batch", most])) == 1
    assert run(lambda: main([*PLAN, "--block-size", most])) == 1
    assert run(lambda: main([*PLAN, "--batch", most, "--block-size", most, "--json"])) == 1
    capsys.readouterr()
    assert "gpus is 1000000000000000, needed" in ended(capsys, *PLAN, "--gpus", most)


def test_the_name_of_a_folder_is_printed_without_escape_codes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "\x1b[2J\n"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    assert main(["fit", "--config", str(folder), "--gpu", "l4"]) == 0
    out = capsys.readouterr().out
    assert out.replace("\n", "").isprintable() and out.startswith(r"\x1b[2J\n (bfloat16) on L4")


def test_the_same_limits_in_python() -> None:
    huge = 10**400
    for call in (
        lambda: fit("llama-3.1-8b", "l4", huge, 64), lambda: fit("llama-3.1-8b", "l4", 1, huge),
        lambda: fit("llama-3.1-8b", "l4", 1, 64, gpus=huge),
        lambda: fit("llama-3.1-8b", "l4", 1, 64, block_size=huge),
        lambda: decode("llama-3.1-8b", huge, 64), lambda: max_context("llama-3.1-8b", "l4", huge),
        lambda: gpus_needed("llama-3.1-8b", "l4", huge, 64),
    ):
        with pytest.raises(ValueError, match="is a whole number of about 401 digits, needed: at m"):
            call()
    with pytest.raises(ValueError, match="Bytes needs a finite number"):
        Bytes(huge)
