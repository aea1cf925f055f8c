"""What `import kvlib` offers, and what asking it for a name may not do."""

from __future__ import annotations

import pkgutil
import re
import subprocess
import sys

import pytest
from repository import ROOT

import kvlib

README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["__main__", "__path__x", "foo", "foo.bar", "_x", "", "a b", "."])
def test_asking_for_a_name_that_is_not_there_says_so(name: str) -> None:
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
    assert all(getattr(kvlib, name) for name in modules), "but who knows their names finds them"
    assert {"Any", "TYPE_CHECKING", "import_module"}.isdisjoint(offered)
    assert "__version__" in dir(kvlib)
    for name in offered:
        assert getattr(kvlib, name) is not None


def test_names_of_a_submodule_that_fails_to_import_are_not_hidden(monkeypatch) -> None:
    """A package that is missing is named; it does not become a missing attribute of kvlib."""

    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")

    monkeypatch.setattr("kvlib.lazy.import_module", missing)
    monkeypatch.delitem(vars(kvlib), "testing", raising=False)
    with pytest.raises(ModuleNotFoundError, match="matplotlib"):
        kvlib.testing  # noqa: B018


def test_layouts_are_there_without_an_import_of_their_own() -> None:
    code = "import kvlib.caches; print(kvlib.caches.layouts.block_table.__name__)"
    assert python("-c", code).stdout.strip() == "block_table"


@pytest.mark.parametrize("arguments", [["gpus"], ["--help"], ["fit", "--model", "no such"]])
def test_the_command_has_two_doors(arguments: list[str]) -> None:
    short, long = (python("-m", module, *arguments) for module in ("kvlib", "kvlib.costs"))
    assert short.stdout == long.stdout and short.returncode == long.returncode
    assert short.stderr == long.stderr and short.stdout + short.stderr


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=ROOT, check=False
    )


def test_readme_names_the_families_whose_config_is_read() -> None:
    from kvlib.config.families import FAMILIES

    (named,) = re.findall(r"It reads the `config.json` of (.*?), and refuses", README, re.S)
    words = set(re.findall(r"[a-z]+", named.lower()))
    for family in FAMILIES:
        assert re.match("[a-z]+", family)[0] in words, (
            f"name {family} in README.md, in the sentence about `config.json`"
        )


def test_readme_shows_what_the_command_prints() -> None:
    (block,) = re.findall(r"```\n\$ python (-m kvlib .*?)```", README, re.S)
    command, _, shown = block.partition("\n")
    assert python(*command.split()).stdout == shown
