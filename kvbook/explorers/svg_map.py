"""An attention map as SVG (the language of the page: see `kvbook.explorers.svg_parts`).

Queries run down and keys to the right. The weight that a query gives a key is a mark, whose sides
grow with the root of the weight, so its area shows the weight. A mark is dark where the key was
still held when the query came, and an outline on a grey ground where the key had been lost. At the
right, a bar per query shows how much of its attention lies on keys that were held.
"""

from __future__ import annotations

from kvbook.explorers.svg_parts import (
    SMALL,
    data_of,
    legend_at,
    paint,
    paint_text,
    px,
    segment,
    text_width,
    words_at,
)

LEVELS = "0123456789"  # of a weight: the side of its mark, in ninths of a cell
SHARES = 20  # steps of a bar at the right
SHARE_LABEL = "held"
LETTER = 7.6  # pixels that a letter of the keys takes; where a column has less, lines have numbers
SIDE = 0.16  # of the width that lines of text may take beside the queries


def map_size(panel: dict, width: float) -> dict:
    """Where the map stands: side (left of it), pitch of columns and rows, strip (the bars)."""
    n = len(panel["lost"])
    side = 0.0
    for line in panel["lines"]:
        side = max(side, text_width(line["label"], SMALL) + 8)
    named = side <= SIDE * width
    if not named:
        side = text_width("00", SMALL) + 4
    strip = 56.0 if named else 40.0
    across = (width - side - strip - 10) / n
    down = max(5, min(7, across))
    return {"named": named, "side": side, "strip": strip, "across": across, "down": down}


def draw_map(panel: dict, width: float) -> dict:
    """The map with its letters, the bars beside it and the legend."""
    size = map_size(panel, width)
    n, lost = len(panel["lost"]), panel["lost"]
    left, top = size["side"], 58.0
    across, down = size["across"], size["down"]
    body = [map_frame(panel, size, top)]
    for what in ["held", "lost"]:
        for level in range(1, len(LEVELS)):
            cells = map_cells(panel["levels"], lost, LEVELS[level], what == "held")
            if len(cells) > 0:
                share = 0.94 * level / 9
                path = [
                    rectangle(
                        left + across * (cell[1] + 0.5 - share / 2),
                        top + down * (cell[0] + 0.5 - share / 2),
                        across * share,
                        down * share,
                    )
                    for cell in cells
                ]
                more = data_of(f"{what}, {level} ninths", len(cells))
                body.append(map_path("".join(path), what, more))
    rings = [
        rectangle(left + across * ring[1] - 1, top + down * ring[0] - 1, across + 2, down + 2)
        for ring in panel["rings"]
    ]
    ink = f'fill="none" stroke="{paint("query")}" stroke-width="1.5"'
    marked = data_of(panel["ring"], len(rings))
    body.append(f'<path d="{"".join(rings)}" {ink}{marked}/>')
    body.append(map_shares(panel, left + across * n + 10, top, size))
    below = legend_at(top + down * n + 12, width, panel["legend"])
    body.append(below["body"])
    return {"body": "".join(body), "height": top + down * n + 12 + below["height"]}


def map_cells(levels: list[str], lost: list[int], digit: str, held: bool) -> list[list[int]]:
    """[query, key] of the weights of one level whose key was held (or lost) at that query."""
    found: list[list[int]] = []
    for t in range(len(levels)):
        for key in range(len(levels[t])):
            if levels[t][key] == digit and (t < lost[key]) == held:
                found.append([t, key])
    return found


def rectangle(x: float, y: float, width: float, height: float) -> str:
    """A rectangle as part of a path."""
    return f"M{px(x)} {px(y)}h{px(width)}v{px(height)}h-{px(width)}z"


def map_path(path: str, what: str, more: str) -> str:
    """Marks of one size: filled where keys were held, outlined where they were lost."""
    if what == "held":
        return f'<path d="{path}" fill="{paint("cached")}"{more}/>'
    ink = f'fill="{paint("card")}" stroke="{paint("free")}" stroke-width="1"'
    return f'<path d="{path}" {ink}{more}/>'


def map_frame(panel: dict, size: dict, top: float) -> str:
    """What the marks lie on: the grey ground of lost keys, lines of the text, letters."""
    body: list[str] = []
    n, lost, letters = len(panel["lost"]), panel["lost"], panel["letters"]
    left, across, down = size["side"], size["across"], size["down"]
    ground: list[str] = []
    for key in range(n):
        if lost[key] < n:
            y = top + down * lost[key]
            ground.append(rectangle(left + across * key, y, across, down * (n - lost[key])))
    if len(ground) > 0:
        pale = f'fill="{paint("grid")}" fill-opacity="0.45"'
        body.append(f'<path d="{"".join(ground)}" {pale}/>')
    bottom, end = top + down * n, left + across * n
    for i in range(len(panel["lines"])):
        line, number = panel["lines"][i], i + 1
        x, y = left + across * line["at"], top + down * line["at"]
        body.append(segment(x, y, x, bottom, "grid", ""))
        body.append(segment(left, y, x, y, "grid", ""))
        words = line["label"] if size["named"] else f"{number}"
        body.append(words_at(left - 6, y + 10, words, paint("muted"), "end", ""))
        if across < LETTER:
            body.append(words_at(x + 1, top - 5, f"{number}", paint("muted"), "start", ""))
    body.append(segment(left, bottom, end, bottom, "muted", ""))
    body.append(segment(left, top, left, bottom, "muted", ""))
    if across >= LETTER:
        body.append(map_letters(letters, lost, left, across, top - 5))
    words = "keys, in the order of the text" if size["named"] else "keys"
    body.append(words_at(left, top - 21, words, paint("muted"), "start", ""))
    return "".join(body)


def map_letters(letters: str, lost: list[int], left: float, across: float, y: float) -> str:
    """One letter above each column; those of keys that are lost at the end are grey."""
    runs: list[str] = []
    places: list[str] = []
    run = ""
    for key in range(len(letters)):
        run = run + letters[key]
        places.append(px(left + across * (key + 0.5)))
        gone = lost[key] < len(letters)
        last = key == len(letters) - 1
        if last or (lost[key + 1] < len(letters)) != gone:
            colour = paint_text("free") if gone else paint("ink")
            safe = run.replace("&", "&amp;").replace("<", "&lt;")
            runs.append(f'<tspan x="{" ".join(places)}" fill="{colour}">{safe}</tspan>')
            run = ""
            places = []
    font = 'font-family="ui-monospace, Menlo, Consolas, monospace" text-anchor="middle"'
    return f'<text y="{px(y)}" {font} fill="{paint("ink")}">{"".join(runs)}</text>'


def map_shares(panel: dict, x: float, top: float, size: dict) -> str:
    """A bar per query: how much of its attention lies on keys that were held."""
    body: list[str] = []
    n, total = len(panel["shares"]), 0.0
    down, long = size["down"], size["strip"] - 4
    path: list[str] = []
    for t in range(n):
        share = panel["shares"][t]
        total = total + share
        if share > 0:
            length = long * share / SHARES
            path.append(rectangle(x, top + down * (t + 0.25), length, down * 0.5))
    body.append(segment(x + long, top, x + long, top + down * n, "grid", ""))
    more = data_of(SHARE_LABEL, total)
    body.append(f'<path d="{"".join(path)}" fill="{paint("cached")}"{more}/>')
    body.append(segment(x, top, x, top + down * n, "muted", ""))
    words = "share held" if size["named"] else "held"
    body.append(words_at(x + long, top - 21, words, paint("muted"), "end", ""))
    body.append(words_at(x + long, top - 5, "100 %", paint("muted"), "end", ""))
    return "".join(body)
