"""What tools/reading_path.py counts, on a package of three files, and kvlib within its limits."""

import importlib
import sys
from pathlib import Path

import pytest
import reading_path
from repository import run

TOY = {
    "__init__": "", "arguments": "def listed(x): return x",
    "low": """
from toy_path.arguments import listed
def check_even(n):
    if n % 2: raise ValueError(n)
def _check_all(ns): [check_even(n) for n in ns]
def each(function, xs): return [function(x) for x in listed(xs)]
def total(numbers):
    found = 0
    for n in numbers: found += n
    return found
""",
    "high": """
from toy_path import low
def double(x): return 2 * x
def odd(): return low.check_even(1)
def ticks():
    yield 1
    yield 2
def run():
    try: odd()
    except ValueError: pass
    low._check_all([2, 4])
    low.each(double, [1, 2, 3])
    low.total(ticks())
    low.total(x for x in range(5))
    sum({n for n in range(5)}), all(n for n in range(5)), {n: n for n in range(5)}
""",
}
ORDER = (("arguments",), ("low",), ("high",))


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> reading_path.Trace:
    package = tmp_path / "toy_path"
    package.mkdir()
    for name, source in TOY.items():
        (package / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    high = importlib.import_module("toy_path.high")
    before = sys.getprofile()
    try:
        return reading_path.trace(high.run, package)
    finally:
        assert sys.getprofile() is before
        for name in [name for name in sys.modules if name.startswith("toy_path")]:
            del sys.modules[name]


def test_functions_and_generators_count_and_comprehensions_do_not(found) -> None:
    # run; odd, check_even; _check_all, 2 of check_even; each, listed, 3 of double; 2 of total;
    # ticks starts once and resumes twice
    assert found.calls == 1 + 2 + 3 + 5 + 2 + 3
    assert list(found.files) == ["high.py", "low.py", "arguments.py"]
    assert found.depth == 3
    assert found.checks == 1 + 3 + 1


def test_calls_from_below_are_found(found: reading_path.Trace) -> None:
    assert reading_path.upward(found, ORDER) == {
        ("low.py: each", "high.py: double"): 3, ("low.py: total", "high.py: ticks"): 3,
        ("low.py: total", "high.py: run"): 6,  # run's generator expression
    }
    assert not reading_path.upward(found, (("arguments", "low", "high"),))
    with pytest.raises(LookupError, match=r"high\.py has no place in ORDER"):
        reading_path.upward(found, ORDER[:2])


def test_the_longest_name_in_the_order_counts() -> None:
    found = reading_path.Trace()
    found.pairs["a/b/c.py: f", "a/d.py: g"] = 2
    assert not reading_path.upward(found, (("a",),))
    assert reading_path.upward(found, (("a/b",), ("a",))).total() == 2
    assert not reading_path.upward(found, (("a",), ("a/b",)))


def test_a_number_above_its_limit_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    limits = {"toy": dict(calls=(10, 5), files=(3, 3))}
    assert reading_path.compare({"toy": dict(calls=10, files=3)}, limits) == 0
    assert reading_path.compare({"toy": dict(calls=11, files=3)}, limits) == 1
    (marked,) = [line for line in capsys.readouterr().out.splitlines() if "ABOVE" in line]
    assert marked.split()[:3] == ["toy", "11", "calls"]


@pytest.mark.slow
def test_kvlib_is_within_its_limits() -> None:
    out = run(sys.executable, "tools/reading_path.py")
    assert out.index("kvlib/serve/scheduler.py") < out.index("kvlib/caches/store.py")
