"""What an SVG figure is made of: numbers as text, the palette, words, lines, boxes, legends.

Like everything behind `kvbook.explorers.svg` this keeps to the language that the rendered page can
run (tools/build_explorers.py). Both sides must write the same text, so coordinates are rounded
here by arithmetic, and never formatted. A colour is `var(--kv-role, #hex)`: the page may set the
variable for its dark theme; where nobody sets it, the hex of `kvbook.figures.style` counts.
"""

from __future__ import annotations

from math import log10

LIGHT = {
    "query": "#e65105",
    "key": "#1d5ed5",
    "value": "#034b1c",
    "cached": "#0f1934",
    "recomputed": "#a93272",
    "shared": "#550678",
    "weights": "#5a98d9",
    "free": "#928b85",
    "ink": "#1f2328",
    "muted": "#57606a",
    "grid": "#d0d7de",
    "card": "#ffffff",
}
LIGHT_TEXT = {  # the same meanings, dark enough for words on the card
    "query": "#cb4804",
    "key": "#1d5ed5",
    "value": "#034b1c",
    "cached": "#0f1934",
    "recomputed": "#a93272",
    "shared": "#550678",
    "weights": "#4677aa",
    "free": "#77716c",
    "ink": "#1f2328",
    "muted": "#57606a",
    "grid": "#717578",
}
LIGHT_ON = {  # words on a surface of that colour
    "query": "#000000",
    "key": "#ffffff",
    "value": "#ffffff",
    "cached": "#ffffff",
    "recomputed": "#ffffff",
    "shared": "#ffffff",
    "weights": "#000000",
    "free": "#000000",
    "ink": "#ffffff",
    "muted": "#ffffff",
    "grid": "#000000",
}
SMALL = 12  # size of words; at 360 px a figure is drawn for 360 px, so they stay this large
TITLE = 13
BOLD = 1.12  # bold words are this much wider
HALO = ' stroke-width="3" stroke-linejoin="round" paint-order="stroke"'
NARROW_LETTERS = "iljtfrI.,:;'!|()[]/ -\u00b7"
WIDE_LETTERS = "mwMW@%\u00d7\u2192"


def paint(role: str) -> str:
    """The colour of a mark."""
    return f"var(--kv-{role}, {LIGHT[role]})"


def paint_text(role: str) -> str:
    """The colour of words that carry a meaning."""
    return f"var(--kv-{role}-text, {LIGHT_TEXT[role]})"


def paint_on(role: str) -> str:
    """The colour of words on a mark."""
    return f"var(--kv-on-{role}, {LIGHT_ON[role]})"


def px(x: float) -> str:
    """A coordinate with at most two decimals: 12.345 is '12.35'."""
    # a tie that two machines compute a bit apart must not fall on two sides
    units = (abs(x) * 100 + 0.500001) // 1
    sign = "-" if x < 0 and units > 0 else ""
    above = units // 100
    cents = int(units - above * 100)
    if cents == 0:
        return f"{sign}{int(above)}"
    zero = "0" if cents < 10 else ""
    tail = f"{zero}{cents}"
    if cents % 10 == 0:
        tail = f"{cents // 10}"
    return f"{sign}{int(above)}.{tail}"


def exact(x: float) -> str:
    """A number that a program reads back to nine digits: 81559, or 1606123e-5."""
    size = abs(x)
    sign = "-" if x < 0 else ""
    if size == size // 1 and size < 1000000000000000:
        return f"{sign}{int(size)}"
    power = 0
    while size >= 1000000000:
        size = size / 10
        power += 1
    while size < 100000000 and power > -300:
        size = size * 10
        power -= 1
    return f"{sign}{int((size + 0.500001) // 1)}e{power}"


def escaped(text: str) -> str:
    """Text that is safe between tags and inside double quotes."""
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    return text.replace(">", "&gt;").replace('"', "&quot;")


def text_width(text: str, size: float) -> float:
    """About how wide words are, in pixels; never much too little, in the usual sans fonts."""
    total = 0.0
    for letter in text:
        if letter in NARROW_LETTERS:
            total += 0.38
        elif letter in WIDE_LETTERS:
            total += 0.95
        elif letter >= "A" and letter <= "Z":
            total += 0.71
        else:
            total += 0.635
    return total * size


def clipped(text: str, size: float, room: float) -> str:
    """The words, or as many of their letters as fit into `room` pixels, and an ellipsis."""
    if text_width(text, size) <= room:
        return text
    while len(text) > 1 and text_width(text, size) + size > room:
        text = text[: len(text) - 1]
    return f"{text}\u2026"


def words_at(x: float, y: float, text: str, colour: str, anchor: str, more: str) -> str:
    """Words whose baseline is at y; anchor: start, middle, end; more: further attributes."""
    where = f'x="{px(x)}" y="{px(y)}"'
    if anchor != "start":
        where = f'{where} text-anchor="{anchor}"'
    return f'<text {where} fill="{colour}"{more}>{escaped(text)}</text>'


def wrapped(text: str, size: float, room: float) -> list[str]:
    """The words in lines that are at most `room` pixels wide, as far as single words allow."""
    lines: list[str] = []
    line, word = "", ""
    for letter in text + " ":
        if letter != " ":
            word = word + letter
        else:
            if line != "" and text_width(f"{line} {word}", size) > room:
                lines.append(line)
                line = word
            else:
                line = word if line == "" else f"{line} {word}"
            word = ""
    lines.append(line)
    return lines


def haloed(x: float, y: float, text: str, anchor: str, more: str) -> str:
    """Words with a rim of card around them, to be read over lines."""
    rim = f'{more} stroke="{paint("card")}"{HALO}'
    return words_at(x, y, text, paint("ink"), anchor, rim)


def segment(x0: float, y0: float, x1: float, y1: float, role: str, more: str) -> str:
    """A straight line."""
    ends = f'x1="{px(x0)}" y1="{px(y0)}" x2="{px(x1)}" y2="{px(y1)}"'
    return f'<line {ends} stroke="{paint(role)}"{more}/>'


def box(x: float, y: float, width: float, height: float, role: str, more: str) -> str:
    """A filled rectangle; what is free is an outline."""
    if role == "free":
        ink = f'fill="{paint("card")}" stroke="{paint("free")}" stroke-width="1.5"'
        edge = 0.75 if width > 1.5 else width / 2
        where = f'x="{px(x + edge)}" y="{px(y + 0.75)}"'
        size = f'width="{px(width - 2 * edge)}" height="{px(height - 1.5)}"'
        return f"<rect {where} {size} {ink}{more}/>"
    where = f'x="{px(x)}" y="{px(y)}" width="{px(width)}" height="{px(height)}"'
    if role == "grid":  # too pale to stand out from the card by itself
        more = f'{more} style="stroke: {paint("muted")}"'
    return f'<rect {where} fill="{paint(role)}"{more}/>'


def data_of(label: str, value: float) -> str:
    """Attributes that say what a mark stands for."""
    return f' data-label="{escaped(label)}" data-value="{exact(value)}"'


def place(axis: dict, value: float) -> float:
    """Where a value lies on an axis: 0 at its start, 1 at its end."""
    low, high = axis["min"], axis["max"]
    if axis["scale"] == "log":
        if value <= 0:
            return 0
        return (log10(value) - log10(low)) / (log10(high) - log10(low))
    return (value - low) / (high - low)


def legend_at(y: float, width: float, entries: list[dict]) -> dict:
    """Swatches with words in as many lines as they need: {"body", "height"}.

    entries: {"role", "label"}, and for a line {"line": True, "dashed": bool}.
    """
    body: list[str] = []
    x, line = 0.0, 0
    for entry in entries:
        swatch = 22 if "line" in entry else 12
        room = swatch + 6 + text_width(entry["label"], SMALL)
        if x > 0 and x + room > width:
            x = 0.0
            line += 1
        middle = y + 18 * line + 8
        if "line" in entry:
            dash = ' stroke-dasharray="6 4"' if entry["dashed"] else ""
            more = f' stroke-width="2.2"{dash}'
            body.append(segment(x, middle, x + swatch, middle, entry["role"], more))
        else:
            body.append(box(x, middle - 6, 12, 12, entry["role"], ""))
        label = clipped(entry["label"], SMALL, width - swatch - 6)
        body.append(words_at(x + swatch + 6, middle + 4, label, paint("ink"), "start", ""))
        x = x + room + 16
    height = 18 * (line + 1) if len(entries) > 0 else 0
    return {"body": "".join(body), "height": height}
