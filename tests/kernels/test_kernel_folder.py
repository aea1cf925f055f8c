"""Compiled kernels find a folder to be saved in, also for a user without a home directory."""

import os
import stat
import tempfile
from pathlib import Path

import numpy as np
import pytest

from kvlib.kernels import processor, read_keys
from kvlib.kernels.processor.compiled import cache_folder

NOWHERE = "/dev/null/home"  # below a file: not even root can make it


@pytest.fixture(autouse=True)
def no_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", NOWHERE)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_the_users_cache_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "kvlib" / "kernels"
    monkeypatch.setenv("XDG_CACHE_HOME", "")  # set and empty is as good as not set
    assert cache_folder() == tmp_path / "home" / ".cache" / "kvlib" / "kernels"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cache_folder() == tmp_path / "cache" / "kvlib" / "kernels"
    assert list(cache_folder().iterdir()) == [], "what tried whether it can be written is gone"


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="Windows has a temporary folder per user")
def test_without_a_home_it_is_a_temporary_folder_of_this_user_alone(tmp_path: Path) -> None:
    assert cache_folder() == tmp_path / f"kvlib-{os.getuid()}"
    assert stat.S_IMODE(cache_folder().stat().st_mode) == 0o700
    assert cache_folder() == cache_folder(), "another process finds the same one"


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="Windows has a temporary folder per user")
@pytest.mark.parametrize("prepared", ["open to all", "a link"])
def test_a_folder_that_another_may_have_prepared_is_refused(tmp_path: Path, prepared: str) -> None:
    folder, other = tmp_path / f"kvlib-{os.getuid()}", tmp_path / "other"
    other.mkdir(mode=0o700)
    if prepared == "a link":
        folder.symlink_to(other)
    else:
        folder.mkdir()
        folder.chmod(0o777)
    with pytest.raises(OSError, match=f"{folder.name} is not a folder of this user.*XDG_CACHE"):
        cache_folder()
    assert list(other.iterdir()) == []


def test_a_kernel_runs_without_a_home(tmp_path: Path) -> None:
    processor._entries.clear()  # as in a new process
    keys = np.arange(256 * 128, dtype=np.float32).reshape(256, 128) % 7
    total, _ = read_keys("a_warp_a_key", keys)
    assert total == keys.sum()
    (compiled,) = tmp_path.glob("kvlib*/*")
    assert compiled.suffix == ".so"
    processor._entries.clear()
