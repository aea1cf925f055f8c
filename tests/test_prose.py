"""The text: words that "How we write" rules out, words twice, spelling, repeated listings."""

import re
import subprocess
import sys
from pathlib import Path

import prose
import pytest
from notebook_code import tags

PAGES = prose.pages()
# not mistakes: an einsum, a name spelled wrong on purpose, the stem of a word
WORDS = "thn,ths,fot,truncat"
SYSTEM = re.compile(r"(?m)^\* \*\*(vLLM|SGLang|FlashInfer|transformers|llama\.cpp)\b.*$")
COMMIT = re.compile(r"(?<![\w/.])(?=[0-9a-f]*[0-9])[0-9a-f]{7,40}(?!\w)")
# not prose of ours: data, what others wrote
SKIPPED = "vendor,*.json,*.bin,*.safetensors,*.txt.gz,__pycache__,golden,reference"


def markdown(path: Path) -> list[prose.Text]:
    return [part for kind, part in prose.parts(path) if kind == "markdown"]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_is_written_as_the_guide_says(path: Path) -> None:
    """No praise, no word twice, nothing like a translation; links are English, releases named."""
    faults = []
    for part in markdown(path):
        text = prose.prose(part.text)
        plain = [s for s in prose.sentences(text) if not s.startswith("#")]
        # a link without a name shows the whole title, for which only a table has room
        lines = [line for line in part.text.splitlines() if not line.startswith("|")]
        # a commit says neither when it was read nor what a reader has installed
        systems = [m[0] for m in SYSTEM.finditer(part.text)]
        found = [*prose.FORBIDDEN.finditer(text)]
        for pattern, texts in (
            (prose.TRANSLATED, plain), (prose.NAMELESS, lines), (prose.FILE_NAME, [part.text]),
            (COMMIT, systems),
        ):
            found += [m for words in texts for m in pattern.finditer(words)]
        faults += [f"{part}: {m[0]!r}" for m in found]
        faults += [f"{part}: {words!r} twice" for words in prose.doubled(text)]
    assert faults == []


@pytest.mark.parametrize("folder", ["kvlib", "kvbook", "tests", "tools", "benchmarks"])
def test_docstrings_and_comments_are_written_as_the_guide_says(folder: str) -> None:
    paths = sorted((prose.ROOT / folder).rglob("*.py"))
    assert [fault for path in paths for fault in prose.translated(path)] == []


def test_spelling(tmp_path: Path) -> None:
    """codespell's list of known misspellings, over the prose and over every comment and name."""
    for path in PAGES:
        text = "\n".join(prose.prose(part.text) for part in markdown(path))
        (tmp_path / f"{path.name}.txt").write_text(text, encoding="utf-8")
    (tmp_path / "wrong.txt").write_text("It is " + "neccess" + "ary.\n")  # what it must find
    places = [str(tmp_path), *("kvlib", "kvbook", "tools", "tests", "benchmarks", "Makefile")]
    command = [sys.executable, "-m", "codespell_lib", "--builtin", "clear,rare", "--skip", SKIPPED]
    done = subprocess.run(
        [*command, "--ignore-words-list", WORDS, *places],
        cwd=prose.ROOT, capture_output=True, text=True,
    )
    found = done.stdout.splitlines()
    assert [line for line in found if "wrong.txt" not in line] == [], done.stderr
    assert len(found) == 1, "codespell does not find a plain mistake"


def test_no_listing_repeats_the_library() -> None:
    """What shows kvlib's code includes it; what a reader shall write is not in it already."""
    library = prose.library_runs()
    assert len(library) > 2000
    faults = []
    for path in PAGES:
        for kind, part in prose.parts(path):
            sources = [part.text] if kind == "code" else prose.listings(part.text)
            if kind == "code" and "solution" in tags_of(path, part):
                continue  # an answer may come to lines that the library has too
            for source in sources:
                for file, line in prose.pasted(source, library).items():
                    faults.append(f"{part} repeats {file}: {line}")
    assert faults == []


def tags_of(path: Path, part: prose.Text) -> list[str]:
    """The tags of the cell that a part of a notebook is."""
    return tags(prose.notebook(path).cells[int(part.place.split()[1])])


@pytest.mark.parametrize("text, words", [
    ("The the cache.", ["The the"]), ("one\none", ["one\none"]), ("what that that is", []),
    ("a `x` x b", []), ("theory or order", []),
])
def test_doubled_words(text: str, words: list[str]) -> None:
    assert prose.doubled(prose.prose(text)) == words


@pytest.mark.parametrize("word", ["simply", "Delve", "powerful", "blazingly", "In this chapter we"])
def test_ruled_out_words_are_found(word: str) -> None:
    assert prose.FORBIDDEN.search(f"We {word} do it.")


@pytest.mark.parametrize(
    "text",
    ["A row in any company.", "Who guesses more is wrong.", "It is so. Whoever looks, sees."]
    + ["two token passes", "it takes back the step", "206 operations a byte", "tokens a second"]
    + ["Keys lie in blocks.", "The cache stands at 3.", "a list of its own", "ten are left"]
    + ["It says how often.", "two places", "a block held twice", "It is behind it."],
)
def test_translations_are_found(text: str) -> None:
    assert prose.TRANSLATED.search(text)


@pytest.mark.parametrize(
    "text",
    ["Who goes next?", "copies it to whoever follows a link", "206 operations per byte"]
    + ["the bytes a token takes", "computes its tokens a second time", "S stands for tokens"]
    + ["held-out text", "two decimal places", "a block held by one request", "ten are left out"],
)
def test_plain_words_are_no_translation(text: str) -> None:
    assert prose.TRANSLATED.search(text) is None


def test_prose_leaves_code_and_formulas_out() -> None:
    text = prose.prose(
        "Words `simply` and $a a$ stay.\n\n```python\nsimply = 1\n```\n\n"
        ":::{admonition} Predict\n:class: tip\nHow many?\n:::\n\n    simply indented\n\n"
        "| simply | table |\n\nSee [the page](simply.md) {cite}`simply`.\n"
    )
    assert "simply" not in text
    assert "How many?" in text and "the page" in text and "Predict" not in text


def test_sentences_end_where_they_end() -> None:
    text = "One is short. Two is\nlonger, e.g. this: it goes on.\n\n* a point\n* another\n"
    assert prose.sentences(text) == [
        "One is short.", "Two is longer, e.g. this: it goes on.", "* a point", "* another",
    ]


def test_pasted_code_is_found_whatever_surrounds_it() -> None:
    library = prose.library_runs()
    body, file = next((run, file) for run, file in library.items() if "caches/" in file)
    listing = "x = 1\n" + "\n\n".join(f"        {line}  # why" for line in body) + "\ny = 2"
    assert list(prose.pasted(listing, library)) == [file]
    assert prose.pasted("\n".join(body[:3]), library) == {}
    fenced = f"Text\n\n```python\n{listing}\n```\n"
    assert prose.pasted(prose.listings(fenced)[0], library)
