"""The examples in docstrings run, and every name on the page of the API has one."""

import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import matplotlib
import pytest
from matplotlib import pyplot
from test_api_page import MODULES, excluded, public

import kvbook
import kvlib
from kvlib.config import families

PUBLIC = (*MODULES, "kvlib.attention")
# Names that have one example in common: that of `register_family`, or of the module.
SHARED = ("kvlib.config", "kvlib.testing", "kvbook.exercises.checker")
EACH = [module for module in PUBLIC if module not in SHARED]
WITH_EXAMPLES = [
    info.name
    for package in (kvlib, kvbook)
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not info.name.endswith("__main__")
    and (spec := importlib.util.find_spec(info.name))
    and ">>>" in Path(str(spec.origin)).read_text("utf-8")
]


def examples(module: ModuleType) -> dict[str, doctest.DocTest]:
    """What doctest finds in a module, by name; what is defined in another module is found there."""
    tests = doctest.DocTestFinder().find(module)
    return {test.name: test for test in tests if test.examples}


@pytest.mark.traced
@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On NumPy, with no window for a figure, no record of who passed and no style left behind."""
    for variable, value in (("KVLIB_BACKEND", "numpy"), ("KVLIB_PROGRESS", "off")):
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setattr("kvlib.config.families.FAMILIES", dict(families.FAMILIES))
    tests = examples(importlib.import_module(name))
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for test in tests.values():
        with matplotlib.rc_context():
            runner.run(test)
        pyplot.close("all")
    assert tests and runner.summarize(verbose=False).failed == 0


def without_example(module: str) -> set[str]:
    """Public functions and classes that no example shows, their own or that of their module."""
    wrong = set()
    for name in public(module):
        thing = getattr(importlib.import_module(module), name)
        if not (inspect.isfunction(thing) or inspect.isclass(thing)):
            continue
        home = importlib.import_module(thing.__module__)
        found = examples(home)
        shared = found[home.__name__].examples if home.__name__ in found else []
        words = {word for example in shared for word in re.findall(r"\w+", example.source)}
        if f"{home.__name__}.{thing.__qualname__}" not in found and name not in words:
            wrong.add(name)
    return wrong


@pytest.mark.parametrize("module", EACH)
def test_public_names_have_examples(module: str) -> None:
    assert not without_example(module)


def test_an_example_that_is_missing_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvlib.kernels.sample import softmax_topk

    monkeypatch.setattr(softmax_topk, "__doc__", "The k largest logits of each row.")
    assert without_example("kvlib.kernels") == {"softmax_topk"}


@pytest.mark.parametrize("module", PUBLIC)
def test_names_that_load_late_are_listed(module: str) -> None:
    """Sphinx asks dir for a module's members: what it does not name is not on the page."""
    loaded = importlib.import_module(module)
    assert set(public(module)) - excluded(module) <= set(dir(loaded))
