"""How the browser tests come to their browser, and what they say where there is none."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import chromium
import pytest
import visits

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = """
import sys
from chromium import launch
from playwright.sync_api import sync_playwright
with sync_playwright() as playwright:
    browser = launch(playwright)
    page = browser.new_page()
    page.goto("data:text/html,<title>It runs</title>")
    print(page.title())
    browser.close()
"""


@pytest.fixture
def no_browser(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine on which no browser is installed."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("KVLIB_CHROMIUM", raising=False)
    monkeypatch.setattr(chromium, "PLACES", ())
    assert chromium.find_chromium() is None
    return monkeypatch


@pytest.mark.parametrize("ci", ["", "true"])
def test_without_a_browser_it_is_said_how_to_get_one(no_browser, ci) -> None:
    no_browser.setenv("CI", ci)
    outcome = pytest.fail.Exception if ci else pytest.skip.Exception
    with pytest.raises(outcome) as told, visits.running_browser():
        raise AssertionError("a browser was found")
    words = str(told.value)
    assert "not tried in a browser" in words
    for way in ("apt-get install chromium", "brew install", "winget install", "KVLIB_CHROMIUM"):
        assert way in words
    with pytest.raises(FileNotFoundError, match="apt-get install chromium"):
        chromium.launch(None)


def test_a_named_browser_that_cannot_run_is_an_error(monkeypatch, tmp_path) -> None:
    named = str(tmp_path / "chromium")
    monkeypatch.setenv("KVLIB_CHROMIUM", named)
    with pytest.raises(FileNotFoundError, match=r"cannot be run; set it to the path of"):
        chromium.find_chromium()


@pytest.mark.browser
def test_it_runs_where_home_cannot_be_written_and_a_path_has_spaces(browser, tmp_path) -> None:
    assert browser.engine.is_connected()
    home = "/proc/none" if os.path.isdir("/proc") else str(tmp_path / "none")
    # not under tmp_path: Chromium's socket must have a path of no more than 107 characters
    with tempfile.TemporaryDirectory(prefix="with a space ") as place:
        environment = {**os.environ, "HOME": home, "TMPDIR": place}
        environment["PYTHONPATH"] = str(ROOT / "tools")
        command = [sys.executable, "-c", SCRIPT]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert done.stdout == "It runs\n", done.stderr
        assert os.listdir(place) == [], "the browser left its profile"
