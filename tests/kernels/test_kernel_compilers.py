"""Kernels on the processor under many compilers and flags, and under compilers that fail.

Run as a program, it runs one kernel of each named unit with the compiler that CXX names.
"""

import importlib.util
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import time

import effort as efforts
import numpy as np
import pytest
from portable import HARDENED
from repository import ROOT
from table import TABLE

from kvlib.kernels import processor, read_keys, run_cuda
from kvlib.kernels.__main__ import instantiations
from kvlib.kernels.engine import watched
from kvlib.kernels.processor import KernelError, compiled, library

X86 = platform.machine().lower() in ("x86_64", "amd64")
ZIG = f"{shlex.quote(sys.executable)} -m ziglang c++"
COMPILERS = {
    "g++ hardened": f"g++ {HARDENED}", "g++": "g++",
    "g++ optimised": f"g++ -O3 {'-march' if X86 else '-mcpu'}=native",
    "g++ lto": "g++ -flto",
    "g++ swapcontext": f"g++ -DKVLIB_UCONTEXT {HARDENED}",
    "clang++": "clang++", "clang++ hardened": f"clang++ {HARDENED}", "ziglang": ZIG,
}
TARGETS = ("aarch64-macos", "x86_64-macos", "aarch64-linux-gnu", "aarch64-linux-musl")
MAGIC = {"macos": b"\xcf\xfa\xed\xfe", "linux": b"\x7fELF"}
KERNELS = {kernel.unit: kernel for kernel in instantiations()}


def main(units):
    for unit in units:
        row = next(row for row in TABLE.values() if unit in row.units)
        with watched() as seen:
            row.check(row.units[unit], "processor")
        assert unit in {launch.kernel.unit for launch, _ in seen}, unit
        print(unit, flush=True)


def sampled(things):
    """All of them where nothing is sampled; of compilers, `make test` takes the hardened one."""
    return list(things) if efforts.LEVEL == "whole" else list(things)[:1]


def present(command):
    """Skip without this compiler."""
    if command.startswith(ZIG):
        if importlib.util.find_spec("ziglang") is None:
            pytest.skip("ziglang is not installed; try it: pip install ziglang")
    elif shutil.which(shlex.split(command)[0]) is None:
        pytest.skip(f"{command.split()[0]} is not installed")


def with_cache(folder):
    """An environment with an empty kernel cache; ziglang keeps the libraries that it has built."""
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    zig = os.environ.get("ZIG_GLOBAL_CACHE_DIR") or os.path.join(caches, "zig")
    return {"XDG_CACHE_HOME": str(folder), "ZIG_GLOBAL_CACHE_DIR": zig}


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """The folder of an empty kernel cache, in a process that has loaded no kernel."""
    for name, value in with_cache(tmp_path / "cache").items():
        monkeypatch.setenv(name, value)
    processor._entries.clear()
    yield tmp_path / "cache" / "kvlib" / "kernels"
    processor._entries.clear()


@pytest.mark.parametrize("name", sampled(COMPILERS))
def test_a_kernel_of_each_unit_runs(name, effort, tmp_path):
    present(COMPILERS[name])
    units = effort.share("units that hardened g++ compiles", list(KERNELS), usual=2)
    env = os.environ | with_cache(tmp_path) | {"CXX": COMPILERS[name]}
    env["PYTHONPATH"] = os.pathsep.join(str(ROOT / name) for name in ("tests", "tools", ""))
    done = subprocess.run([sys.executable, __file__, *units], env=env, capture_output=True)
    words = done.stderr.decode(errors="replace")
    assert (done.returncode, done.stdout.decode().split()) == (0, list(units)), words
    kept = list((tmp_path / "kvlib" / "kernels").iterdir())
    assert len(kept) >= len(units) and {path.suffix for path in kept} == {".so"}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.skipif(efforts.LEVEL != "whole", reason="cross-compiled where nothing is sampled")
def test_every_unit_compiles_for_other_systems(target, fresh, monkeypatch):
    """macOS is not run anywhere: that its compiler takes the sources is all that is shown."""
    present(ZIG)
    monkeypatch.setenv("CXX", f"{ZIG} -target {target}")
    for kernel in KERNELS.values():
        with library(kernel) as (path, new):
            assert new and path.read_bytes().startswith(MAGIC[target.split("-")[1]]), kernel


def script(folder, text):
    """A program of that text, as CXX would name it."""
    path = folder / "a compiler"
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


KEYS = np.ones((128, 64), np.float32)
needs_shell = pytest.mark.skipif(shutil.which("sh") is None, reason="no shell for the wrappers")


@needs_shell
@pytest.mark.parametrize(("text", "words"), [
    ("kill -SEGV $$", "a compiler ended with SIGSEGV .* CXX"),
    ("kill -KILL $$", "a compiler ended with SIGKILL .* CXX"),
    ("exit 3", "a compiler ended with status 3 .* CXX"),
    ("exit 0", "a compiler wrote no library .* CXX"),
    ("echo no licence >&2; exit 3", "does not compile: no licence"),
    ("printf 'x\\351y' >&2; exit 1", "does not compile: x"),
    ("cat; kill -SEGV $$", "SIGSEGV"),  # what waits for input gets none
])
def test_a_compiler_that_fails_is_told_in_its_words(text, words, fresh, monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", script(tmp_path, text))
    with pytest.raises(KernelError, match=words):
        read_keys("a_warp_a_key", KEYS)
    with pytest.raises(KernelError, match=words):
        run_cuda('#include "portable.cuh"\n__global__ void none(float*) {}', "none", (1,), 1, KEYS)
    assert list(fresh.iterdir()) == []


@needs_shell
def test_a_compiler_that_hangs_is_stopped_with_all_it_started(fresh, monkeypatch, tmp_path):
    monkeypatch.setattr(compiled, "COMPILE_SECONDS", 0.3)
    monkeypatch.setenv("CXX", script(tmp_path, f"(sleep 1; touch '{tmp_path}/late') & wait"))
    with pytest.raises(KernelError, match="had not compiled a_warp_a_key after 0.3 seconds .* CXX"):
        read_keys("a_warp_a_key", KEYS)
    time.sleep(1.2)
    assert not (tmp_path / "late").exists() and list(fresh.iterdir()) == []


@pytest.mark.parametrize("chosen", ["no-such-compiler", "no-such-compiler -O3", '"g++', "''"])
def test_a_compiler_that_is_not_there_is_named(chosen, fresh, monkeypatch):
    monkeypatch.setenv("CXX", chosen)
    with pytest.raises(ImportError, match=f"CXX is .*{chosen}.*; set it to a C"):
        read_keys("a_warp_a_key", KEYS)


def test_a_file_that_cannot_be_started_is_named(fresh, monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", script(tmp_path, ""))
    (tmp_path / "a compiler").write_bytes(b"\0not a program")
    with pytest.raises(KernelError, match="a compiler does not start: .* CXX"):
        read_keys("a_warp_a_key", KEYS)


def test_the_command_is_split_as_a_shell_would(monkeypatch, tmp_path):
    path = script(tmp_path, "")
    for chosen, command in (
        (path, [path]),
        (f"{shlex.quote(path)} -O3 '-DA=a b'", [path, "-O3", "-DA=a b"]),
    ):
        monkeypatch.setenv("CXX", chosen)
        assert processor.compiler() == command
    monkeypatch.setenv("CXX", " ")
    assert processor.compiler()[0] not in ("", " ")


BAD = {  # libraries that end a process, or have not what is asked for
    "aborts when it runs": 'extern "C" int kvlib_run() { abort(); }',
    "aborts when it is loaded": '__attribute__((constructor)) void f() { abort(); } '
    'extern "C" int kvlib_run() { return 0; }',
    "leaves": 'extern "C" int kvlib_run() { exit(7); }',
    "is of another kind": 'extern "C" int another() { return 0; }',
}  # fmt: skip


@needs_shell
@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
@pytest.mark.parametrize("what", BAD)
def test_a_library_that_ends_its_process_leaves_this_one_alone(what, fresh, monkeypatch, tmp_path):
    source = tmp_path / "bad.cpp"
    source.write_text(f"#include <stdlib.h>\n{BAD[what]}\n", encoding="utf-8")
    line = f"for out; do :; done; exec c++ -shared -fPIC '{source}' -o \"$out\""
    monkeypatch.setenv("CXX", script(tmp_path, line))
    keys = KEYS.copy()
    with pytest.raises(KernelError, match=r"a compiler, ended its process .* first run.* CXX"):
        read_keys("a_warp_a_key", keys)
    assert list(fresh.iterdir()) == [] and np.all(keys == 1)
    monkeypatch.setenv("CXX", "c++")
    assert read_keys("a_warp_a_key", KEYS)[0] == KEYS.size


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_only_a_fresh_library_is_tried_in_another_process(fresh, monkeypatch):
    started, popen = [], subprocess.Popen

    class Counted(popen):
        def __init__(self, command, *args, **settings):
            started.append(command)
            super().__init__(command, *args, **settings)

    monkeypatch.setenv("CXX", "c++")
    monkeypatch.setattr(subprocess, "Popen", Counted)
    read_keys("a_warp_a_key", KEYS)
    assert [command[0] for command in started] == ["c++", sys.executable]
    for _ in range(2):
        read_keys("a_warp_a_key", KEYS)
        processor._entries.clear()  # as in another process, which finds the library
    assert len(started) == 2


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_a_damaged_library_is_named(fresh):
    read_keys("a_warp_a_key", KEYS)
    processor._entries.clear()
    (path,) = fresh.iterdir()
    path.unlink()  # a new file: the loaded one stays as it is
    path.write_bytes(b"")
    with pytest.raises(KernelError, match=f"does not load .*; delete .*{path.name}"):
        read_keys("a_warp_a_key", KEYS)


if __name__ == "__main__":
    main(sys.argv[1:])
