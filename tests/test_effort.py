"""Sampling keeps what it promises: every pair of parameters, and a record of what ran."""

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import effort
import pytest

TESTS = Path(__file__).parent


def test_every_pair_is_covered_by_fewer_cases():
    values = {"a": "xyz", "b": (1, 2, 3, 4), "c": (None, 0.5)}
    cases = [dict(zip(values, case)) for case in itertools.product(*values.values())]
    kept = [cases[i] for i in effort.pairwise(cases)]
    assert len(kept) == 12 < len(cases)  # no fewer: there are 3 · 4 pairs of a and b
    for one, other in itertools.combinations(values, 2):
        pairs = {(case[one], case[other]) for case in kept}
        assert pairs == set(itertools.product(values[one], values[other]))
    assert effort.pairwise([]) == []


def test_a_share_is_a_beginning_and_is_recorded(monkeypatch):
    noted = []
    some = effort.Effort(lambda name, text: noted.append(text))
    for level, share in (("quick", [0]), ("usual", [0, 1, 2]), ("whole", list(range(100)))):
        monkeypatch.setattr(effort, "LEVEL", level)
        assert list(some.share("things", range(100), usual=3)) == share
    assert noted == ["things: 1 of 100", "things: 3 of 100", "things: 100 of 100"]


@pytest.mark.untraced
def test_an_untraced_test_meets_no_tracer():
    assert "coverage" not in type(sys.gettrace()).__module__


RAN = []


def monitored():
    """Whether coverage counts lines by the interpreter's own monitoring, without a tracer."""
    monitoring = getattr(sys, "monitoring", None)  # from Python 3.12 on
    return monitoring is not None and bool(monitoring.get_tool(monitoring.COVERAGE_ID))


@pytest.mark.parametrize("case", range(4))
def test_a_function_is_traced_until_it_has_been_traced_enough(case, pytestconfig):
    """The first case of a process has a tracer, where coverage needs one (before Python 3.14)."""
    traced = "coverage" in type(sys.gettrace()).__module__
    until = time.process_time() + 1.5 * effort.ENOUGH_TRACED
    while time.process_time() < until:  # tracing is counted in processor seconds
        pass
    measured = bool(pytestconfig.getoption("cov_source", None)) and not monitored()
    assert traced == (not RAN and measured)
    RAN.append(case)


@pytest.mark.parametrize(("level", "count"), [("usual", 18), ("whole", 72)])
def test_a_product_is_collected_in_part(level, count):
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "not gpu"]
    command += ["-k", "test_steps_of_a_cache", "kernels/test_kernel_cache.py"]
    environment = {**os.environ, "KVLIB_TESTS": level, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, env=environment)
    assert done.stdout.count("::test_steps_of_a_cache[") == count, done.stdout + done.stderr


def test_a_level_that_is_none_is_refused():
    environment = {**os.environ, "KVLIB_TESTS": "all"}
    command = [sys.executable, "-c", "import effort"]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, env=environment)
    assert "KVLIB_TESTS must be one of quick, usual, whole; got 'all'" in done.stderr


def test_one_case_in_n_is_kept_and_a_single_one_always():
    assert effort.every(range(7), 3) == [0, 3, 6]
    assert effort.every(range(7), 3, start=1) == [1, 4]
    assert effort.every([0], 3, start=1) == [0]
    kept = effort.every([a + b for a in range(6) for b in range(9)], 3)
    for pairs in ({(i // 9, i % 9 % 3) for i in kept}, {(i % 9, i // 9 % 3) for i in kept}):
        assert len(pairs) == len({value for value, _ in pairs}) in (6, 9), "in turn"


@pytest.mark.parametrize(("level", "count"), [("usual", 3), ("whole", 9)])
def test_a_list_of_cases_is_collected_in_part(level, count, tmp_path):
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text(encoding="utf-8"))
    (tmp_path / "test_product.py").write_text(
        "import pytest\n"
        "@pytest.fixture(params=[True, None, 2])\n"
        "def first(request): return request.param\n"
        "@pytest.mark.every(3)\n"
        "@pytest.mark.parametrize('b, c', [(0, 1), (0, 2), (1, 1)])\n"
        "def test_product(first, b, c): pass\n"
    )
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "KVLIB_TESTS": level, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    kept = [line.split("[")[1] for line in done.stdout.splitlines() if "::test_product[" in line]
    assert len(kept) == count, done.stdout + done.stderr
    assert len({name.partition("-")[0] for name in kept}) == 3, "each value in its turn"
