"""Wrong answers to the warm-up, each with the words it is refused with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from notebook_code import BOOK, namespace, read, smallest_margin

from kvbook.exercises.intro import check_times_computed
from kvbook.figures.intro import waste_explorer
from kvlib import Meter, generate, load_reference_model


@pytest.mark.parametrize(
    "wrong, words",
    [
        (lambda position, steps: steps, "no token at position 3 yet"),
        (lambda position, steps: steps - position - 1, "is 46, one too few"),
        (lambda position, steps: steps - position + 1, "is 48, one too many"),
        (lambda position, steps: steps - position, "is -5: a key whose token has not come"),
        (lambda position, steps: abs(steps - position), "got 5, needed 0: four steps never reach"),
        (lambda position, steps: 47, "times_computed(0, 50): got 47, needed 50: every step sees"),
        (lambda position, steps: max(1, steps - position), "got 1, needed 0"),
        (lambda position, steps: steps * (steps + 1) // 2, "got 1275, needed 47"),
        (lambda position, steps: "47", "expected one number, got str"),
        (lambda position, steps: steps - positions, "raised NameError"),  # noqa: F821
    ],
)
def test_refused_with_fitting_words(wrong: Callable[..., Any], words: str) -> None:
    report = check_times_computed(wrong)
    assert report.status == "not yet"
    assert words in report.finding


def test_right_answer_passes() -> None:
    report = check_times_computed(lambda position, steps: max(0, steps - position))
    assert report.passed and len(report.proved) == 4


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
        assert len(without) == len(kept) == prompt + 3, "the picture keeps its width"
        fresh = prompt if step == 1 else 1
        for cells, seen in ((without, "recomputed"), (kept, "cached")):
            assert cells[:held] == [seen] * (held - fresh) + ["key"] * fresh
            assert not any(cells[held:])
        slow, fast = (sum(p["value"] for p in b["parts"]) for b in scene["panels"][1]["bars"])
        assert slow >= fast and (slow > fast) == (step > 1)
    totals = {number["label"]: number["text"] for number in scene["numbers"]}
    assert totals["Tokens computed so far, without a cache"] == str(8 + 9 + 10 + 11)
    assert totals["Tokens computed so far, with a cache"] == str(8 + 3)
    with Meter() as meter:
        generate(model, ["import o"], max_new_tokens=4, stop_tokens=())
    assert fast == pytest.approx(meter.flops / 1e6, rel=0.01), "drawn as it was counted"
