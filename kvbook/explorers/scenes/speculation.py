"""Behind the explorer of guesses: the speed-up against their number, for one batch on one GPU.

Times are counted in steps without guesses. A step takes as long as reading its 16-bit weights, all
of them, or multiplying with them, whichever is longer. Attention is left out.
"""

from typing import Any

from kvbook.explorers.scenes.memory import unconfirmed
from kvbook.explorers.scenes.panels import axis_counts, axis_linear, bars_panel, curves_panel
from kvbook.explorers.scenes.words import (
    count_words,
    fixed,
    number_words,
    percent_words,
    tokens_words,
    trimmed,
)
from kvlib.costs.formulas import batched_time

MOST_GUESSES = 16  # at the right end of the axis


def speculation_scene(settings: dict, tables: Any) -> dict:
    """settings: acceptance (0 ... 1), gamma, cost (of a guess, in steps), batch, gpu."""
    gpu = tables["gpus"][settings["gpu"]]
    work = speculation_work(gpu, settings)
    guesses = count_words(settings["gamma"], "guess", "guesses")
    requests = count_words(settings["batch"], "request", "requests")
    return {
        "title": f"{guesses} per step for {requests} on one {gpu['title']}:"
        f" {speed_words(work['gain'])} the speed",
        "summary": speculation_summary(gpu, settings, work),
        "formula": speculation_formula(settings, work),
        "numbers": speculation_numbers(work),
        "panels": [speculation_curves(settings, work), speculation_bars(settings, work)],
    }


def speculation_work(gpu: dict, settings: dict) -> dict:
    """Every number of the scene; `gains` and `alone` (at batch 1) by number of guesses."""
    share, cost = settings["acceptance"], settings["cost"]
    gamma, batch = settings["gamma"], settings["batch"]
    ridge = gpu["bf16"] / gpu["bandwidth"]
    gains: list[float] = []
    alone: list[float] = []
    best = 0
    for n in range(MOST_GUESSES + 1):
        gains.append(guessing_gain(share, n, cost, batch, ridge))
        alone.append(guessing_gain(share, n, cost, 1, ridge))
        if gains[n] > gains[best]:
            best = n
    rounded, least, most = speed_words(gains[best]), best, best  # least ... most read like the best
    while least > 1 and rounded == speed_words(gains[least - 1]):
        least = least - 1
    while best > 0 and most < MOST_GUESSES and rounded == speed_words(gains[most + 1]):
        most = most + 1
    plain = batched_time(batch, ridge)  # in times of reading the weights
    check = batched_time(batch * (gamma + 1), ridge)
    return {
        "ridge": ridge,
        "gains": gains,
        "alone": alone,
        "best": best,
        "least": least,
        "most": most,
        "gain": gains[gamma],
        "made": guessed_tokens(share, gamma),
        "fed": batch * (gamma + 1),  # tokens in the check, all requests
        "guessing": gamma * cost,
        "reading": 1 / plain,
        "check": check / plain,
        "whole": gamma * cost + check / plain,
        "beyond": 1 - 1 / check,  # the share of the check that reading the weights does not take
    }


def speculation_summary(gpu: dict, settings: dict, work: dict) -> str:
    """Faster or slower, why, and which number of guesses would be best."""
    guesses = tokens_words(settings["gamma"])
    sentences = [f"At batch {settings['batch']}, guessing {guesses} per step {verdict_words(work)}"]
    sentences.append(
        f"A step then makes {number_words(work['made'])} tokens per request on average and takes"
        f" {number_words(work['whole'])} times as long as without guesses."
    )
    ridge = f"{fixed(work['ridge'], 0)} tokens"
    slower = f"multiplying takes this {gpu['title']} longer than reading the weights"
    fed = f"The check is fed {tokens_words(work['fed'])}."
    if settings["batch"] >= work["ridge"]:
        sentences.append(
            f"The {settings['batch']} requests alone feed a step more than {ridge}. Above these,"
            f" {slower}, so every guess costs as much as a token."
        )
    elif work["beyond"] > 0:
        sentences.append(
            f"{fed} Above {ridge}, {slower}, so {percent_words(work['beyond'])} of the check is"
            " time beyond reading the weights."
        )
    else:
        sentences.append(
            f"{fed} Only above {ridge} does multiplying take this {gpu['title']} longer than"
            " reading the weights, so the check takes no longer than a step without guesses."
        )
    sentences.append(best_words(settings, work))
    if unconfirmed(gpu, "bf16"):
        sentences.append("The matrix rate of this GPU is an unconfirmed figure.")
    return " ".join(sentences)


def verdict_words(work: dict) -> str:
    """The end of 'At batch 128, guessing 5 tokens per step ...'."""
    if work["gain"] >= 1.005:
        return f"makes the server {speed_words(work['gain'])} as fast."
    if work["gain"] >= 0.995:
        return "makes the server neither faster nor slower."
    speed = f"{speed_words(work['gain'])} the speed it has without guesses"
    return f"makes the server slower: it runs at {speed}."


def best_words(settings: dict, work: dict) -> str:
    """Which number of guesses is best for these settings."""
    best, least, most, gamma = work["best"], work["least"], work["most"], settings["gamma"]
    if best == 0:
        return "No number of guesses is faster than none."
    if least == most and best == gamma:
        return f"Of up to {MOST_GUESSES} guesses, this number is best."
    verb = "is" if most == 1 else "are"
    than = f"{speed_words(work['gains'][best])} as fast"
    if (gamma < least or gamma > most) and work["gains"][best] < 1.01 * work["gain"]:
        than = "less than 1 % faster"
    return f"Of up to {MOST_GUESSES} guesses, {range_words(least, most)} {verb} best: {than}."


def range_words(least: int, most: int) -> str:
    """'6', '5 and 6', '5 to 7'."""
    if least == most:
        return f"{least}"
    return f"{least} and {most}" if most == least + 1 else f"{least} to {most}"


def speculation_formula(settings: dict, work: dict) -> list[str]:
    """Tokens of a step, its time, and the speed-up."""
    share, cost = trimmed(settings["acceptance"], 2), trimmed(settings["cost"], 2)
    gamma, batch, ridge = settings["gamma"], settings["batch"], fixed(work["ridge"], 0)
    made, check = number_words(work["made"]), number_words(work["check"])
    total = number_words(work["whole"])
    check_of = f"max(1, {batch} \u00d7 {gamma + 1} / {ridge}) / max(1, {batch} / {ridge})"
    return [
        f"tokens per step: (1 \u2212 {share}^{gamma + 1}) / (1 \u2212 {share}) = {made}",
        f"time of the check: {check_of} = {check} steps",
        f"time in all: {gamma} \u00d7 {cost} + {check} = {total} steps",
        f"speed-up: {made} / {total} = {fixed(work['gain'], 2)}",
        "(weights of a dense model in 16 bits, read once; attention is left out)",
    ]


def speculation_numbers(work: dict) -> list[dict]:
    """The key results."""
    best = work["best"]
    best_text = "0"
    if best > 0:
        numbers = range_words(work["least"], work["most"])
        best_text = f"{numbers} ({speed_words(work['gains'][best])})"
    return [
        {"label": "Speed-up", "text": speed_words(work["gain"])},
        {"label": "Tokens per step, each request", "text": number_words(work["made"])},
        {"label": "Time of guessing and check", "text": steps_words(work["whole"])},
        {"label": "Time of the check", "text": steps_words(work["check"])},
        {"label": "Of that, above the time of the weights", "text": percent_words(work["beyond"])},
        {"label": "Ridge of the GPU", "text": f"{fixed(work['ridge'], 0)} tokens per step"},
        {"label": "Best number of guesses", "text": best_text},
    ]


def steps_words(steps: float) -> str:
    """A time in steps without guesses: '1 step', '2.6 steps'."""
    text = number_words(steps)
    return "1 step" if text == "1" else f"{text} steps"


def speculation_curves(settings: dict, work: dict) -> dict:
    """The speed-up for each number of guesses: this batch, no guesses, a single request."""
    gains, alone, last = work["gains"], work["alone"], len(work["gains"]) - 1
    top = 1.25
    for gain in alone:
        top = max(top, gain)
    y = axis_linear("times as fast as without guesses", top * 1.12, 1)
    lines: list = [
        [f"batch {settings['batch']}", "ink", [[n, gains[n]] for n in range(last + 1)], False],
        ["no guesses", "recomputed", [[0, 1], [last, 1]], False],
    ]
    if settings["batch"] > 1:
        unbound = [[n, alone[n]] for n in range(last + 1)]
        lines.append(["batch 1", "weights", unbound, True])
    bound = work["ridge"] / settings["batch"] - 1  # guesses that fill a step up to the ridge
    if bound > 0 and bound < last:
        upright = [[bound, 0], [bound, 0.95 * y["max"]]]
        lines.append([f"ridge, {fixed(work['ridge'], 0)} tokens", "muted", upright, True])
    points = [speed_point(settings["gamma"], work, "ink", "")]
    if settings["gamma"] < work["least"] or settings["gamma"] > work["most"]:
        points.append(speed_point(work["best"], work, "muted", "best: "))
    x = axis_counts("guesses per request and step", last)
    return curves_panel("Speed-up by the number of guesses", x, y, lines, points)


def speed_words(gain: float) -> str:
    """A speed-up to two decimals: '1.03 times'."""
    return f"{fixed(gain, 2)} times"


def speed_point(guesses: int, work: dict, role: str, before: str) -> list:
    """A point of the curve: its number of guesses and, if it is the chosen one, its speed-up."""
    gain = work["gains"][guesses]
    label = f"{before}{count_words(guesses, 'guess', 'guesses')}"
    if before == "":
        label = f"{label}, {speed_words(gain)}"
    return [label, role, guesses, gain]


def speculation_bars(settings: dict, work: dict) -> dict:
    """The time of the same tokens without guesses and with them; the shorter bar wins."""
    guessing, reading = work["guessing"], min(work["reading"], work["check"])
    parts: list = []
    if guessing > 0:
        parts.append(["guessing", guessing, "query"])
    parts.append(["check: reading the weights", reading, "weights"])
    if work["beyond"] > 0:
        more = work["check"] - reading
        parts.append(["check: arithmetic beyond that", more, "recomputed"])
    made = work["made"]
    bars = [["without guesses", [["plain steps", made, "muted"]]], ["with guesses", parts]]
    label, most = f"Time of {number_words(made)} tokens per request", max(made, work["whole"])
    return bars_panel(label, "steps without guesses", most * 1.04, bars)


def guessed_tokens(acceptance: float, gamma: float) -> float:
    """1 + a + ... + a^γ: tokens per step if each of γ guesses in turn is accepted with chance a."""
    total = 0.0
    for _ in range(int(gamma) + 1):
        total = total * acceptance + 1
    return total


def guessing_gain(
    acceptance: float, gamma: float, cost: float, batch: float, ridge: float
) -> float:
    """How many times as fast text comes with γ guesses, each of which takes `cost` steps."""
    check = batched_time(batch * (gamma + 1), ridge) / batched_time(batch, ridge)
    return guessed_tokens(acceptance, gamma) / (gamma * cost + check)
