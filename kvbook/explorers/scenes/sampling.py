"""Behind the sampling explorer: what temperature, top-k and top-p leave of a real row of logits.

A row's logits are stored largest first, so that keeping the likeliest is keeping a prefix.
"""

from math import log10
from typing import Any

from kvbook.explorers.scenes.panels import bars_panel
from kvbook.explorers.scenes.words import count_words, fixed, number_words, percent_words

EULER = 2.718281828459045
SHOWN = 12  # tokens that get a bar


def sampling_scene(settings: dict, tables: Any) -> dict:
    """settings: row, temperature, top_k, top_p (percent)."""
    row = tables["logit_rows"][settings["row"]]
    before = softmax_of(row["logits"], settings["temperature"])
    kept = kept_tokens(before, settings["top_k"], settings["top_p"] / 100)
    mass = 0.0
    for p in before[:kept]:
        mass += p
    after = [p / mass for p in before[:kept]]
    words = count_words(kept, "token", "tokens")
    return {
        "title": f"After {row['title']}: {words} may be drawn",
        "summary": sampling_summary(row, settings, before, kept, mass),
        "formula": sampling_formula(row, settings, kept, mass),
        "numbers": [
            {"label": "Tokens remaining", "text": fixed(kept, 0)},
            {"label": "Their share of the probability", "text": percent_words(mass)},
            {"label": "Likeliest token, after the cuts", "text": percent_words(after[0])},
            {"label": "Entropy of a draw", "text": f"{number_words(entropy_of(after))} bits"},
        ],
        "panels": [sampling_bars(row, before, kept)],
    }


def softmax_of(logits: list[float], temperature: float) -> list[float]:
    """Probabilities of logits that are sorted, the largest first."""
    weights = [EULER ** ((x - logits[0]) / temperature) for x in logits]
    total = 0.0
    for w in weights:
        total += w
    return [w / total for w in weights]


def kept_tokens(p: list[float], top_k: int, top_p: float) -> int:
    """How many of the likeliest stay: at most top_k, and of these until their share is top_p."""
    most = min(top_k, len(p))
    if top_p == 1:
        return most  # also the tokens so unlikely that the sum no longer changes
    total = 0.0
    for x in p[:most]:
        total += x
    before, kept = 0.0, 0
    while kept < most and (kept == 0 or before / total < top_p):
        before += p[kept]
        kept += 1
    return kept


def entropy_of(p: list[float]) -> float:
    """Bits that a draw tells on average."""
    bits = 0.0
    for x in p:
        if x > 0:
            bits += x * log10(1 / x) / log10(2)
    return bits


def sampling_summary(row: dict, settings: dict, before: list[float], kept: int, mass: float) -> str:
    """What remains, in a sentence."""
    first = row["tokens"][0]
    return (
        f"At temperature {number_words(settings['temperature'])} the likeliest token after"
        f" {row['title']} is \u201c{first}\u201d, with {percent_words(before[0])} before"
        f" the cuts. Of {fixed(len(before), 0)} tokens, {fixed(kept, 0)} may be drawn. The cuts"
        f" leave {percent_words(mass)} of the probability, which is scaled up to 100 %."
    )


def sampling_formula(row: dict, settings: dict, kept: int, mass: float) -> list[str]:
    """The weight of the second token, and the cut."""
    gap = row["logits"][0] - row["logits"][1]
    temperature = number_words(settings["temperature"])
    ratio = EULER ** (gap / settings["temperature"])
    return [
        f"{row['tokens'][0]} against {row['tokens'][1]}: exp({number_words(gap)} / {temperature})"
        f" = {number_words(ratio)} times as likely",
        f"{count_words(kept, 'token', 'tokens')} with {percent_words(mass)}, divided by that share",
    ]


def sampling_bars(row: dict, before: list[float], kept: int) -> dict:
    """The probabilities of the likeliest tokens before the cuts, and which of them are cut off."""
    bars: list = []
    for i in range(min(SHOWN, len(before))):
        part = ["cut off", 100 * before[i], "free"]
        if i < kept:
            part = ["may be drawn", 100 * before[i], "muted"]
        bars.append([row["tokens"][i], [part]])
    top = 10.0
    for step in [20.0, 50.0, 100.0]:
        if 100 * before[0] > top:
            top = step
    label = f"The {fixed(SHOWN, 0)} likeliest tokens: probability before the cuts"
    return bars_panel(label, "%", top * 1.04, bars)
