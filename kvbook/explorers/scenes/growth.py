"""Behind the growth explorer: operations to generate text with a cache and without.

Every token goes through every product here, the output too, as in the first chapters' programs.
"""

from typing import Any

from kvbook.explorers.scenes.panels import axis_counts, axis_linear, bars_panel, curves_panel
from kvbook.explorers.scenes.words import (
    bytes_words,
    fixed,
    large_words,
    number_words,
    scaled_words,
    times_words,
    tokens_words,
)
from kvlib.costs.formulas import (
    attention_flops,
    cached_flops,
    linear_flops,
    stored_bytes,
    uncached_flops,
)

SAMPLES = 48  # points at which a curve is computed


def growth_scene(settings: dict, tables: Any) -> dict:
    """settings: model, prompt, new (2 tokens or more)."""
    facts = tables["models"][settings["model"]]
    prompt, fresh = settings["prompt"], settings["new"]
    slow, fast = uncached_flops(facts, prompt, fresh), cached_flops(facts, prompt, fresh)
    again = slow["linear"] + slow["attention"]
    once = fast["linear"] + fast["attention"]
    held = stored_bytes(facts["layers"], tables["codecs"]["bfloat16"], fast["tokens"])
    work = {
        "slow_tokens": slow["tokens"],
        "fast_tokens": fast["tokens"],
        "again": again,
        "once": once,
        "ratio": again / once,
        "last_slow": step_flops(facts, fast["tokens"], fast["tokens"]),
        "last_fast": step_flops(facts, 1, fast["tokens"]),
        "held": held,
    }
    return {
        "title": f"{facts['title']}: a prompt of {tokens_words(prompt)} and {fixed(fresh, 0)} new",
        "summary": growth_summary(facts, settings, work),
        "formula": growth_formula(facts, settings, work),
        "numbers": [
            {"label": "Without a cache", "text": scaled_words(again, "FLOP")},
            {"label": "With a cache", "text": scaled_words(once, "FLOP")},
            {"label": "Ratio", "text": times_words(work["ratio"])},
            {
                "label": "Ratio of the last step",
                "text": times_words(work["last_slow"] / work["last_fast"]),
            },
            {"label": "Kept for it", "text": bytes_words(held, 1024)},
        ],
        "panels": [growth_curves(facts, settings, work), growth_bars(work)],
    }


def step_flops(facts: dict, fresh: float, seq: float) -> float:
    """Operations of one step that passes `fresh` tokens, of `seq` in all."""
    return linear_flops(facts, fresh, fresh) + attention_flops(facts["layers"], fresh, seq)


def growth_summary(facts: dict, settings: dict, work: dict) -> str:
    """The two totals, their ratio, and what the cache costs."""
    again, once = scaled_words(work["again"], "FLOP"), scaled_words(work["once"], "FLOP")
    held = bytes_words(work["held"], 1024)
    sentences = [
        f"The {tokens_words(settings['new'])} take {again} if every step computes all tokens"
        f" again, {times_words(work['ratio'])} the {once} that they take with a cache.",
        f"For that, {held} of keys and values are kept (bfloat16).",
    ]
    if work["fast_tokens"] > facts["max_context"]:
        sentences.append(f"The model reads at most {tokens_words(facts['max_context'])}.")
    return " ".join(sentences)


def growth_formula(facts: dict, settings: dict, work: dict) -> list[str]:
    """Rows computed, operations of one, and the ratio."""
    prompt, fresh = settings["prompt"], settings["new"]
    terms = [fixed(prompt + i, 0) for i in range(min(fresh, 3))]
    if fresh == 4:
        terms.append(fixed(prompt + 3, 0))
    elif fresh > 4:
        terms.append("...")
        terms.append(fixed(prompt + fresh - 1, 0))
    each = linear_flops(facts, 1, 1)
    return [
        f"without a cache: {' + '.join(terms)} = {fixed(work['slow_tokens'], 0)} rows",
        f"with a cache: {fixed(prompt, 0)} + {fixed(fresh - 1, 0)}"
        f" = {fixed(work['fast_tokens'], 0)} rows",
        f"a row: 2 \u00d7 {large_words(each / 2)} weights = {scaled_words(each, 'FLOP')},"
        " and attention to the rows before",
        f"{scaled_words(work['again'], 'FLOP')} / {scaled_words(work['once'], 'FLOP')}"
        f" = {number_words(work['ratio'])}",
    ]


def flops_unit(most: float) -> dict:
    """The unit in which `most` operations read well: {"name", "size"}."""
    unit: dict = {"name": "MFLOP", "size": 1000000.0}
    for name in ["GFLOP", "TFLOP", "PFLOP", "EFLOP"]:
        if most >= unit["size"] * 1000:
            unit = {"name": name, "size": unit["size"] * 1000}
    return unit


def growth_curves(facts: dict, settings: dict, work: dict) -> dict:
    """Operations of every step: without a cache they grow, with one they fall after the prompt."""
    prompt, fresh = settings["prompt"], settings["new"]
    steps = [1]
    for j in range(SAMPLES):
        at = 2 + j * (fresh - 2) // (SAMPLES - 1)
        if at > steps[len(steps) - 1] and at <= fresh:
            steps.append(at)
    slow: list[list[float]] = []
    fast: list[list[float]] = []
    for i in steps:
        seq = prompt + i - 1
        slow.append([i, step_flops(facts, seq, seq)])
        fast.append([i, step_flops(facts, seq if i == 1 else 1, seq)])
    unit = flops_unit(work["last_slow"])
    x, top = axis_counts("new token", fresh * 1.02), work["last_slow"] * 1.12
    lines = [["recomputed", "recomputed", slow, False], ["with a cache", "key", fast, False]]
    points = [
        [scaled_words(work["last_slow"], "FLOP"), "recomputed", fresh, work["last_slow"]],
        [scaled_words(work["last_fast"], "FLOP"), "key", fresh, work["last_fast"]],
    ]
    y = axis_linear(unit["name"], top, unit["size"])
    return curves_panel("Operations of each step", x, y, lines, points)


def growth_bars(work: dict) -> dict:
    """The totals: what must be computed once, and what is computed again."""
    unit = flops_unit(work["again"])
    once, again = work["once"] / unit["size"], work["again"] / unit["size"]
    needed = ["computed once", once, "key"]
    repeated = ["computed again", again - once, "recomputed"]
    bars = [["without a cache", [needed, repeated]], ["with a cache", [needed]]]
    return bars_panel("Operations in all", unit["name"], again * 1.04, bars)
