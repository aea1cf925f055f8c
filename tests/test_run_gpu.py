"""How `make gpu` sums up its tests; that it stops without a card is in test_frame.py."""

import importlib
import json
import sys
import time
import types
from pathlib import Path

import pytest
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
        "skipped": ["tests.test_b::test_three: why"], "seconds": 1.9,
    }


@pytest.fixture
def a_card(tmp_path, monkeypatch):
    """The device is made up; what is written is not."""
    monkeypatch.setattr(run_gpu, "RESULT", tmp_path / "gpu_tests.json")
    monkeypatch.setattr(run_gpu, "driver", lambda: "580.1")
    monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))
    place = types.SimpleNamespace(describe=lambda cp: {"device": "a card", "numpy": "2"})
    monkeypatch.setitem(sys.modules, "on_device", place)
    return place


def test_the_result_names_the_device(tmp_path, a_card, capsys):
    run_gpu.save("kernels", run_gpu.summary(REPORT))
    found = json.loads((tmp_path / "gpu_tests.json").read_text())
    assert (found["device"], found["driver"], found["tests"]["passed"]) == ("a card", "580.1", 1)
    assert "1 passed, 2 failed: gpu_tests.json" in capsys.readouterr().out


def test_a_second_run_adds_its_part_unless_the_device_is_another(tmp_path, a_card):
    for part in ("kernels", "arrays", "arrays"):
        run_gpu.save(part, run_gpu.summary(REPORT))
    found = json.loads((tmp_path / "gpu_tests.json").read_text())
    assert list(found["parts"]) == ["kernels", "arrays"] and found["tests"]["passed"] == 2
    assert len(found["tests"]["failed"]) == 4 and found["tests"]["seconds"] == 3.8
    a_card.describe = lambda cp: {"device": "another"}
    run_gpu.save("arrays", run_gpu.summary(REPORT))
    assert list(json.loads((tmp_path / "gpu_tests.json").read_text())["parts"]) == ["arrays"]


def test_every_part_is_there(tmp_path):
    for part in run_gpu.PARTS:
        program = run_gpu.command(part, tmp_path / "x.xml")
        assert [Path(x).exists() for x in program if x.endswith(".py")].count(False) == 0
    both = [set(run_gpu.gpu_tests(part)) for part in ("kernels", "arrays")]
    assert not both[0] & both[1] and both[0] | both[1] == set(run_gpu.gpu_tests())
    assert {Path(x).name for x in both[0]} >= {"test_kernels.py", "test_kernel_cache.py"}


def test_chapters_run_in_a_copy_with_the_results_that_they_print(tmp_path, monkeypatch):
    assert run_gpu.TOTAL < 480
    monkeypatch.setattr(run_gpu, "ROOT", tmp_path / "here")
    for name in run_gpu.COPIED:
        (tmp_path / "here" / name).mkdir(parents=True)
    told = []
    monkeypatch.setattr(run_gpu, "finish", lambda program, *rest: told.append(program) or 0)
    assert run_gpu.run_all(tmp_path, ["notebooks"]) == 0
    copy = tmp_path / "chapters"
    assert str(copy) in told[0] and {path.name for path in copy.iterdir()} == set(run_gpu.COPIED)


def test_a_part_that_never_ends_is_stopped_and_the_next_one_runs(tmp_path, monkeypatch, capfd):
    worker = "import time; time.sleep(3); print('a worker still runs', flush=True)"
    programs = {
        "kernels": f"import subprocess, sys; subprocess.run([sys.executable, '-c', {worker!r}])",
        "arrays": "print('arrays ran')",
    }
    monkeypatch.setattr(run_gpu, "RESULT", tmp_path / "gpu_tests.json")
    monkeypatch.setattr(
        run_gpu, "command", lambda part, report, limit: [sys.executable, "-c", programs[part]]
    )
    assert run_gpu.run_all(tmp_path, list(programs), limit=2.0) == 1
    assert run_gpu.run_all(tmp_path, list(programs), total=4.0) == 0
    time.sleep(2)  # the worker would speak now
    said = capfd.readouterr().out
    assert "kernels is stopped after 2 s. make gpu ONLY=kernels LIMIT=4 gives it more" in said
    assert "arrays ran" in said and "worker" not in said
    assert "failed: kernels" in said and 'ONLY="kernels arrays"' in said


def test_slow_calls_are_timed_a_few_times_and_fast_ones_often(monkeypatch):
    monkeypatch.syspath_prepend(str(run_gpu.ROOT / "benchmarks"))
    on_device = importlib.import_module("on_device")
    monkeypatch.setattr(on_device, "_burst", lambda cp, run, calls, turn: run(turn) * calls)
    runs = {"slow": lambda i: 1.5, "fast": lambda i: 1e-3}
    found = on_device.alternate(None, runs, rounds=6, burst=2, seconds=5)
    assert [found[name]["bursts"] for name in runs] == [2, 6]
    assert [found[name]["median_us"] for name in runs] == [1.5e6, 1e3]


def test_the_table_says_what_is_stored(tmp_path, a_card):
    assert run_gpu.table() == []
    run_gpu.save("kernels", run_gpu.summary(REPORT))
    runs = {"dense": {"share": 0.5, "times_dense": 1}, "int8": {"share": 0.4, "times_dense": 0.5}}
    prefill = {"tokens": 9, "runs": {"kvlib": {"tflops": 3.2}}}
    times = {"kvlib": {"median_us": 7}, "torch": {"median_us": 14}}
    row = {"rows": 64, "dtype": "float32", "times": times, "share_of_copy_bandwidth": 0.9}
    step = {"batch": 1, "prompt": 8, "kernels": {"tokens_per_s": 10.4}}
    for name, document in (
        ("attention", {"decode": [{"batch": 8, "keys": 32, "runs": runs}], "prefill": [prefill]}),
        ("sampling", {"candidates": [row | {"times_torch": 2.0}]}),
        ("generate", {"decode": [step]}),
        ("notebooks", {"chapters": {"a": {"passed": True}, "b": {"passed": False}}}),
    ):
        (tmp_path / f"gpu_{name}.json").write_text(json.dumps(document))
    assert run_gpu.table() == [
        "tests of kernels: 1 passed, 2 failed, 1 skipped",
        "decode 8 of 32 (of the copy, against dense): dense 50%, 1.00x; int8 40%, 2.00x",
        "prefill 9: kvlib 3 TFLOP/s",
        "top-k 64 rows float32: 7.0 us, 90% of the copy; 2.0x PyTorch",
        "generate 1 after 8: kernels 10 tokens/s",
        "notebooks: 1 print what is committed; failed: b",
    ]


def test_bars_are_beside_what_was_measured(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(run_gpu.ROOT / "benchmarks"))
    gpu_bars = importlib.import_module("gpu_bars")
    monkeypatch.setattr(gpu_bars.harness, "RESULTS", tmp_path)
    runs = {"whole": {"median_us": 900.0}, "transformers, compiled": {"median_us": 2700.0}}
    one = {"model": "llama-3.2-1b", "batch": 1, "keys": 128, "bytes": 2.4e9, "runs": runs}
    for device, first in (
        ("NVIDIA H200", ("ms", 0.9, 1.0, 0.8, True, "bar met")),
        ("another", ("of the copy", 2.4e9 / 900e-6 / 4e12, 0.583, 0.583 / 0.8, False, "bar met")),
    ):
        document = {"machine": {"device": device}, "copy_bytes_per_s": 4e12, "steps": [one]}
        (tmp_path / "gpu_step.json").write_text(json.dumps(document))
        name, found = gpu_bars.bars()
        assert name == device and (*found[0][1:-1], found[0].met()) == pytest.approx(first)
        assert [bar.met() for bar in found[1:4]] == ["not measured", "not measured", "aim met"]
        assert len(found) == 12 and {bar.measured for bar in found[4:]} == {None}


WRONG = """{"cells": [
 {"cell_type": "code", "metadata": {},
  "source": ["display(3)\\n", "print(3)\\n", "1 / 0"], "outputs": []},
 {"cell_type": "code", "metadata": {}, "source": ["print(3)"],
  "outputs": [{"name": "stdout", "text": ["4\\n"]}]},
 {"cell_type": "code", "metadata": {}, "source": ["while True: pass"], "outputs": []}]}"""


def test_chapters_run_on_a_machine_without_jupyter(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(run_gpu.ROOT / "benchmarks"))
    notebooks = importlib.import_module("gpu_notebooks")
    for package in ("matplotlib", "IPython", "ipywidgets", "nbformat"):
        error = "raise ModuleNotFoundError(f'No module named {__name__!r}', name=__name__)"
        (tmp_path / f"{package}.py").write_text(error)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(notebooks, "BACKEND", "")
    monkeypatch.setattr(notebooks.on_device.harness, "RESULTS", tmp_path)
    monkeypatch.setattr(notebooks.on_device, "device_or_exit", lambda: None)
    monkeypatch.setattr(notebooks.on_device, "describe", lambda cp: {"device": "a card"})
    (tmp_path / "wrong.ipynb").write_text(WRONG)
    monkeypatch.setitem(notebooks.CHAPTERS, "wrong", tmp_path / "wrong.ipynb")
    found = {}
    for name, status, limit in (("intro", 0, "120"), ("wrong", 1, "8")):
        assert notebooks.main([name, "--limit", limit]) == status
        stored = json.loads((tmp_path / "gpu_notebooks.json").read_text())
        assert stored["machine"]["device"] == "a card" and list(stored["chapters"]) == [name]
        found |= stored["chapters"]
    assert found["intro"]["passed"] and not found["wrong"]["passed"]
    assert found["intro"]["said"][-1].startswith("without matplotlib, 2 statements")
    said = "\n".join(found["wrong"]["said"])
    for words in ("ZeroDivisionError", "cell 1 prints\n3\nand not\n4", "Timeout", '"<cell 2>"'):
        assert words in said
    assert "wrong: failed, " in capsys.readouterr().out
    monkeypatch.setitem(notebooks.CHAPTERS, "late", tmp_path / "wrong.ipynb")
    monkeypatch.setattr(notebooks, "AT_ONCE", 1)
    assert notebooks.main(["wrong", "late", "--limit", "4"]) == 1  # four seconds for both
    assert "Timeout (0:00:01)" in capsys.readouterr().out


def test_a_machine_without_the_program_has_no_driver(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert run_gpu.driver() == ""
