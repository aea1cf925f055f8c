"""NumPy unless a test asks for more, and the same examples every time.

A red run of hypothesis is red again. To search for new failures:
pytest --hypothesis-profile=search
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest

pytest.register_assert_rewrite("explorer_pages", "page_checks", "page_sliders", "visits")

# Whoever names no library gets NumPy, on a machine with a graphics card, too.
os.environ.setdefault("KVLIB_BACKEND", "numpy")

try:
    from hypothesis import settings
except ImportError:  # `make gpu` with a bare Python runs the tests that need no hypothesis
    pass
else:
    settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
    settings.register_profile("search", derandomize=False, deadline=None, database=None)
    settings.load_profile("repeatable")


@pytest.fixture
def device_at_hand(monkeypatch):
    """The stand-in for CuPy as the library that kvlib makes arrays with."""
    from device_double import install, xp

    install(monkeypatch)
    return xp


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One headless Chromium for all tests that ask for it; each visits pages in its own context."""
    from visits import running_browser

    with running_browser() as running:
        yield running


@pytest.fixture(scope="session")
def book() -> Iterator[dict[str, str]]:
    """Where the built book lies, by scheme: "file" and "http"."""
    from visits import the_book

    with the_book() as addresses:
        yield addresses
