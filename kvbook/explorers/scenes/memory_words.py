"""What the memory explorer says: its summary in sentences, and its key results."""

from __future__ import annotations

from typing import Any

from kvbook.explorers.scenes.memory_held import evicts, tokens_kept
from kvbook.explorers.scenes.words import (
    bytes_exact,
    bytes_words,
    count_words,
    fixed,
    percent_words,
    times_words,
    tokens_words,
)
from kvlib.costs.formulas import in_blocks, token_bytes

RESERVE = 0.1  # the cautious end of every interval: engines use 90 % of what a GPU offers
ENDLESS = 1099511627776  # the longest context that `longest` looks for


def memory_summary(
    facts: dict[str, Any], gpu: dict[str, Any], settings: dict[str, Any], kv: dict[str, float]
) -> str:
    """Two to four sentences: weights against cache, whether it fits, what else to know."""
    usable = bytes_words(kv["usable"], 1024)
    place = f"the {usable} of one {gpu['title']}"
    if settings["gpus"] > 1:
        place = f"the {usable} of each {gpu['title']}"
    weights = bytes_words(kv["weights"], 1024)
    held = bytes_words(kv["held"], 1024)
    ratio = kv["held"] / kv["weights"]
    compared = times_words(ratio) if ratio >= 1 else f"{percent_words(ratio)} of"
    said = [f"The weights take {weights}, the keys and values {held}: {compared} the weights."]
    if kv["weights"] > kv["usable"]:
        said = [
            f"The weights alone take {weights}, more than {place}:"
            f" they need more GPUs or fewer bits. The keys and values would add {held}."
        ]
    elif kv["left"] < 0:
        over = bytes_words(-kv["left"], 1024)
        said.append(f"That is {over} more than {place}: it does not fit.")
    elif kv["free"] == 0:
        said.append(
            f"It fits on paper only: {bytes_words(kv['left'], 1024)} of {place} are left, less than"
            f" the {percent_words(RESERVE)} that an engine keeps for everything else."
        )
    else:
        reserve = bytes_words(kv["reserve"], 1024)
        said.append(
            f"Of {place}, {bytes_words(kv['free'], 1024)} stay free, beside a reserve of {reserve}."
        )
    if settings["budget"] > 0:
        said.append(budget_words(facts["layers"], settings, kv))
    rule, windows = settings["held"], max([g["window"] for g in facts["layers"]]) > 0
    if evicts(facts["layers"], settings):
        if rule != "needed" and windows:
            said.append(
                "A cache that evicts frees what its windows have passed:"
                " they hold what the next query sees."
            )
    elif rule == "needed" and kv["kept_all"] > kv["held"]:
        without = bytes_words(kv["kept_all"], 1024)
        said.append(f"Without the windows of its layers the cache would take {without}.")
    elif kv["held"] > kv["needed"]:
        needed = bytes_words(kv["needed"], 1024)
        said.append(f"The tokens that the next queries see take {needed}.")
    elif rule != "needed" and not windows:
        said.append("The layers of this model have no windows, so they hold every token.")
    if settings["context"] > facts["max_context"]:
        said.append(f"The model reads at most {tokens_words(facts['max_context'])}.")
    if uneven(facts["layers"], settings["gpus"]):
        said.append("The heads do not divide evenly: the numbers are of the GPU that holds most.")
    if unconfirmed(gpu, "usable"):
        said.append("The usable memory of this GPU is an unconfirmed figure.")
    return " ".join(said)


def budget_words(
    layers: list[dict[str, Any]], settings: dict[str, Any], kv: dict[str, float]
) -> str:
    """One sentence on what a budget changes."""
    if not evicts(layers, settings):
        return "Every layer of this model has a window, so a budget changes nothing."
    if tokens_kept(layers, settings) >= settings["context"]:
        return "A request is no longer than the budget, so nothing is evicted."
    each = "each layer without a window" if max([g["window"] for g in layers]) > 0 else "each layer"
    left, without = tokens_words(settings["budget"]), bytes_words(kv["unevicted"], 1024)
    return f"Eviction leaves {left} in {each}; without it the cache would take {without}."


def uneven(layers: list[dict[str, Any]], gpus: float) -> bool:
    """Whether some of `gpus` devices hold more heads than others."""
    for g in layers:
        if g["num_qo_heads"] % gpus != 0:
            return True
        heads = g["vectors"] / 2
        if g["vectors"] > 1 and heads % gpus != 0 and gpus % heads != 0:
            return True
    return False


def unconfirmed(gpu: dict[str, Any], name: str) -> bool:
    """Whether no public text of the vendor confirms this number of a GPU."""
    return name in gpu["unconfirmed"]


def interval_words(low: float, high: float, one: str, many: str, endless: str) -> str:
    """From the cautious to the hopeful answer: '121,101 to 137,412 tokens'; `endless` if none."""
    if high <= 0:
        return "none"
    if low >= ENDLESS:
        return endless
    if high >= ENDLESS:
        return f"{count_words(low, one, many)} or no limit"
    if low >= high:
        return count_words(high, one, many)
    return f"{fixed(low, 0)} to {count_words(high, one, many)}"


def memory_numbers(
    facts: dict[str, Any], codec: dict[str, Any], settings: dict[str, Any], kv: dict[str, float]
) -> list[dict[str, str]]:
    """The key results. Intervals run from 90 % of the memory to all of it."""
    on_one = " on each GPU" if settings["gpus"] > 1 else ""
    label = "Free" if kv["left"] >= 0 else "Missing"
    left = bytes_words(abs(kv["left"]), 1024)
    context = tokens_words(settings["context"])
    endless = "no limit: windows bound it"
    if evicts(facts["layers"], settings):
        endless = "no limit: the budget bounds it"
    tokens = interval_words(kv["longest_low"], kv["longest_high"], "token", "tokens", endless)
    low, high = kv["requests_low"], kv["requests_high"]
    return [
        {"label": "A token", "text": bytes_exact(token_bytes(facts["layers"], codec))},
        {"label": "A request", "text": bytes_words(kv["stored"], 1024)},
        {"label": f"All requests{on_one}", "text": bytes_words(kv["held"], 1024)},
        {"label": f"{label}{on_one}, reserve included", "text": left},
        {"label": "Empty in a last block", "text": empty_words(facts["layers"], settings)},
        {
            "label": f"Longest context of {count_words(settings['batch'], 'request', 'requests')}",
            "text": tokens,
        },
        {
            "label": f"Requests of {context} that fit",
            "text": interval_words(low, high, "request", "requests", endless),
        },
    ]


def empty_words(layers: list[dict[str, Any]], settings: dict[str, Any]) -> str:
    """Slots that the last block of a request holds in vain: here, and at most."""
    block, tokens = settings["block"], tokens_kept(layers, settings)
    if block <= 1:
        return "nothing, blocks of 1 token"
    here = tokens_words(in_blocks(tokens, block) - tokens)
    return f"{here} of at most {fixed(block - 1, 0)}"
