"""The programs that the first two chapters write in the open, run on the checkpoints of golden."""

import ast
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from notebook_code import BOOK, code_cells, read, smallest_margin, tags

import kvlib
from kvbook.exercises.naive import logits_of
from kvlib.model.safetensors import SafetensorsFile

GOLDEN = Path(__file__).parent / "golden"
# The checkpoints that need nothing but what the sixty lines have: no bias, no window, no scaling.
PLAIN = ("llama", "mistral-full")
PROGRAM = ("rms_norm", "rope", "softmax", "head_weights", "project", "attention", "mlp")
PROGRAM += ("forward", "generate")
RELATIVE = 1e-5  # distance of two float32 implementations, in lengths of the logits


@cache
def functions(chapter: str) -> dict[str, str]:
    """Source of the functions that a chapter's cells define, by name."""
    found: dict[str, str] = {}
    for cell in code_cells(read(BOOK / f"{chapter}.ipynb")):
        lines = cell["source"].splitlines()
        if {"stub", "solution"} & set(tags(cell)):
            continue
        for node in ast.parse(cell["source"]).body:
            if isinstance(node, ast.FunctionDef):
                found.setdefault(node.name, "\n".join(lines[node.lineno - 1 : node.end_lineno]))
    return found


def program(chapter: str, folder: Path) -> dict[str, Any]:
    """A chapter's functions over a checkpoint."""
    sources = functions(chapter)
    config = json.loads((folder / "config.json").read_text())
    space: dict[str, Any] = {"np": np, "math": __import__("math")}
    names = [*PROGRAM, *(["new_cache"] if chapter == "cached" else [])]
    for name in names:
        exec(sources[name], space)
    file = SafetensorsFile(folder / "model.safetensors")
    space["w"] = {name: file.read(name).astype(np.float32) for name in file.tensors}
    space["L"], space["D"] = config["num_hidden_layers"], config["head_dim"]
    space["Hq"], space["Hkv"] = config["num_attention_heads"], config["num_key_value_heads"]
    space["G"], space["eps"] = space["Hq"] // space["Hkv"], config["rms_norm_eps"]
    space["theta"] = config.get("rope_parameters", config)["rope_theta"]
    return space


def stored(name: str) -> tuple[list[list[int]], list[np.ndarray], list[list[int]]]:
    """What transformers computed: prompts, their logits, their greedy tokens."""
    with np.load(GOLDEN / name / "expected.npz") as file:
        bounds = np.cumsum(file["lengths"])[:-1]
        prompts = [one.tolist() for one in np.split(file["prompts"], bounds)]
        return prompts, np.split(file["logits"], bounds), file["greedy"].tolist()


def assert_close(ours: np.ndarray, theirs: np.ndarray) -> None:
    assert ours.dtype == np.float32 and ours.shape == theirs.shape
    assert np.linalg.norm(ours - theirs) < RELATIVE * np.linalg.norm(theirs)
    assert np.abs(ours - theirs).max() < 5 * RELATIVE * np.abs(theirs).max()


@pytest.mark.parametrize("name", PLAIN)
def test_sixty_lines_give_the_logits_of_transformers(name: str) -> None:
    space = program("naive", GOLDEN / name)
    for prompt, logits, greedy in zip(*stored(name), strict=True):
        assert_close(space["forward"](prompt), logits)
        assert space["generate"](prompt, len(greedy)) == greedy


def reference() -> Path:
    return Path(kvlib.__file__).parent / "reference"


def test_sixty_lines_give_the_logits_of_the_reference_model() -> None:
    space, model = program("naive", reference()), kvlib.load_reference_model(xp=np)
    text = kvlib.reference.sample_text().encode()
    for start, length in ((0, 1), (3000, 40), (6000, 300), (9000, 2)):
        tokens = list(text[start : start + length])
        assert_close(space["forward"](tokens), logits_of(model, tokens))


def test_the_listing_is_the_program() -> None:
    """What the reader unfolds in one piece is the cells' code, and it is about sixty lines."""
    text = "\n".join(cell["source"] for cell in read(BOOK / "naive.ipynb")["cells"])
    (listing,) = re.findall(r"(?s)```python\n(.*?)\n```", text)
    assert listing == "\n\n".join(functions("naive")[name] for name in in_order(listing))
    assert set(in_order(listing)) == set(PROGRAM)
    lines = [line for line in listing.splitlines() if line.strip()]
    assert 55 <= len(lines) <= 65
    assert f"its {len(lines)} lines" in text


def in_order(listing: str) -> list[str]:
    return [node.name for node in ast.parse(listing).body if isinstance(node, ast.FunctionDef)]


MARKS = ("# new", "# changed")
CHANGED = ("attention", "forward", "generate")


def bare(line: str) -> str:
    """A line without its comment and its indentation."""
    return line.split("  #")[0].strip()


def test_eight_lines_are_new_and_six_are_changed() -> None:
    """Apart from the marked lines, the program is that of `naive`; the table shows both."""
    old_lines: list[str] = []
    marked = functions("cached")["new_cache"].splitlines()
    for name in PROGRAM:
        before = functions("naive")[name].splitlines()
        after = functions("cached")[name].splitlines()
        kept = [line for line in after if not line.endswith(MARKS)]
        replaced = [line for line in before if line not in kept]
        assert [line for line in before if line in kept] == kept, f"{name}: unmarked lines differ"
        assert (before != after) == (name in CHANGED)
        old_lines += [bare(line) for line in replaced]
        marked += [line for line in after if line.endswith(MARKS)]
    counts = [sum(line.endswith(mark) for line in marked) for mark in MARKS]
    assert counts == [8, 6] and len(old_lines) == 6 and len(marked) == 14
    cells = read(BOOK / "cached.ipynb")["cells"]
    (table,) = [cell["source"] for cell in cells if "| before | with a cache |" in cell["source"]]
    assert "fourteen lines: eight are new, and six are changed" in table
    # a long line of code is two spans
    rows = re.findall(r"(?m)^\| (?:`(.*)`)? \| `(.*)` \|$", table.replace("` `", " "))
    assert [new for _, new in rows] == [bare(line) for line in marked]
    assert sorted(old for old, _ in rows if old) == sorted(old_lines)
    assert all(bool(old) == line.endswith("# changed") for (old, _), line in zip(rows, marked))


@pytest.mark.parametrize("name", CHANGED)
def test_the_old_functions_are_those_of_naive(name: str) -> None:
    old = functions("cached")[f"{name}_old"].replace("_old(", "(")
    assert old == functions("naive")[name]


@pytest.mark.parametrize("name", PLAIN)
def test_with_a_cache_the_logits_and_tokens_of_transformers(name: str) -> None:
    space = program("cached", GOLDEN / name)
    for prompt, logits, greedy in zip(*stored(name), strict=True):
        assert space["generate"](prompt, len(greedy)) == greedy
        for chunk in (1, 3, 7, len(prompt)):
            cache, rows = space["new_cache"](), []
            for start in range(0, len(prompt), chunk):
                rows.append(space["forward"](prompt[start : start + chunk], cache))
            assert_close(np.concatenate(rows), logits)


def test_what_the_chapters_let_the_model_say_wins_clearly() -> None:
    model, generate = kvlib.load_reference_model(xp=np), program("cached", reference())["generate"]
    text = kvlib.reference.sample_text()
    prompts = [text[start : start + 160] for start in (3000, 5000, 7000, 9000)]
    for prompt in [*prompts, "return len("]:
        said = bytes(generate(list(prompt.encode()), 40)).decode()
        assert smallest_margin(model, prompt, said) >= 0.02
