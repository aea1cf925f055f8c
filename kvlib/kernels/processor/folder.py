"""Where compiled kernels are kept: in the user's cache, or elsewhere if that cannot be written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """A folder for compiled kernels that this process can write.

    It lies in the user's cache (`XDG_CACHE_HOME`, or ~/.cache). Where that cannot be written, as in
    a container without a home, it lies among the temporary files and has the user's number in its
    name, so that the next process finds the kernels again. Raises OSError if neither will do.
    """
    reasons = []
    for made in (_in_cache, _in_temporary):
        try:
            folder = made()
            with tempfile.TemporaryDirectory(dir=folder):  # a folder may be there and be read-only
                return folder
        except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home at all
            reasons.append(str(error))
    raise OSError(
        f"found no folder to keep compiled kernels in ({'; '.join(reasons)}); "
        "set XDG_CACHE_HOME to one that you can write"
    )


def _in_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "kvlib" / "kernels"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _in_temporary() -> Path:
    """What lies here is loaded and run, so a folder that someone else has prepared is refused."""
    user = os.getuid() if hasattr(os, "getuid") else None  # Windows has a folder for each user
    folder = Path(tempfile.gettempdir()) / ("kvlib" if user is None else f"kvlib-{user}")
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if user is not None and (found.st_uid != user or found.st_mode & 0o077 or folder.is_symlink()):
        raise PermissionError(f"{folder} is not a folder of this user alone")
    return folder
