"""Start a headless Chromium that speaks to nobody but us: for the browser test and the pictures."""

from __future__ import annotations

import os
import shutil
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = (
    "--no-sandbox",  # as root in a container there is no sandbox to have
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


def find_chromium() -> str | None:
    """Path of a Chromium or Chrome on this machine; KVLIB_CHROMIUM names one; None if none is."""
    named = os.environ.get("KVLIB_CHROMIUM")
    if named:
        if not os.access(named, os.X_OK):
            raise FileNotFoundError(f"KVLIB_CHROMIUM is {named!r}, which cannot be run")
        return named
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def launch(playwright: Any) -> Any:
    """A running browser (Playwright's Browser), or FileNotFoundError where there is none."""
    path = find_chromium()
    if path is None:
        raise FileNotFoundError(f"no Chromium found: looked for {', '.join(NAMES)} on PATH")
    return playwright.chromium.launch(executable_path=path, args=list(QUIET))
