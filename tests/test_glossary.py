"""Every term of the glossary is used, each chapter links its first use, peers' names are there."""

from pathlib import Path

import link_terms
import pytest
from notebook_code import NOTEBOOKS

TEXT = link_terms.GLOSSARY.read_text(encoding="utf-8")
TERMS = link_terms.terms(TEXT)
# What other projects call the same thing, so that a reader who knows it by that name finds it.
PEERS = (
    *("page_size", "page_block_size", "page_table", "kv_indptr", "kv_indices", "kv_last_page_len"),
    *("out_cache_loc", "slot_mapping", "qo_indptr", "cu_seqlens_q", "query_start_loc"),
    *("num_attention_heads", "num_key_value_heads", "softmax_scale", "scaling", "merge_state"),
    *("BlockManager", "BlockPool", "crop", "trim", "EXTEND", "append"),
)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_first_uses_are_linked(path: Path) -> None:
    old, new, _ = link_terms.linked(path, TERMS)
    assert old == new, f"run: python tools/link_terms.py {path.stem}"


def test_every_term_is_used_in_a_chapter() -> None:
    used = set().union(*(link_terms.linked(path, TERMS)[2] for path in NOTEBOOKS))
    assert set(TERMS) <= used, f"in no chapter: {sorted(set(TERMS) - used)}"


def test_terms_are_sorted_and_defined_once() -> None:
    assert len(TERMS) >= 35
    assert sorted(TERMS, key=str.lower) == TERMS and len(set(TERMS)) == len(TERMS)
    for name in {**link_terms.FORMS, **link_terms.NOT_IN}:
        assert name in TERMS, f"{name} is no term of the glossary"


@pytest.mark.parametrize("name", PEERS)
def test_the_names_of_peers_stand_beside_ours(name: str) -> None:
    assert name in TEXT


def linked(text: str, *names: str) -> str:
    return "\n---\n".join(link_terms.link(text.split("\n---\n"), names)[0])


def test_only_the_first_use_is_linked_as_it_is_written() -> None:
    assert linked("Blocks hold. A block.", "block") == "{term}`Blocks <block>` hold. A block."
    assert linked("one\n---\na ridge, a ridge", "ridge") == "one\n---\na {term}`ridge`, a ridge"


def test_a_second_run_changes_nothing_and_a_moved_first_use_is_followed() -> None:
    once = linked("A ridge.", "ridge")
    assert linked(once, "ridge") == once
    assert linked("Ridge, first. " + once, "ridge") == "{term}`Ridge <ridge>`, first. A ridge."


def test_longer_terms_win() -> None:
    assert linked("a block table", "block", "block table") == "a {term}`block table`"


@pytest.mark.parametrize("text", [
    "# A ridge", "`ridge`", "$ridge$", "$$\nridge\n$$", "[ridge](roofline.ipynb)",
    "```python\nridge\n```",
    ":::{exercise-start} A ridge\n:label: ridge\n:::",
    "```{admonition} Hint\nWords.\n```\n\n```python\nridge\n```",
    "{doc}`ridge`", "bridge, ridge-like",
])
def test_what_is_not_prose_is_left_alone(text: str) -> None:
    assert linked(text, "ridge") == text


@pytest.mark.parametrize(
    "text",
    ["```{admonition} Hint\n:class: dropdown\nThe ridge.\n```", "$$x$$\nThe ridge.", "| ridge |"]
    + [":::\nridge", "```{admonition} Hint\nWords.\n```\nThe ridge."],
)
def test_boxes_are_prose(text: str) -> None:
    assert linked(text, "ridge") == text.replace("ridge", "{term}`ridge`")


def test_check_says_what_to_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("A ridge.")])
    nbformat.write(notebook, tmp_path / "one.ipynb")
    glossary = tmp_path / "glossary.md"
    glossary.write_text("::::{glossary}\nridge\n  Text.\n\nvoid\n  Text.\n::::\n")
    monkeypatch.setattr(link_terms, "BOOK", tmp_path)
    monkeypatch.setattr(link_terms, "GLOSSARY", glossary)
    assert link_terms.main(["--check", "one"]) == 1
    assert link_terms.main(["one"]) == 0 and link_terms.main(["--check", "one"]) == 0
    assert link_terms.main(["--check"]) == 1  # void is used nowhere
    cell = nbformat.read(tmp_path / "one.ipynb", as_version=4).cells[0]
    assert cell.source == "A {term}`ridge`."
