"""MyST as plain Markdown: what a notebook shows where no book is rendered."""

import pytest
from repository import ROOT

from kvbook.course.markdown import cited, plain, titles

TITLES = {"cached": "Keep the keys", "notation": "Notation"}


def shown(text: str) -> str:
    return plain(text, TITLES, lambda key: f"<{key}>", {"cached"})


@pytest.mark.parametrize(("myst", "markdown"), [
    ("See {doc}`cached`.", "See [Keep the keys](cached.ipynb)."),
    ("See {doc}`there <cached>`.", "See [there](cached.ipynb)."),
    ("See {doc}`notation`.", "See Notation."),
    ("A {term}`KV cache`, {term}`logits <Logits>`.", "A KV cache, logits."),
    ("As {cite}`a2020,b2021` say.", "As <a2020>, <b2021> say."),
    ("Code `{x}` and `{'a': 1}` stay.", "Code `{x}` and `{'a': 1}` stay."),
    ("(here)=\n## A heading", "## A heading"),
    ("```python\nx = {1}\n```", "```python\nx = {1}\n```"),
    (":::{admonition} Predict\n:class: tip\nHow many?\n:::", "> **Predict**\n>\n> How many?"),
    (
            "```{admonition} Hint 1\n:class: dropdown hint\nLook at {doc}`cached`.\n```\nAfter.",
            "<details><summary>Hint 1</summary>\n\nLook at [Keep the keys](cached.ipynb).\n\n"
            "</details>\n\nAfter.",
        ),
    (":::{note}\nOne.\n\nTwo.\n:::", "> **Note**\n>\n> One.\n>\n> Two."),
    (
        "::::{admonition} Outer\n:::{admonition} Inner\nWord.\n:::\n::::",
        "> **Outer**\n>\n> > **Inner**\n> >\n> > Word.",
    ),
    (
        ":::{exercise-start} A window\n:label: naive-window\n:::\n\nWrite it.",
        "**Exercise: A window**\n\n\nWrite it.",
    ),
    (
        ":::{exercise-end}\n:::\n:::{solution-start} naive-window\n:class: dropdown\n:::\nSo.",
        "<details><summary>Solution</summary>\n\nSo.\n\n</details>",
    ),
    (":::{solution-end}\n:::\n\nNext.", "\nNext."),
])
def test_myst_becomes_what_jupyter_shows(myst: str, markdown: str) -> None:
    assert shown(myst) == markdown


def test_a_paper_is_named_and_linked() -> None:
    cite = cited(ROOT / "book" / "references.bib")
    assert cite("vaswani2017attention") == (
        "[Vaswani et al. 2017](https://arxiv.org/abs/1706.03762)"
    )
    assert cite("gemma2025gemma3") == "[Gemma Team 2025](https://arxiv.org/abs/2503.19786)"
    with pytest.raises(KeyError):
        cite("nobody1900nothing")


def test_titles_are_those_of_the_pages() -> None:
    assert titles(ROOT / "book")["intro"] == "The KV Cache Book"
    assert titles(ROOT / "book")["notation"] == "Notation"
