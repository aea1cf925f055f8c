"""Start a headless Chromium that speaks to nobody but us: for browser tests and pictures."""

from __future__ import annotations

import os
import shutil
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# where installers put it without naming it on PATH
PLACES = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "C:/Program Files/Google/Chrome/Application/chrome.exe",
    "C:/Program Files (x86)/Google/Chrome/Application/chrome.exe",
)
HOW_TO_INSTALL = (
    "This machine has no Chromium or Chrome on PATH. Install one, or name one in KVLIB_CHROMIUM "
    "(the path of the program): Debian and Ubuntu: sudo apt-get install chromium; Fedora: sudo dnf "
    "install chromium; macOS: brew install --cask google-chrome; Windows: winget install "
    "Google.Chrome."
)
QUIET = (
    "--no-sandbox",  # as root in a container there is no sandbox to have
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    # No name leads anywhere but this machine's own: a page that asks for more gets nothing.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


def find_chromium() -> str | None:
    """Path of a Chromium or Chrome on this machine; KVLIB_CHROMIUM names one; None if none is."""
    named = os.environ.get("KVLIB_CHROMIUM")
    if named:
        if not os.access(named, os.X_OK):
            raise FileNotFoundError(
                f"KVLIB_CHROMIUM is {named!r}, which cannot be run; set it to the path of a "
                "Chromium or Chrome, or unset it to take the one on PATH"
            )
        return named
    on_path = (path for name in NAMES if (path := shutil.which(name)))
    installed = (path for path in PLACES if os.access(path, os.X_OK))
    return next(on_path, None) or next(installed, None)


def launch(playwright: Any) -> Any:
    """A running browser (Playwright's Browser), or FileNotFoundError where there is none."""
    path = find_chromium()
    if path is None:
        raise FileNotFoundError(HOW_TO_INSTALL)
    return playwright.chromium.launch(executable_path=path, args=list(QUIET))
