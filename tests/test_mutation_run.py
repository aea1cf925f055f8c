"""tools/mutation_run.py: what kills a mutant, by name, and what fails the comparison."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from repository import ROOT

# Sampled tests, each of another function; the second only sees its mutant at the level whole.
TESTS = """
import math, time
import effort
import numpy as np
from hypothesis import given, settings, strategies as st
from kvlib import merge_state
from kvlib.codecs.packing import pack, unpack
from kvlib.norms import layer_norm_forward, rms_norm_backward, rms_norm_forward

few = settings(max_examples=2)
numbers = given(st.integers(0, 9))
X, ONE = np.asarray([[3.0, -3.0]], np.float32), np.ones(2, np.float32)

@few
@numbers
def test_seen(n):
    assert layer_norm_forward(X, ONE, ONE)[1].inv_std[0] < 1

@few
@numbers
def test_seen_as_a_whole(n):
    codes = np.asarray([[[n, 1, 2, 3]]], np.uint8)
    right = (unpack(pack(codes, 4), 4, np.uint8) == codes).all()
    assert right or effort.LEVEL == "usual"

@few
@numbers
def test_without_an_end(n):
    lse = np.asarray([0, math.log(3)], np.float32)  # weights 1/4 and 3/4
    while merge_state(X, lse[:1], 0 * X, lse[1:])[0].max() > 2:
        time.sleep(1)

@few
@numbers
def test_that_fails_anyhow(n):
    rms_norm_backward(X, rms_norm_forward(X, ONE)[1])
    assert n == 99

def test_that_is_not_sampled():
    assert layer_norm_forward(X, ONE, ONE)[1].inv_std[0] < 1
"""
WHOLE, ENDLESS = "nibbles taken for neighbours", "merge weighs the wrong side"
SEEN, BROKEN = "the root is saved in place of its inverse", "x_hat's direction stays in"
OUTSIDE = "no causal mask"


@pytest.mark.untraced
@pytest.mark.skipif(not hasattr(os, "fork"), reason="mutants run in forked processes")
def test_mutants_are_killed_by_name_and_what_only_the_whole_run_kills_fails(tmp_path: Path) -> None:
    tests = tmp_path / "test_five.py"
    tests.write_text(TESTS, encoding="utf-8")
    only = f"^({'|'.join([WHOLE, ENDLESS, SEEN, BROKEN, OUTSIDE])})$"
    command = [sys.executable, "tools/mutation_run.py", f"--out={tmp_path}", "--seconds=2"]
    done = subprocess.run(
        [*command, f"--only={only}", str(tests)], cwd=ROOT, capture_output=True, text=True,
        # every plugin that is installed would be imported, which takes longer than the tests do
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    said = done.stdout + done.stderr
    usual, whole = (
        json.loads((tmp_path / f"{level}.json").read_text()) for level in ("usual", "whole")
    )
    killed = usual["killed"]
    assert killed.keys() == {SEEN, WHOLE, ENDLESS}, said
    assert killed[SEEN].endswith("test_five.py::test_seen") and killed[WHOLE] is None
    assert killed[ENDLESS].startswith("more than 2 s: ") and "without_an_end" in killed[ENDLESS]
    assert set(usual["outside"]) == {BROKEN, OUTSIDE}
    assert [test.partition("::")[2] for test in usual["broken"]] == ["test_that_fails_anyhow"]
    assert set(whole["outside"]) == {BROKEN, OUTSIDE} and list(whole["killed"]) == [WHOLE]
    assert "test_seen_as_a_whole" in whole["killed"][WHOLE]
    assert f"no sampled test calls it: {OUTSIDE}" in done.stdout
    assert done.returncode == 1 and f"only whole kills: {WHOLE}" in done.stdout, said
    assert "2 of 5 mutants killed at the level usual; 1 more at whole" in done.stdout
