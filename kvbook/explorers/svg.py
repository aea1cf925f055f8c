"""A scene as SVG: the picture of the rendered page, and of the sliders in Jupyter.

`draw(scene)` gives text. The page runs the same lines, translated (tools/build_explorers.py), and
writes the same text; so this file keeps to numbers, strings, lists, dicts
and loops. `width` is the number of pixels the figure is laid out for: words keep their size, so a
phone gets another layout and not smaller words.

Marks carry `data-label` and `data-value`, so that a test can read what is drawn.
"""

from math import log10

from kvbook.explorers.scenes.words import number_words

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
LIGHT_TEXT = {  # words of these colours must be darker
    "query": "#cb4804",
    "weights": "#4677aa",
    "free": "#77716c",
    "grid": "#717578",
}
PALE = ["query", "weights", "free", "grid"]  # words on these are black, on others white
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
    hexed = LIGHT_TEXT[role] if role in LIGHT_TEXT else LIGHT[role]
    return f"var(--kv-{role}-text, {hexed})"


def paint_on(role: str) -> str:
    """The colour of words on a mark."""
    hexed = "#000000" if role in PALE else "#ffffff"
    return f"var(--kv-on-{role}, {hexed})"


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


def words_at(
    x: float, y: float, text: str, colour: str, anchor: str = "start", more: str = ""
) -> str:
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


def haloed(x: float, y: float, text: str, anchor: str = "start", more: str = "") -> str:
    """Words with a rim of card around them, to be read over lines."""
    rim = f'{more} stroke="{paint("card")}"{HALO}'
    return words_at(x, y, text, paint("ink"), anchor, rim)


def segment(x0: float, y0: float, x1: float, y1: float, role: str, more: str = "") -> str:
    """A straight line."""
    ends = f'x1="{px(x0)}" y1="{px(y0)}" x2="{px(x1)}" y2="{px(y1)}"'
    return f'<line {ends} stroke="{paint(role)}"{more}/>'


def box(x: float, y: float, width: float, height: float, role: str, more: str = "") -> str:
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
    """Where a value is on an axis: 0 at its start, 1 at its end."""
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
            body.append(box(x, middle - 6, 12, 12, entry["role"]))
        label = clipped(entry["label"], SMALL, width - swatch - 6)
        body.append(words_at(x + swatch + 6, middle + 4, label, paint("ink")))
        x = x + room + 16
    height = 18 * (line + 1) if len(entries) > 0 else 0
    return {"body": "".join(body), "height": height}


BAR = 26  # height of a bar
SHORT = 50  # pixels of a unit that is drawn beside numbers; a longer one is drawn under the axis
SHARE = 0.26  # of the width that labels may take beside their rows; longer ones are above


def label_room(labels: list[str], width: float) -> float:
    """Room for row labels at the left, or 0 where one is too long and all go above their rows."""
    widest = 0.0
    for label in labels:
        widest = max(widest, text_width(label, SMALL) + 10)
    return widest if widest <= SHARE * width else 0


def bars_top(panel: dict) -> float:
    """Where the scale ends: at the panel's max, or further if something is longer."""
    top = panel["max"]
    for bar in panel["bars"]:
        total = 0.0
        for part in bar["parts"]:
            total += max(0, part["value"])
        top = max(top, total)
    for mark in panel["marks"]:
        top = max(top, mark["value"])
    return top if top > 0 else 1


def bar_ticks(top: float) -> list[float]:
    """From zero in at most five steps of 1, 2 or 5 times a power of ten, the finest such."""
    step = 1.0
    while step * 5 >= top:
        step = step / 10
    while step * 50 < top:
        step = step * 10
    for factor in [10, 5, 2]:
        if step * factor * 5 >= top:
            wide = step * factor
    ticks: list[float] = []
    while len(ticks) * wide <= top * 1.000000001:
        ticks.append(len(ticks) * wide)
    return ticks


def part_words(part: dict, unit: str, room: float) -> str:
    """What is written into a part: name and size, its size alone, or nothing."""
    size = number_words(part["value"])
    if unit != "":
        size = f"{size} {unit}"
    for words in [f"{part['label']} {size}", size]:
        if text_width(words, SMALL) + 10 <= room:
            return words
    return ""


def draw_parts(bar: dict, unit: str, x: float, y: float, scale: float) -> str:
    """The parts of one bar, end to end; `scale` pixels for one unit."""
    body: list[str] = []
    for part in bar["parts"]:
        length = max(0, part["value"]) * scale
        more = data_of(part["label"], part["value"])
        if part["role"] != "free":  # a hair of card between parts of one bar
            more = f'{more} stroke="{paint("card")}" stroke-width="1"'
        if length > 0:
            body.append(box(x, y, length, BAR, part["role"], more))
        words = part_words(part, unit, length)
        if len(words) > 0:
            colour = paint("muted") if part["role"] == "free" else paint_on(part["role"])
            body.append(words_at(x + length / 2, y + 17, words, colour, "middle"))
        x = x + length
    return "".join(body)


def draw_bars(panel: dict, width: float) -> dict:
    """Horizontal bars from a common zero, ticks below, marks as lines with their names on top."""
    body: list[str] = []
    top, unit = bars_top(panel), panel["unit"]
    side = label_room([bar["label"] for bar in panel["bars"]], width)
    row = BAR + 10 if side > 0 else BAR + 26
    short = text_width(unit, SMALL) <= SHORT
    ticks = bar_ticks(top)
    last = number_words(ticks[-1])
    if short:
        last = f"{last} {unit}"
    end = width - max(2, text_width(last, SMALL) / 2 - (1 - ticks[-1] / top) * (width - side))
    scale = (end - side) / top
    start = 24 + 17 * len(panel["marks"])
    bottom = start + row * len(panel["bars"]) - 2
    # texts that would touch the last one, which carries the unit, or one another are left out
    edge = side + ticks[-1] * scale - text_width(last, SMALL) / 2 - 4
    free = -1.0
    for tick in ticks:
        x = side + tick * scale
        if x > 0:
            body.append(segment(x, start, x, bottom, "grid"))
        words = last if tick == ticks[-1] else number_words(tick)
        half = text_width(words, SMALL) / 2
        if tick == ticks[-1] or (x - half >= free and x + half <= edge) or x == 0:
            anchor = "start" if x == 0 else "middle"
            body.append(words_at(x, bottom + 16, words, paint("muted"), anchor))
            free = x + half + 4
    legend: list[dict] = []
    for i in range(len(panel["bars"])):
        bar = panel["bars"][i]
        y = start + row * i + row - BAR - 6
        if side > 0:
            body.append(words_at(side - 10, y + 17, bar["label"], paint("ink"), "end"))
        else:
            words = clipped(bar["label"], SMALL, width)
            body.append(haloed(0, y - 5, words))
        body.append(draw_parts(bar, unit if short else "", side, y, scale))
        for part in bar["parts"]:
            add_once(legend, part["role"], part["label"])
    if side > 0:
        body.append(segment(side, start, side, bottom, "muted"))
    for i in range(len(panel["marks"])):
        mark = panel["marks"][i]
        x, y = side + mark["value"] * scale, 36 + 17 * i
        more = f' stroke-width="1.5" stroke-dasharray="4 3"{data_of(mark["label"], mark["value"])}'
        body.append(segment(x, y - 11, x, bottom, "ink", more))
        left = x - 5 > width - x - 5
        room = x - 5 if left else width - x - 5
        words = clipped(mark["label"], SMALL, room)
        at, anchor = (x - 5, "end") if left else (x + 5, "start")
        body.append(words_at(at, y, words, paint("ink"), anchor))
    foot = bottom + 26
    if not short:
        words = clipped(unit, SMALL, width)
        body.append(words_at((side + end) / 2, bottom + 33, words, paint("muted"), "middle"))
        foot = bottom + 43
    below = legend_at(foot, width, legend)
    body.append(below["body"])
    return {"body": "".join(body), "height": foot + below["height"]}


def add_once(legend: list[dict], role: str, label: str) -> None:
    """Add an entry unless the legend has it."""
    for entry in legend:
        if entry["role"] == role and entry["label"] == label:
            return
    legend.append({"role": role, "label": label})


def draw_cells(panel: dict, width: float) -> dict:
    """Rows of slots, each coloured by what it holds; an empty role draws nothing."""
    body: list[str] = []
    most = 1
    for row in panel["rows"]:
        most = max(most, len(row["cells"]))
    side = label_room([row["label"] for row in panel["rows"]], width)
    pitch = min(24, (width - side) / most)
    size = pitch * 0.88
    line = max(pitch, 16) if side > 0 else pitch + 18
    y = 24.0
    for row in panel["rows"]:
        top = y + (line - pitch) / 2 if side > 0 else y + 18
        if side > 0:
            words = words_at(side - 10, y + line / 2 + 4, row["label"], paint("ink"), "end")
        else:
            label = clipped(row["label"], SMALL, width)
            words = words_at(0, y + 13, label, paint("ink"))
        body.append(words)
        for i in range(len(row["cells"])):
            role = row["cells"][i]
            if role != "":
                more = data_of(row["label"], i)
                x = side + pitch * i + pitch * 0.06
                body.append(box(x, top + pitch * 0.06, size, size, role, more))
                if "letters" in row and row["letters"][i] != " ":
                    letter, high = row["letters"][i], min(SMALL, size * 0.9)
                    ink = paint("ink") if role == "free" else paint_on(role)
                    middle, base = x + size / 2, top + pitch / 2 + high * 0.3
                    more = f' font-size="{px(high)}"'
                    body.append(words_at(middle, base, letter, ink, "middle", more))
        y = y + line
    below = legend_at(y + 8, width, panel["legend"])
    body.append(below["body"])
    return {"body": "".join(body), "height": y + 8 + below["height"]}


def draw_table(panel: dict, width: float) -> dict:
    """Rows of words in coloured cells, or beside bars, under the titles of their columns.

    rows: {"label", "columns": for each column a list of {"role", "text"}, for a bar with "share"}.
    """
    body: list[str] = []
    side, y, count = 0.0, 46.0, len(panel["columns"])
    for row in panel["rows"]:
        side = max(side, text_width(row["label"], SMALL) + 10)
    across = min(170, (width - side) / count - 8)
    for i in range(count):
        x = side + (across + 8) * i
        middle = x + across / 2
        body.append(words_at(middle, 38, panel["columns"][i], paint("muted"), "middle"))
        for j in range(len(panel["rows"])):
            row = panel["rows"][j]
            body.append(draw_row(row["columns"][i], row["label"], x, y + BAR * j, across))
    for row in panel["rows"]:
        body.append(words_at(side - 10, y + 17, row["label"], paint("ink"), "end"))
        y = y + BAR
    below = legend_at(y + 8, width, panel["legend"])
    body.append(below["body"])
    return {"body": "".join(body), "height": y + 8 + below["height"]}


def draw_row(cells: list[dict], label: str, x: float, y: float, across: float) -> str:
    """The cells of one column in one row of a table, side by side."""
    body: list[str] = []
    for i in range(len(cells)):
        cell, room = cells[i], across / len(cells)
        role, text, start = cell["role"], cell["text"], x + room * i
        if "share" in cell:
            length = cell["share"] * (across - 36)
            more = data_of(label, cell["share"])
            body.append(box(start, y + 5, length, BAR - 10, role, more))
            body.append(words_at(start + length + 4, y + 17, text, paint("ink")))
        else:
            body.append(box(start + 1, y + 1, room - 2, BAR - 2, role, data_of(label, i)))
            body.append(words_at(start + room / 2, y + 17, text, paint_on(role), "middle"))
    return "".join(body)


def draw_curves(panel: dict, width: float) -> dict:
    """{"body", "height"} of a panel of curves; names are at the ends where there is room."""
    area = plot_area(panel, width)
    body = [words_at(0, 31, panel["y"]["label"], paint("muted"))]
    body.append(draw_axes(panel, area))
    inner: list[str] = []
    for line in panel["lines"]:
        inner.append(draw_line(panel, line, area))
    left, top = area["left"] - 3, area["top"] - 3
    right, bottom = area["right"] + 3, area["bottom"] + 3
    where = f'x="{px(left)}" y="{px(top)}" width="{px(right - left)}" height="{px(bottom - top)}"'
    view = f"{px(left)} {px(top)} {px(right - left)} {px(bottom - top)}"
    body.append(f'<svg {where} viewBox="{view}" overflow="hidden">{"".join(inner)}</svg>')
    body.append(draw_names(panel, area, width))
    height = area["bottom"] + 40
    if not area["named"]:
        entries = [
            {"role": line["role"], "label": line["label"], "line": True, "dashed": line["dashed"]}
            for line in panel["lines"]
        ]
        below = legend_at(height + 4, width, entries)
        body.append(below["body"])
        height = height + 4 + below["height"]
    return {"body": "".join(body), "height": height}


def plot_area(panel: dict, width: float) -> dict:
    """Edges of the plot in pixels, and whether the curves are named at their ends."""
    left = 8.0
    for tick in panel["y"]["ticks"]:
        left = max(left, text_width(tick["text"], SMALL) + 8)
    widest = 0.0
    for line in panel["lines"]:
        widest = max(widest, text_width(line["label"], SMALL) + 12)
    named = widest <= width * 0.3
    margin = max(14, widest) if named else 14
    for tick in panel["x"]["ticks"]:
        over = (1 - place(panel["x"], tick["at"])) * (width - left - margin)
        margin = max(margin, text_width(tick["text"], SMALL) / 2 - over)
    return {
        "left": left,
        "right": width - margin,
        "top": 44,
        "bottom": 44 + (240 if width >= 480 else 210),
        "named": named,
    }


def draw_axes(panel: dict, area: dict) -> str:
    """Grid lines across, ticks with their texts, both axes and the name of the lower one."""
    body: list[str] = []
    left, right, bottom = area["left"], area["right"], area["bottom"]
    for tick in panel["y"]["ticks"]:
        y = at_y(panel, area, tick["at"])
        body.append(segment(left, y, right, y, "grid"))
        body.append(words_at(left - 6, y + 4, tick["text"], paint("muted"), "end"))
    ticks = panel["x"]["ticks"]
    stride = tick_stride(panel, area)
    for i in range(len(ticks)):
        x = at_x(panel, area, ticks[i]["at"])
        body.append(segment(x, bottom, x, bottom + 4, "muted"))
        if i % stride == 0:
            body.append(words_at(x, bottom + 18, ticks[i]["text"], paint("muted"), "middle"))
    body.append(segment(left, bottom, right, bottom, "muted"))
    body.append(segment(left, area["top"], left, bottom, "muted"))
    middle = (left + right) / 2
    body.append(words_at(middle, bottom + 35, panel["x"]["label"], paint("muted"), "middle"))
    return "".join(body)


def tick_stride(panel: dict, area: dict) -> int:
    """1 if all texts of the x axis have room, 2 if every second one has, and so on."""
    ticks = panel["x"]["ticks"]
    stride = 1
    while stride < len(ticks):
        fits = True
        for i in range(stride, len(ticks), stride):
            gap = at_x(panel, area, ticks[i]["at"]) - at_x(panel, area, ticks[i - stride]["at"])
            words = ticks[i]["text"] + ticks[i - stride]["text"]
            fits = fits and text_width(words, SMALL) / 2 + 5 <= gap
        if fits:
            return stride
        stride += 1
    return stride


def draw_line(panel: dict, line: dict, area: dict) -> str:
    """One curve as a path."""
    steps: list[str] = []
    for point in line["points"]:
        x, y = at_x(panel, area, point[0]), at_y(panel, area, point[1])
        # far outside is far enough: the inner svg cuts it off
        y = min(max(y, -5000), 5000)
        letter = "M" if len(steps) == 0 else "L"
        steps.append(f"{letter}{px(x)} {px(y)}")
    dash = ' stroke-dasharray="6 4"' if line["dashed"] else ""
    ink = f'fill="none" stroke="{paint(line["role"])}" stroke-width="2.2" stroke-linejoin="round"'
    last = line["points"][-1][1] if len(line["points"]) > 0 else 0
    return f'<path d="{"".join(steps)}" {ink}{dash}{data_of(line["label"], last)}/>'


LINE = 15  # from one line of words to the next


def at_x(panel: dict, area: dict, value: float) -> float:
    """Pixels from the left of a value on the x axis."""
    return area["left"] + place(panel["x"], value) * (area["right"] - area["left"])


def at_y(panel: dict, area: dict, value: float) -> float:
    """Pixels from the top of a value on the y axis."""
    return area["bottom"] - place(panel["y"], value) * (area["bottom"] - area["top"])


def spread(wanted: list[float], top: float, bottom: float) -> list[float]:
    """The heights moved apart to at least a line of words, in order, within top and bottom."""
    order: list[int] = []
    while len(order) < len(wanted):
        best = -1
        for i in range(len(wanted)):
            if i not in order and (best < 0 or wanted[i] < wanted[best]):
                best = i
        order.append(best)
    heights = wanted + []
    floor = top
    for i in order:
        heights[i] = max(heights[i], floor)
        floor = heights[i] + LINE
    ceiling = bottom
    for k in range(len(order)):
        i = order[len(order) - 1 - k]
        heights[i] = min(heights[i], ceiling)
        ceiling = heights[i] - LINE
    return heights


def upright(line: dict) -> bool:
    """Whether a line marks one value of the x axis, from the bottom up."""
    return line["points"][0][0] == line["points"][-1][0]


def end_names(panel: dict, area: dict) -> list[dict]:
    """Where the name of each curve is: beside its end, moved up or down from its neighbours."""
    lines = [line for line in panel["lines"] if len(line["points"]) > 0 and not upright(line)]
    wanted: list[float] = []
    for line in lines:
        y = at_y(panel, area, line["points"][-1][1])
        wanted.append(min(max(y, area["top"]), area["bottom"]))
    heights = spread(wanted, area["top"], area["bottom"])
    names: list[dict] = []
    for i in range(len(lines)):
        x = min(at_x(panel, area, lines[i]["points"][-1][0]), area["right"]) + 10
        names.append({"x": x, "y": heights[i], "label": lines[i]["label"], "of": lines[i]["role"]})
    return names


def draw_names(panel: dict, area: dict, width: float) -> str:
    """The names of the curves, and the points with theirs.

    A curve is named beside its end. An upright line is named within the plot, where no curve and no
    point passes; a rim of card keeps the grid off its words.
    """
    body: list[str] = []
    taken: list[list[float]] = []
    for tick in panel["y"]["ticks"]:
        y = at_y(panel, area, tick["at"])
        room = text_width(tick["text"], SMALL)
        taken.append([area["left"] - 6 - room, y - 7, area["left"] - 6, y + 7])
    if area["named"]:
        for end in end_names(panel, area):
            colour = paint_text(end["of"])
            body.append(words_at(end["x"], end["y"] + 4, end["label"], colour))
            right = end["x"] + text_width(end["label"], SMALL)
            taken.append([end["x"], end["y"] - 7, right, end["y"] + 7])
    spots: list[list[float]] = []
    for point in panel["points"]:
        x = min(max(at_x(panel, area, point["x"]), area["left"]), area["right"])
        y = min(max(at_y(panel, area, point["y"]), area["top"]), area["bottom"])
        spots.append([x, y])
        taken.append([x - 7, y - 7, x + 7, y + 7])
    curves = [
        [[at_x(panel, area, point[0]), at_y(panel, area, point[1])] for point in line["points"]]
        for line in panel["lines"]
    ]
    for line in panel["lines"]:
        if area["named"] and len(line["points"]) > 0 and upright(line):
            x = at_x(panel, area, line["points"][-1][0])
            y = max(at_y(panel, area, line["points"][-1][1]), area["top"])
            box = free_box(x, y, text_width(line["label"], SMALL), area, width, taken, curves)
            taken.append(box)
            rim = f' stroke="{paint("card")}"{HALO}'
            colour = paint_text(line["role"])
            body.append(words_at(box[0], box[3] - 4, line["label"], colour, "start", rim))
    for i in range(len(spots)):
        point, x, y = panel["points"][i], spots[i][0], spots[i][1]
        edge = f'stroke="{paint("card")}" stroke-width="2"'
        more = f'{data_of(point["label"], point["y"])} data-x="{exact(point["x"])}"'
        where = f'cx="{px(x)}" cy="{px(y)}" r="6"'
        body.append(f'<circle {where} fill="{paint(point["role"])}" {edge}{more}/>')
        label = clipped(point["label"], SMALL, width * 0.6)
        box = free_box(x, y, BOLD * text_width(label, SMALL), area, width, taken, curves)
        taken.append(box)
        body.append(haloed(box[0], box[3] - 4, label, "start", ' font-weight="bold"'))
    return "".join(body)


def free_box(
    x: float,
    y: float,
    room: float,
    area: dict,
    width: float,
    taken: list[list[float]],
    curves: list[list[list[float]]],
) -> list[float]:
    """Left, top, right, bottom of a box for words near (x, y).

    It covers nothing in `taken`, and no curve if there is such a box within a few lines.
    """
    best = [min(max(0, x + 11), max(0, width - room)), y - 8, x + 11 + room, y + LINE - 8]
    uncovered = False
    for away in [0, 1, -1, 1.5, -1.5, 2, -2, 3, -3, 4, -4]:
        for left in [x + 11, x - 11 - room, x + 4, x - 4 - room, x - room / 2]:
            top = y - 8 + away * (LINE + 1)
            box = [left, top, left + room, top + LINE]
            inside = left >= 0 and left + room <= width and top >= area["top"] - 8
            if inside and top + LINE <= area["bottom"] + 2 and not covered(box, taken):
                if not crossed(box, curves):
                    return box
                if not uncovered:
                    best, uncovered = box, True
    return best


def covered(box: list[float], taken: list[list[float]]) -> bool:
    """Whether a box meets one of the others."""
    for other in taken:
        across = box[0] < other[2] and other[0] < box[2]
        if across and box[1] < other[3] and other[1] < box[3]:
            return True
    return False


def crossed(box: list[float], curves: list[list[list[float]]]) -> bool:
    """Whether one of the curves, straight from point to point, passes through a box."""
    for curve in curves:
        for i in range(1, len(curve)):
            if segment_meets(box, curve[i - 1], curve[i]):
                return True
    return False


def segment_meets(box: list[float], start: list[float], end: list[float]) -> bool:
    """Whether the line from start to end passes through a box (clipped side by side)."""
    first, last = 0.0, 1.0
    for k in range(2):
        step = end[k] - start[k]
        low, high = box[k] - start[k], box[k + 2] - start[k]
        if abs(step) < 0.000001:
            if low > 0 or high < 0:
                return False
        else:
            enter, leave = min(low / step, high / step), max(low / step, high / step)
            first, last = max(first, enter), min(last, leave)
            if first > last:
                return False
    return True


LEVELS = "0123456789"  # of a weight: the side of its mark, in ninths of a cell
SHARES = 20  # steps of a bar at the right
SHARE_LABEL = "held"
LETTER = 7.6  # pixels that a letter of the keys takes; where a column has less, lines have numbers
SIDE = 0.16  # of the width that lines of text may take beside the queries


def map_size(panel: dict, width: float) -> dict:
    """Where the map is drawn: side (left of it), pitch of columns and rows, strip (the bars)."""
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
    """[query, key] of the weights of one level whose key was cached (or lost) at that query."""
    cells: list[list[int]] = []
    for t in range(len(levels)):
        for key in range(len(levels[t])):
            if levels[t][key] == digit and (t < lost[key]) == held:
                cells.append([t, key])
    return cells


def rectangle(x: float, y: float, width: float, height: float) -> str:
    """A rectangle as part of a path."""
    return f"M{px(x)} {px(y)}h{px(width)}v{px(height)}h-{px(width)}z"


def map_path(path: str, what: str, more: str) -> str:
    """Marks of one size: filled where keys were cached, outlined where they were lost."""
    if what == "held":
        return f'<path d="{path}" fill="{paint("cached")}"{more}/>'
    ink = f'fill="{paint("card")}" stroke="{paint("free")}" stroke-width="1"'
    return f'<path d="{path}" {ink}{more}/>'


def map_frame(panel: dict, size: dict, top: float) -> str:
    """What is under the marks: the grey ground of lost keys, lines of the text, letters."""
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
        body.append(segment(x, y, x, bottom, "grid"))
        body.append(segment(left, y, x, y, "grid"))
        words = line["label"] if size["named"] else f"{number}"
        body.append(words_at(left - 6, y + 10, words, paint("muted"), "end"))
        if across < LETTER:
            body.append(words_at(x + 1, top - 5, f"{number}", paint("muted")))
    body.append(segment(left, bottom, end, bottom, "muted"))
    body.append(segment(left, top, left, bottom, "muted"))
    if across >= LETTER:
        body.append(map_letters(letters, lost, left, across, top - 5))
    words = "keys, in the order of the text" if size["named"] else "keys"
    body.append(words_at(left, top - 21, words, paint("muted")))
    return "".join(body)


def map_letters(letters: str, lost: list[int], left: float, across: float, y: float) -> str:
    """One letter above each column; those of keys that are lost at the end are grey."""
    runs: list[str] = []
    places: list[str] = []
    run = ""
    for key in range(len(letters)):
        run = run + letters[key]
        places.append(px(left + across * (key + 0.5)))
        dropped = lost[key] < len(letters)
        last = key == len(letters) - 1
        if last or (lost[key + 1] < len(letters)) != dropped:
            colour = paint_text("free") if dropped else paint("ink")
            safe = run.replace("&", "&amp;").replace("<", "&lt;")
            runs.append(f'<tspan x="{" ".join(places)}" fill="{colour}">{safe}</tspan>')
            run = ""
            places = []
    font = 'font-family="ui-monospace, Menlo, Consolas, monospace" text-anchor="middle"'
    return f'<text y="{px(y)}" {font} fill="{paint("ink")}">{"".join(runs)}</text>'


def map_shares(panel: dict, x: float, top: float, size: dict) -> str:
    """A bar per query: how much of its attention goes to keys that were cached."""
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
    body.append(segment(x + long, top, x + long, top + down * n, "grid"))
    more = data_of(SHARE_LABEL, total)
    body.append(f'<path d="{"".join(path)}" fill="{paint("cached")}"{more}/>')
    body.append(segment(x, top, x, top + down * n, "muted"))
    words = "share held" if size["named"] else "held"
    body.append(words_at(x + long, top - 21, words, paint("muted"), "end"))
    body.append(words_at(x + long, top - 5, "100 %", paint("muted"), "end"))
    return "".join(body)


GAP = 20  # between panels
LEADING = 17  # from one line of a title to the next


def draw(scene: dict, width: float = 720) -> str:
    """The panels of a scene, one under the other, `width` pixels wide (320 or more)."""
    body: list[str] = []
    y = 4.0
    for panel in scene["panels"]:
        if panel["kind"] == "bars":
            drawn = draw_bars(panel, width)
        elif panel["kind"] == "curves":
            drawn = draw_curves(panel, width)
        elif panel["kind"] == "map":
            drawn = draw_map(panel, width)
        elif panel["kind"] == "table":
            drawn = draw_table(panel, width)
        else:
            drawn = draw_cells(panel, width)
        lines = wrapped(panel["label"], TITLE * BOLD, width)
        bold = f' font-size="{TITLE}" font-weight="bold"'
        for line in lines:
            body.append(words_at(0, y + 13, line, paint("ink"), "start", bold))
            y = y + LEADING
        y = y - LEADING  # panels leave room for one line of title
        body.append(f'<g transform="translate(0 {px(y)})">{drawn["body"]}</g>')
        y = y + drawn["height"] + GAP
    height = px(y - GAP + 4)
    size = f'viewBox="0 0 {px(width)} {height}" width="{px(width)}" height="{height}"'
    font = f'font-family="system-ui, sans-serif" font-size="{SMALL}"'
    card = f'<rect width="{px(width)}" height="{height}" fill="{paint("card")}"/>'
    root = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>'
    return f"{root}{card}{''.join(body)}</svg>"
