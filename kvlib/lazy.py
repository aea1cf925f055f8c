"""Packages whose names are imported on first use (PEP 562; SPEC 1 of Scientific Python).

A package lists its public names once, as imports that only type checkers execute ("as" tells them
that a name is the package's to hand on), and hands the rest to `attach`, which reads its source:

    if TYPE_CHECKING:
        from kvlib.caches import DenseCache as DenseCache
    else:
        from kvlib.lazy import attach

        __getattr__, __dir__, __all__ = attach(__name__)
"""

import sys
from _ast import PyCF_ONLY_AST
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Any


def attach(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """(__getattr__, __dir__, __all__) of a package; ``dir`` also shows submodules that it lists."""
    module = sys.modules[package]
    names: dict[str, str] = {}
    parts: set[str] = set()
    loader: Any = module.__loader__
    tree: Any = compile(loader.get_source(package), "<names>", "exec", PyCF_ONLY_AST)
    (block,) = (node for node in tree.body if hasattr(node, "orelse"))  # if TYPE_CHECKING:
    for node in block.body:
        for alias in node.names:
            if node.module == package:
                parts.add(alias.name)
            else:
                names[alias.name] = node.module

    def get(name: str) -> Any:
        if name in names:
            value = getattr(import_module(names[name]), name)
            setattr(module, name, value)
            return value
        hidden = name.startswith("_") or not name.isidentifier()  # to import __main__ is to run it
        if not hidden and PathFinder.find_spec(f"{package}.{name}", module.__path__):
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def shown() -> list[str]:
        return sorted({*(n for n in vars(module) if n.startswith("__")), *names, *parts})

    return get, shown, sorted(names)
