"""`make portable` takes other processors' kernels, and says which it cannot take."""

import platform
import sys

import portable
import pytest


def test_what_a_processor_cannot_be_is_left_out(monkeypatch, capsys) -> None:
    monkeypatch.setattr(portable, "flags", lambda: {"pni", "sse4_2", "avx2"})
    monkeypatch.setattr(portable, "architecture", str)
    found = list(portable.runs(portable.CORES))
    assert {core for core, _, _ in found} == {"Prescott", "Nehalem", "Haswell", "Zen"}
    assert {(threads, what) for _, threads, what in found} == {
        (1, "tests"), (1, "notebooks"), (2, "tests"), (2, "notebooks"),
    }  # fmt: skip
    assert "SkylakeX: left out, this processor has no avx512f" in capsys.readouterr().out
    shared = {"Zen": "Haswell"}
    monkeypatch.setattr(portable, "architecture", lambda core: shared.get(core, core))
    assert {core for core, _, _ in portable.runs(portable.CORES)} == {
        "Prescott", "Nehalem", "Haswell",
    }  # fmt: skip
    assert "Zen: left out, these are the kernels of Haswell" in capsys.readouterr().out


def test_a_run_that_fails_is_told_and_the_others_go_on(monkeypatch, capsys) -> None:
    bad = (
        sys.executable, "-c",
        "import os; raise SystemExit(os.environ['OPENBLAS_NUM_THREADS'] == '2')",
    )
    monkeypatch.setattr(
        portable, "COMMANDS", {"tests": bad, "notebooks": (sys.executable, "-c", "")}
    )
    monkeypatch.setattr(portable, "EDGES", (sys.executable, "-c", ""))
    monkeypatch.setattr(portable, "compilers", list)
    assert portable.main(["--core", "Prescott"]) == 1
    out = capsys.readouterr().out
    words = [line.split()[-3] for line in out.splitlines() if line.endswith(" s")]
    assert words == ["passed", "passed", "FAILED", "passed", "passed"], out
    assert portable.main(["--core", "Prescott", "--only", "notebooks"]) == 0


def test_kernels_are_tested_under_hardened_g_plus_plus_and_under_clang(monkeypatch, capsys) -> None:
    look = "import os; cxx, cache = os.environ['CXX'], os.environ['XDG_CACHE_HOME']\n"
    look += "assert cache == '/' or not os.listdir(cache)\n"
    look += "assert cxx == 'g++' or cxx.startswith('g++ -D_FORTIFY_SOURCE=3')"
    monkeypatch.setattr(portable, "PYTEST", (sys.executable, "-c", look))
    monkeypatch.setattr(portable.shutil, "which", str)
    monkeypatch.setenv("CXX", "g++")
    monkeypatch.setenv("XDG_CACHE_HOME", "/")
    first, second, third = portable.compilers()
    assert (first[0], second[0], third[0]) == (True, False, True)
    monkeypatch.setattr(portable.shutil, "which", lambda name: None)
    assert len(list(portable.compilers())) == 1
    assert "clang++: left out, it is not installed" in capsys.readouterr().out


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="core types of x86-64"
)
def test_the_core_type_decides_which_kernels_run() -> None:
    if portable.architecture("Nehalem") == "no OpenBLAS":
        pytest.skip("NumPy has another BLAS here")
    assert portable.architecture("Nehalem") == "Nehalem" != portable.architecture("Prescott")
