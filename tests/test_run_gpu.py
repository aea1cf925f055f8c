"""How `make gpu` sums up its tests; that it stops without a card is in test_frame.py."""

import json
import sys
import types

import run_gpu

REPORT = """<testsuites><testsuite>
<testcase classname="tests.test_a" name="test_one[x]" time="1.25"/>
<testcase classname="tests.test_a" name="test_two" time="0.5"><failure message="no"/></testcase>
<testcase classname="tests.test_a" name="test_bad" time="0.0"><error message="no"/></testcase>
<testcase classname="tests.test_b" name="test_three" time="0.1"><skipped message="why"/></testcase>
</testsuite></testsuites>"""


def test_the_summary_of_a_run():
    assert run_gpu.summary(REPORT) == {
        "passed": 1,
        "failed": ["tests.test_a::test_two", "tests.test_a::test_bad"],
        "skipped": ["tests.test_b::test_three: why"],
        "seconds": 1.9,
    }


def test_the_result_names_the_device(tmp_path, monkeypatch, capsys):
    """The device is made up; what is written is not."""
    monkeypatch.setattr(run_gpu, "ROOT", tmp_path)
    monkeypatch.setattr(run_gpu, "RESULT", tmp_path / "gpu_tests.json")
    monkeypatch.setattr(run_gpu, "driver", lambda: "580.1")
    monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))
    place = types.SimpleNamespace(describe=lambda cp: {"device": "a card", "numpy": "2"})
    monkeypatch.setitem(sys.modules, "on_device", place)
    run_gpu.save(run_gpu.summary(REPORT))
    found = json.loads((tmp_path / "gpu_tests.json").read_text())
    assert (found["device"], found["driver"], found["tests"]["passed"]) == ("a card", "580.1", 1)
    assert "1 passed, 2 failed: gpu_tests.json" in capsys.readouterr().out


def test_a_machine_without_the_program_has_no_driver(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert run_gpu.driver() == ""
