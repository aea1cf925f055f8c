"""The opening page: a text is written twice, with a cache and without; and what colours mean."""

from __future__ import annotations

from typing import Any

from kvbook.explorers.controls import Slider
from kvbook.explorers.explorer import Explorer, Scene
from kvbook.explorers.scenes.panels import bars_panel, cells_panel
from kvbook.explorers.scenes.words import times_words
from kvbook.figures.draw import cells, centered, figure
from kvlib.meter import Meter
from kvlib.model import Decoder
from kvlib.serve.generation import generate

LEGEND = [
    ["key", "computed for the first time"],
    ["recomputed", "computed again"],
    ["cached", "read from the cache"],
    ["free", "written by this step"],
]
_FIRST = "Operations of step 1, in millions"
MEANINGS = {
    "query": "query",
    "key": "key",
    "value": "value",
    "cached": "cached",
    "recomputed": "computed\nagain",
    "shared": "shared",
    "weights": "weights",
    "free": "free\nmemory",
}


def colours() -> Any:
    """One square per role of the palette, with what it means in every figure of the book."""
    fig, ax = figure(0.95)
    cells(ax, [list(MEANINGS)])
    for i, words in enumerate(MEANINGS.values()):
        centered(ax, i, 0.62, words, va="top")
    ax.set(xlim=(-0.6, len(MEANINGS) - 0.4), ylim=(1.6, -0.6))
    ax.axis("off")
    return fig


def waste_explorer(model: Decoder, prompt: str, new: int) -> Explorer:
    """A slider over the steps in which `model` writes `new` tokens after `prompt`.

    Each scene shows the tokens that one step computes, without a cache and with one, and the
    operations of all steps so far. The model runs here: its text and the operations that
    `kvlib.Meter` counted are in the scenes. The model needs a tokenizer; new is at least 2.
    """
    ids = model.tokenizer.encode(prompt)
    generated = generate(model, [ids], max_new_tokens=new, stop_tokens=())[0]
    again: list[int] = []
    once: list[int] = []
    for step in range(1, new + 1):
        with Meter() as alone:
            generate(model, [ids + generated[: step - 1]], max_new_tokens=1, stop_tokens=())
        again.append(alone.flops + (again[-1] if again else 0))
        with Meter() as kept:
            generate(model, [ids], max_new_tokens=step, stop_tokens=())
        once.append(kept.flops)
    text = model.tokenizer.decode(ids + generated)
    steps = range(1, new + 1)
    scenes = [_scene(len(ids), step, text, again, once) for step in steps]
    counted = [f"{i} of {new}" for i in steps]
    slider = Slider("step", "Step", steps, value=new, texts=counted, play=True)
    title = "One text, written twice"
    return Explorer.from_frames("waste", title, slider, scenes, anchor="waste-explorer")


def _scene(prompt: int, step: int, text: str, again: list[int], once: list[int]) -> Scene:
    """One step: the tokens it computes, and the operations of the steps up to it."""
    held = prompt + step - 1  # tokens of the text that this step reads
    fresh = prompt if step == 1 else 1  # of them not seen by an earlier step
    total = sum(range(prompt, held + 1))
    fast = once[step - 1] / 1e6
    ratio = again[step - 1] / once[step - 1]
    more = times_words(ratio) if step > 1 else "equal"
    rest = ["key"] * fresh + ["free"] + [""] * (prompt + len(again) - 1 - held)
    without, with_one = "without a cache", "with a cache"
    rows = [
        [label, [role] * (held - fresh) + rest, text]
        for label, role in ((without, "recomputed"), (with_one, "cached"))
    ]
    first = ["computed for the first time", fast, "key"]
    repeated = ["computed again", (again[step - 1] - once[step - 1]) / 1e6, "recomputed"]
    bars = [[without, [first, repeated]], [with_one, [first]]]
    squares = f"What step {step} does: one square per token"
    label = f"Operations of steps 1 to {step}, in millions" if step > 1 else _FIRST
    return {
        "title": f"Step {step} writes {text[held]!r}",
        "summary": _summary(step, held, fresh, total, ratio),
        "formula": [
            f"without a cache: {_sum(prompt, step)}{total} tokens computed",
            f"with a cache: {_sum_once(prompt, step)}{held} tokens computed",
        ],
        "numbers": [
            {"label": "Tokens computed so far, without a cache", "text": str(total)},
            {"label": "Tokens computed so far, with a cache", "text": str(held)},
            {"label": "Operations, without / with a cache", "text": more},
        ],
        "panels": [
            cells_panel(squares, rows, LEGEND),
            bars_panel(label, "million", again[-1] / 1e6 * 1.04, bars),
        ],
    }


def _sum(prompt: int, step: int) -> str:
    """prompt + (prompt + 1) + ... =, a term for each step; long sums are cut short."""
    terms = [str(prompt + i) for i in range(step)]
    shown = terms if step <= 4 else [*terms[:2], "...", terms[-1]]
    return f"{' + '.join(shown)} = " if step > 1 else ""


def _sum_once(prompt: int, step: int) -> str:
    return f"{prompt} + {step - 1} = " if step > 1 else ""


def _summary(step: int, held: int, fresh: int, total: int, ratio: float) -> str:
    if step == 1:
        return f"Step 1 computes all {held} tokens of the prompt, with a cache or without."
    return (
        f"Without a cache, step {step} computes {held} tokens. With a cache, it computes {fresh}"
        f" and reads the keys and values of the other {held - fresh}. All {step} steps together"
        f" compute {total} tokens without a cache and {held} with one. Without"
        f" a cache, that takes {times_words(ratio)} as many operations."
    )
