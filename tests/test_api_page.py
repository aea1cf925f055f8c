"""The page of the API: every public name is on it, and docstrings survive the way there."""

import importlib
import inspect
import re
from collections import Counter

import pytest
from api_pages import as_rst, names_of
from notebook_code import BOOK

import kvlib

PAGE = (BOOK / "api.md").read_text(encoding="utf-8")
MODULES = re.findall(r"^\.\. automodule:: ([\w.]+)$", PAGE, re.MULTILINE)
DATA = set(re.findall(r"(kv(?:lib|book)\.[\w.]+\.[A-Z]+)$", PAGE, re.MULTILINE))
OF_PYTHON = {inspect.getdoc(kind) for kind in (bool, float, int, property, str, tuple)}
DATA |= set(re.findall(r"^\.\. autoclass:: ([\w.]+)$", PAGE, re.MULTILINE))


def public(module: str) -> list[str]:
    loaded = importlib.import_module(module)
    names = getattr(loaded, "__all__", None)
    if names is None:
        members = vars(loaded).items()
        mine = {n: o for n, o in members if getattr(o, "__module__", None) == module}
        names = [n for n, o in mine.items() if callable(o) and not n.startswith("_")]
    return [name for name in names if not name.startswith("_")]


def excluded(module: str) -> set[str]:
    match = re.search(rf"automodule:: {module}\n   :members:\n   :exclude-members: (.*)", PAGE)
    return set(match[1].split(", ")) if match else set()


def test_the_modules_a_reader_meets_are_there() -> None:
    wanted = ("caches", "codecs", "costs", "kernels", "meter", "model", "norms", "serve")
    assert {"kvlib", "kvbook.figures", *(f"kvlib.{name}" for name in wanted)} <= set(MODULES)
    assert "kvlib.caches.layouts" in MODULES, "what users of vLLM and FlashInfer look for first"


def test_each_public_object_stands_in_one_place() -> None:
    places: Counter[int] = Counter()
    names = {}
    for module in (*MODULES, "kvlib.attention"):
        for name in public(module):
            thing = getattr(importlib.import_module(module), name)
            key = id(thing) if inspect.isclass(thing) or inspect.isfunction(thing) else hash(name)
            names[key] = f"{module}.{name}"
            shown = module in MODULES and name not in excluded(module)
            places[key] += shown or f"{module}.{name}" in DATA
    wrong = {names[key]: places[key] for key in names if places[key] != 1}
    assert not wrong, f"not in one place of book/api.md: {wrong}"


def test_what_is_excluded_exists() -> None:
    for module in MODULES:
        assert excluded(module) <= set(public(module)), module


@pytest.mark.parametrize(("plain", "rst"), [
    ("Words about `x` and ``y``.", "Words about \\ ``x``\\  and \\ ``y``\\ ."),
    ("The `x`\nof ``y``", "The \\ ``x``\nof \\ ``y``"),
    ("As :func:`kvlib.attend`.", "As \\ ``kvlib.attend``\\ ."),
    ("2*3, a_b, |x|, *args", "2\\*3, a\\_b, \\|x\\|, \\*args"),
    ("q (T, D)   →   o", "::\n\n   q (T, D)   →   o"),
    ("  indented\n  ``code``", "::\n\n     indented\n     code"),
    ("x   as :func:`kvlib.attend` has it", "::\n\n   x   as kvlib.attend has it"),
    ("* one\n  more\n* two", "- one\n  more\n- two"),
    (">>> 1 + 1\n2", ".. code-block:: pycon\n\n   >>> 1 + 1\n   2"),
    ("Text.\n>>> 1\n1", "Text.\n\n.. code-block:: pycon\n\n   >>> 1\n   1"),
    ("See arXiv:1706.03762.", "See `arXiv:1706.03762 <https://arxiv.org/abs/1706.03762>`__."),
    (
        "(doi:10.1145/1498765.1498785)",
        "(`doi:10.1145/1498765.1498785 <https://doi.org/10.1145/1498765.1498785>`__)",
    ),
])
def test_a_docstring_reads_the_same(plain: str, rst: str) -> None:
    assert "\n".join(as_rst(plain.split("\n"))).strip() == rst


def test_paragraphs_stay_apart() -> None:
    assert as_rst(["one", "", "", "two"]) == ["one", "", "two", ""]


def test_a_parameter_that_is_explained_gets_a_line_of_its_own() -> None:
    doc = ["Take keys. window: of one", "layer. lens, n: numbers. Then more.", "Raises ValueError."]
    assert as_rst(doc, {"window", "lens", "n"}) == [
        "Take keys.", "", "- \\ ``window``\\ : of one layer.",
        "- \\ ``lens``\\ , \\ ``n``\\ : numbers. Then more.",
        "", "Raises ValueError.", "",
    ]
    assert as_rst(doc) == as_rst(doc, {"other"}) == [*doc, ""]


def test_the_names_of_a_class_are_its_parameters_and_fields() -> None:
    assert {"num_kv_heads", "window"} <= names_of(kvlib.LayerSpec)
    assert {"behind", "run_on"} <= names_of(kvlib.kernels.decode_attention)
    assert names_of(kvlib.codecs.PLAIN) == set()


@pytest.mark.parametrize("module", MODULES)
def test_no_member_borrows_the_words_of_a_type_of_python(module: str) -> None:
    """`inspect.getdoc` gives a property without a docstring that of its base class's value."""
    for name in public(module):
        thing = getattr(importlib.import_module(module), name)
        for member, value in vars(thing).items() if inspect.isclass(thing) else ():
            if isinstance(value, property) and not member.startswith("_"):
                assert inspect.getdoc(value) not in OF_PYTHON, f"{module}.{name}.{member}"
