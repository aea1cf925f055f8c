"""The examples in kvlib's docstrings run, and every public function and class has one."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import kvlib

MODULES = [
    info.name
    for info in pkgutil.walk_packages(kvlib.__path__, "kvlib.")
    if not info.name.endswith("__main__")
]
WITH_EXAMPLES = [
    name
    for name in MODULES
    if (spec := importlib.util.find_spec(name))
    and ">>>" in Path(str(spec.origin)).read_text("utf-8")
]
PUBLIC = (
    "kvlib",
    "kvlib.attention",
    "kvlib.caches",
    "kvlib.norms",
    "kvlib.sampling",
    "kvlib.meter",
)
PUBLIC += ("kvlib.scheduling", "kvlib.reference", "kvlib.model", "kvlib.codecs", "kvlib.costs")


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVLIB_BACKEND", "numpy")
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    found = doctest.testmod(importlib.import_module(name), optionflags=flags)
    assert found.attempted > 0 and found.failed == 0


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_have_examples(module: str) -> None:
    found = importlib.import_module(module)
    names = getattr(found, "__all__", None) or [
        n for n, o in vars(found).items() if getattr(o, "__module__", None) == module
    ]
    without = set()
    for name in names:
        thing = getattr(found, name)
        callable_ = inspect.isfunction(thing) or inspect.isclass(thing)
        if callable_ and not name.startswith("_") and ">>>" not in (thing.__doc__ or ""):
            without.add(name)
    assert not without
