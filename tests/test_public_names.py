"""What `import kvlib` offers, and what asking it for a name may not do."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest

import kvlib


@pytest.mark.parametrize("name", ["__main__", "__path__x", "foo", "foo.bar", "_x", "", "a b", "."])
def test_asking_for_a_name_that_does_not_exist_says_so(name: str) -> None:
    assert not hasattr(kvlib, name)
    with pytest.raises(AttributeError, match="module 'kvlib' has no attribute"):
        getattr(kvlib, name)


def test_dir_offers_what_a_user_wants_and_nothing_else() -> None:
    offered = {name for name in dir(kvlib) if not name.startswith("__")}
    modules = {m.name for m in pkgutil.iter_modules(kvlib.__path__) if m.name != "__main__"}
    names = {n for n in kvlib.__all__ if n != "__version__"}
    assert names < offered <= modules | names
    assert {"costs", "kernels", "caches", "Scheduler", "generate"} <= offered
    assert {"prompts", "serving", "progress", "events", "commands"}.isdisjoint(offered)
    assert all(getattr(kvlib, name) for name in modules), "modules are importable all the same"
    assert {"Any", "TYPE_CHECKING", "import_module"}.isdisjoint(offered)
    assert "__version__" in dir(kvlib)
    for name in offered:
        assert getattr(kvlib, name) is not None


def test_names_of_a_submodule_that_fails_to_import_are_not_hidden(monkeypatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")

    monkeypatch.setattr("kvlib.lazy.import_module", missing)
    monkeypatch.delitem(vars(kvlib), "testing", raising=False)
    with pytest.raises(ModuleNotFoundError, match="matplotlib"):
        kvlib.testing  # noqa: B018


def test_layouts_are_loaded_with_kvlib_caches() -> None:
    code = "import kvlib.caches; print(kvlib.caches.layouts.block_table.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "block_table\n"
