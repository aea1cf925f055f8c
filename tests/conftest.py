"""NumPy unless a test asks for more, and the same examples every time.

To search for new failures: pytest --hypothesis-profile=search
"""

import gc
import importlib
import os
import pkgutil
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import effort as efforts
import pytest

pytest.register_assert_rewrite(
    "drawn", "explorer_pages", "hostile", "page_checks", "page_sliders", "visits"
)

# A test that names no library gets NumPy, on a machine with a graphics card, too.
os.environ.setdefault("KVLIB_BACKEND", "numpy")

try:
    from hypothesis import settings
except ImportError:  # `make gpu` with a bare Python runs the tests that need no hypothesis
    pass
else:
    most = efforts.number(quick=5, usual=50, whole=100)
    settings.register_profile(
        "repeatable", derandomize=True, deadline=None, database=None, max_examples=most
    )
    settings.register_profile("search", derandomize=False, deadline=None, database=None)
    settings.load_profile("repeatable")


@pytest.fixture
def device_at_hand(monkeypatch):
    """The stand-in for CuPy as the library that kvlib makes arrays with."""
    from device_double import install, xp

    install(monkeypatch)
    return xp


@pytest.fixture
def drawn(monkeypatch):
    """The book's style for figures; each one that a test makes is checked as all are."""
    pytest.importorskip("matplotlib")
    from drawn import figures_checked

    with figures_checked(monkeypatch):
        yield


@pytest.fixture
def effort(record_property):
    """How much of a long test to run; see effort.py."""
    return efforts.Effort(record_property)


def pytest_itemcollected(item):
    """Mark what `make check` has no time for, and what need not be traced."""
    if item.path.stem in efforts.SLOW:
        item.add_marker("slow")
    if item.path.stem in efforts.TRACED_ELSEWHERE:
        item.add_marker("untraced")
    if item.path.stem in efforts.TRACED_WHOLLY:
        item.add_marker("traced")


def import_kvlib():
    """Every module that this machine can import: what they run then is traced here."""
    import kvbook
    import kvlib

    paths = ((kvlib.__path__, "kvlib."), (kvbook.__path__, "kvbook."))
    for path, prefix in paths:
        for module in pkgutil.walk_packages(path, prefix, onerror=lambda name: None):
            if not module.name.endswith("__main__"):  # these run, and exit
                with suppress(ImportError):
                    importlib.import_module(module.name)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Collect without tracing, which takes longer than collecting, and without garbage collection.

    kvlib is imported before, so that the lines that its import runs are traced, and other packages
    before kvlib, because their own lines do not count.
    """
    gc.disable()
    if getattr(session.config.option, "dist", "no") != "no":
        sys.settrace(None)
        threading.settrace(None)
    with efforts.untraced() as could_trace:
        for name in ("hypothesis", "matplotlib.pyplot", "ipywidgets") if could_trace else ():
            with suppress(ImportError):
                importlib.import_module(name)
    if could_trace:
        import_kvlib()
    try:
        with efforts.untraced():
            return (yield)
    finally:  # thousands of tests are alive until the end: no collection need look at them again
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)  # tests make few cycles: look for them less often
        gc.enable()


TRACED = Counter()  # test function → processor seconds that its cases were traced for here


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    """Trace a test for coverage, unless its lines are traced elsewhere, in all likelihood.

    The first cases of a test function are traced, until they have taken ENOUGH_TRACED seconds.
    Tests marked `untraced` never are, tests marked `traced` always. (pytest-cov's no_cover has no
    effect in a worker of pytest-xdist: when the second collector stops, the first goes on.)
    """
    function, started = item.nodeid.partition("[")[0], time.process_time()
    enough = TRACED[function] > efforts.ENOUGH_TRACED and not item.get_closest_marker("traced")
    if not (enough or item.get_closest_marker("untraced")):
        try:
            return (yield)
        finally:
            TRACED[function] += time.process_time() - started
    with efforts.untraced():
        return (yield)


def places(cases: list[Any]) -> list[int]:
    """For each case of a test, the sum of the indices of its parameters in their lists."""
    seen, sums = defaultdict(dict), []
    for case in cases:
        left, sum_of_places = dict(case.callspec.params), 0
        parameters = [mark.args[0] for mark in case.iter_markers("parametrize")]
        groups = [names.split(",") if isinstance(names, str) else names for names in parameters]
        together = [tuple(id(left.pop(name.strip())) for name in names) for names in groups]
        for i, values in enumerate([*together, *((id(value),) for value in left.values())]):
            sum_of_places += seen[i].setdefault(values, len(seen[i]))
        sums.append(sum_of_places)
    return sums


@pytest.hookimpl(trylast=True)  # after -m and -k: the pairs of what is asked for
def pytest_collection_modifyitems(config, items):
    """Of a test marked `pairwise` or `every`, keep some cases, and record of how many."""
    if efforts.LEVEL == "whole":
        return
    products = defaultdict(list)
    for item in items:
        if item.get_closest_marker("pairwise") or item.get_closest_marker("every"):
            products[item.nodeid.partition("[")[0]].append(item)
    dropped = set()
    for name, cases in products.items():
        if (mark := cases[0].get_closest_marker("every")) is not None:
            kept = efforts.every(places(cases), *mark.args, **mark.kwargs)
        else:
            kept = efforts.pairwise([case.callspec.params for case in cases])
        dropped |= {id(case) for i, case in enumerate(cases) if i not in set(kept)}
        what = f"cases of {name.rpartition('::')[2]}"
        cases[kept[0]].user_properties.append(("sampled", f"{what}: {len(kept)} of {len(cases)}"))
    if dropped:
        config.hook.pytest_deselected(items=[i for i in items if id(i) in dropped])
        items[:] = [i for i in items if id(i) not in dropped]


@pytest.fixture(scope="module")
def model() -> Any:
    """The reference model, on NumPy."""
    import numpy as np

    from kvlib import load_reference_model

    return load_reference_model(xp=np)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One headless Chromium for all tests that ask for it; each visits pages in its own context."""
    from visits import running_browser

    with running_browser() as running:
        yield running


@pytest.fixture(scope="session")
def book() -> Iterator[dict[str, str]]:
    """Where the built book is, by scheme: "file" and "http"."""
    from visits import the_book

    with the_book() as addresses:
        yield addresses
