"""Behind the padding explorer: requests of unequal lengths in one rectangle."""

from typing import Any

from kvbook.explorers.scenes.panels import bars_panel, cells_panel
from kvbook.explorers.scenes.words import count_words, fixed, percent_words, tokens_words
from kvlib.costs.formulas import whole

COLUMNS = 32  # squares in a row


def padding_scene(settings: dict, tables: Any) -> dict:
    """settings: requests, longest (tokens), shortest (percent of it), reserve (tokens)."""
    lengths = unequal_lengths(settings["requests"], settings["longest"], settings["shortest"])
    longest, reserve = settings["longest"], max(settings["reserve"], settings["longest"])
    padding, empty = empty_slots(lengths, longest), empty_slots(lengths, reserve)
    tokens = len(lengths) * longest - padding
    slots = {
        "tokens": tokens,
        "longest": longest,
        "reserve": reserve,
        "padding": padding,
        "empty": empty,
    }
    of_rectangle = percent_words(padding / (padding + tokens))
    of_cache = percent_words(empty / (empty + tokens))
    requests = count_words(settings["requests"], "request", "requests")
    shortest = "" if min(lengths) == longest else f"{fixed(min(lengths), 0)} to "
    n, held, wide = fixed(settings["requests"], 0), fixed(tokens, 0), fixed(reserve, 0)
    return {
        "title": f"{requests} of {shortest}{tokens_words(longest)}, {wide} reserved for each",
        "summary": f"Together the {n} requests have {tokens_words(tokens)}. Padded to the"
        f" longest, {of_rectangle} of the rectangle is padding; with {tokens_words(reserve)}"
        f" reserved for each, {of_cache} of the cache is empty. Packed one after the other, they"
        " need no padding.",
        "formula": [
            f"padding: {n} \u00d7 {fixed(longest, 0)} \u2212 {held} = {tokens_words(padding)},"
            f" {of_rectangle} of the rectangle",
            f"reserved and empty: {n} \u00d7 {wide} \u2212 {held} = {tokens_words(empty)},"
            f" {of_cache} of the cache",
        ],
        "numbers": [
            {"label": "Tokens", "text": held},
            {"label": "Padding in the rectangle", "text": of_rectangle},
            {"label": "Empty in the reserved cache", "text": of_cache},
            {"label": "Padding when packed", "text": "0 %"},
        ],
        "panels": [padding_cells(lengths, slots), padding_bars(slots)],
    }


def unequal_lengths(requests: int, longest: float, shortest: float) -> list[float]:
    """Return lengths in equal steps from `longest` tokens down to `shortest` percent of it."""
    least = max(1, longest * shortest // 100)
    steps = max(1, requests - 1)
    return [longest - (longest - least) * i // steps for i in range(requests)]


def padding_cells(lengths: list[float], slots: dict) -> dict:
    """A row for each request: tokens, padding to the longest, the rest of what is reserved."""
    a_cell = whole(slots["reserve"] / COLUMNS)
    rows: list = []
    for n in lengths:
        cells: list[str] = []
        for i in range(int(whole(slots["reserve"] / a_cell))):
            role = "free"
            if i * a_cell < n:
                role = "cached"
            elif i * a_cell < slots["longest"]:
                role = "recomputed"
            cells.append(role)
        rows.append([fixed(n, 0), cells])
    label = f"One row per request, one square for {tokens_words(a_cell)}"
    meanings = ["tokens", "padding to the longest", "reserved, never used"]
    roles = ["cached", "recomputed", "free"]
    return cells_panel(label, rows, [[roles[i], meanings[i]] for i in range(3)])


def padding_bars(slots: dict) -> dict:
    """Slots that the same tokens take when packed, padded, and reserved."""
    tokens = ["tokens", slots["tokens"], "cached"]
    padding = ["padding to the longest", slots["padding"], "recomputed"]
    rest = ["reserved, never used", slots["empty"] - slots["padding"], "free"]
    most = (slots["tokens"] + slots["empty"]) * 1.04
    bars = [["packed", [tokens]], ["padded", [tokens, padding]]]
    bars.append(["reserved", [tokens, padding, rest]])
    return bars_panel("Slots that the same tokens take", "slots", most, bars)


def empty_slots(lengths: list[float], width: float) -> float:
    """Slots that hold no token where each of `lengths` gets a row of `width`."""
    total = 0.0
    for n in lengths:
        total += width - n
    return total
