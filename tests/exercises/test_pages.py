"""What pages print and draw."""

import random

import numpy as np
import pytest
from notebook_code import BOOK, code_cells, namespace, read, smallest_margin
from small_scenes import check_scene

from kvbook.example import TEXT, VOCABULARY, run
from kvbook.figures.cached import cache_explorer
from kvbook.figures.intro import waste_explorer
from kvlib import Meter, generate, load_reference_model
from kvlib.reference.recall import recall_prompt


def test_printed_continuation_is_the_same_on_every_machine() -> None:
    page = namespace(read(BOOK / "intro.ipynb"))
    assert smallest_margin(page["model"], page["prompt"], page["continuation"]) >= 0.02


def test_the_slider_counts_what_each_step_computes() -> None:
    model = load_reference_model(xp=np)
    explorer = waste_explorer(model, "import o", new=4)
    prompt = len("import o")
    for step in range(1, 5):
        scene = explorer.scene(step=step)
        held = prompt + step - 1
        without, kept = (row["cells"] for row in scene["panels"][0]["rows"])
        assert len(without) == len(kept) == prompt + 4, "the picture keeps its width"
        fresh = prompt if step == 1 else 1
        for cells, seen in ((without, "recomputed"), (kept, "cached")):
            assert cells[:held] == [seen] * (held - fresh) + ["key"] * fresh
            assert cells[held] == "free" and not any(cells[held + 1 :])
        slow, fast = (sum(p["value"] for p in b["parts"]) for b in scene["panels"][1]["bars"])
        assert slow >= fast and (slow > fast) == (step > 1)
    totals = {number["label"]: number["text"] for number in scene["numbers"]}
    assert totals["Tokens computed so far, without a cache"] == str(8 + 9 + 10 + 11)
    assert totals["Tokens computed so far, with a cache"] == str(8 + 3)
    assert (slow, fast) == (8 + 9 + 10 + 11, 8 + 3), "the bars show the same counts"
    ids = model.tokenizer.encode("import o")
    generated = generate(model, [ids], max_new_tokens=4, stop_tokens=())[0]
    with Meter() as alone:
        for step in range(4):
            generate(model, [ids + generated[:step]], max_new_tokens=1, stop_tokens=())
    with Meter() as kept:
        generate(model, [ids], max_new_tokens=4, stop_tokens=())
    # logits are computed for one token of a step, and attention grows with the text
    assert alone.flops / kept.flops == pytest.approx(slow / fast, rel=0.1), "as it was counted"


def test_the_drawn_cache_is_the_run_of_the_example() -> None:
    def close(cells: list[dict[str, str]], right: np.ndarray) -> bool:
        return np.allclose([float(c["text"].replace("−", "-")) for c in cells], right, atol=0.006)

    explorer = cache_explorer()
    for t in range(1, len(TEXT)):
        scene, trace = explorer.scene(step=t), run(TEXT[:t])
        check_scene(scene)
        query, *cached = [row["columns"] for row in scene["panels"][0]["rows"]]
        assert len(cached) == len(TEXT), "the picture keeps its height"
        assert close(query[0], trace.q[-1]) and close(cached[t][2], trace.o[-1])
        for i, (key, bar, value) in enumerate(cached[:t]):
            assert close(key, trace.k[i]) and close(value, trace.v[i])
            assert close(bar, trace.weights[-1, i])
            roles = ["key", "value"] if i == t - 1 else ["cached", "cached"]
            assert [key[0]["role"], value[0]["role"]] == roles, "only the newest row is computed"
        assert scene["numbers"][-1]["text"] == VOCABULARY[TEXT[t]], "it writes the text"


def test_the_recalled_answer_wins_clearly() -> None:
    model = load_reference_model(xp=np)
    prompt, answer = recall_prompt(random.Random(0), 40, names=2, lead=0)
    source = "\n".join(cell["source"] for cell in code_cells(read(BOOK / "naive.ipynb")))
    assert "recall_prompt(random.Random(0), 40, names=2, lead=0)" in source
    assert smallest_margin(model, prompt.decode(), answer.decode()) >= 0.02
