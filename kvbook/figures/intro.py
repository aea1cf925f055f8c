"""The opening page: a text is written twice, with a cache and without; and what colours mean."""

from typing import Any

from kvbook.explorers.controls import Slider
from kvbook.explorers.explorer import Explorer, Scene
from kvbook.explorers.scenes.panels import bars_panel, cells_panel
from kvbook.explorers.scenes.words import times_words
from kvbook.figures.draw import cells, centered, figure
from kvlib.model import Decoder
from kvlib.serve.generation import generate

LEGEND = [
    ["key", "computed for the first time"],
    ["recomputed", "computed again"],
    ["cached", "read from the cache"],
    ["free", "written by this step, not computed yet"],
]
MEANINGS = {
    "query": "query",
    "key": "key, or\nfirst\ncomputed",
    "value": "value",
    "cached": "cached",
    "recomputed": "computed\nagain",
    "shared": "shared",
    "weights": "weights",
    "free": "free, or\nnot yet\ncomputed",
}


def colours() -> Any:
    """One square per role of the palette, with what it means in every figure of the book."""
    fig, ax = figure(1.1)
    cells(ax, [list(MEANINGS)])
    for i, words in enumerate(MEANINGS.values()):
        centered(ax, i, 0.62, words, va="top")
    ax.set(xlim=(-0.6, len(MEANINGS) - 0.4), ylim=(1.9, -0.6))
    ax.axis("off")
    return fig


def waste_explorer(model: Decoder, prompt: str, new: int) -> Explorer:
    """A slider over the steps in which `model` writes `new` tokens after `prompt`.

    Each scene shows the tokens that one step computes, without a cache and with one, and how many
    all steps so far have computed. The model runs here: the scenes contain the text that it writes.
    The model needs a tokenizer; new is at least 2.
    """
    ids = model.tokenizer.encode(prompt)
    generated = generate(model, [ids], max_new_tokens=new, stop_tokens=())[0]
    text = model.tokenizer.decode(ids + generated)
    steps = range(1, new + 1)
    scenes = [_scene(len(ids), step, text, new) for step in steps]
    counted = [f"{i} of {new}" for i in steps]
    slider = Slider("step", "Step", steps, value=new, texts=counted, play=True)
    title = "One text, written twice"
    return Explorer.from_frames("waste", title, slider, scenes, anchor="waste-explorer")


def _scene(prompt: int, step: int, text: str, new: int) -> Scene:
    """One step: the tokens it computes, and those of all steps up to it."""
    held = prompt + step - 1  # tokens of the text that this step reads
    fresh = prompt if step == 1 else 1  # of them not seen by an earlier step
    total = sum(range(prompt, held + 1))
    ratio = total / held
    more = times_words(ratio) if step > 1 else "equal"
    rest = ["key"] * fresh + ["free"] + [""] * (prompt + new - 1 - held)
    without, with_one = "without a cache", "with a cache"
    rows = [
        [label, [role] * (held - fresh) + rest, text]
        for label, role in ((without, "recomputed"), (with_one, "cached"))
    ]
    first = ["computed for the first time", held, "key"]
    repeated = ["computed again", total - held, "recomputed"]
    bars = [[without, [first, repeated]], [with_one, [first]]]
    squares = f"What step {step} does: one square per token"
    label = f"Tokens computed in steps 1 to {step}" if step > 1 else "Tokens computed in step 1"
    most = 1.04 * sum(range(prompt, prompt + new))
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
            {"label": "Without / with a cache", "text": more},
        ],
        "panels": [
            cells_panel(squares, rows, LEGEND),
            bars_panel(label, "tokens", most, bars),
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
        f" compute {total} tokens without a cache, {times_words(ratio)} the {held} with one."
    )
