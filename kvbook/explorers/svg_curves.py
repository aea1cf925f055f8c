"""Curves with names at their ends, and points on them, as SVG (the language of the page).

Axes are drawn from the scene's ticks, linear or logarithmic. What leaves the axes is cut off, by an
inner `<svg>`, which needs no id and so may stand on a page many times.
"""

from __future__ import annotations

from kvbook.explorers.svg_parts import (
    BOLD,
    HALO,
    SMALL,
    clipped,
    data_of,
    exact,
    haloed,
    legend_at,
    paint,
    paint_text,
    place,
    px,
    segment,
    text_width,
    words_at,
)


def draw_curves(panel: dict, width: float) -> dict:
    """{"body", "height"} of a panel of curves; names stand at the ends where there is room."""
    area = plot_area(panel, width)
    body = [words_at(0, 31, panel["y"]["label"], paint("muted"), "start", "")]
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
        body.append(segment(left, y, right, y, "grid", ""))
        body.append(words_at(left - 6, y + 4, tick["text"], paint("muted"), "end", ""))
    ticks = panel["x"]["ticks"]
    stride = tick_stride(panel, area)
    for i in range(len(ticks)):
        x = at_x(panel, area, ticks[i]["at"])
        body.append(segment(x, bottom, x, bottom + 4, "muted", ""))
        if i % stride == 0:
            body.append(words_at(x, bottom + 18, ticks[i]["text"], paint("muted"), "middle", ""))
    body.append(segment(left, bottom, right, bottom, "muted", ""))
    body.append(segment(left, area["top"], left, bottom, "muted", ""))
    middle = (left + right) / 2
    body.append(words_at(middle, bottom + 35, panel["x"]["label"], paint("muted"), "middle", ""))
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
    found = wanted + []
    floor = top
    for i in order:
        found[i] = max(found[i], floor)
        floor = found[i] + LINE
    ceiling = bottom
    for k in range(len(order)):
        i = order[len(order) - 1 - k]
        found[i] = min(found[i], ceiling)
        ceiling = found[i] - LINE
    return found


def upright(line: dict) -> bool:
    """Whether a line marks one value of the x axis, from the bottom up."""
    return line["points"][0][0] == line["points"][-1][0]


def end_names(panel: dict, area: dict) -> list[dict]:
    """Where the name of each curve stands: beside its end, moved up or down from its neighbours."""
    lines = [line for line in panel["lines"] if len(line["points"]) > 0 and not upright(line)]
    wanted: list[float] = []
    for line in lines:
        y = at_y(panel, area, line["points"][-1][1])
        wanted.append(min(max(y, area["top"]), area["bottom"]))
    heights = spread(wanted, area["top"], area["bottom"])
    found: list[dict] = []
    for i in range(len(lines)):
        x = min(at_x(panel, area, lines[i]["points"][-1][0]), area["right"]) + 10
        found.append({"x": x, "y": heights[i], "label": lines[i]["label"], "of": lines[i]["role"]})
    return found


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
            body.append(words_at(end["x"], end["y"] + 4, end["label"], colour, "start", ""))
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
    """Left, top, right, bottom of a place for words near (x, y).

    It covers nothing in `taken`, and no curve if there is such a place within a few lines.
    """
    best = [min(max(0, x + 11), max(0, width - room)), y - 8, x + 11 + room, y + LINE - 8]
    found = False
    for away in [0, 1, -1, 1.5, -1.5, 2, -2, 3, -3, 4, -4]:
        for left in [x + 11, x - 11 - room, x + 4, x - 4 - room, x - room / 2]:
            top = y - 8 + away * (LINE + 1)
            box = [left, top, left + room, top + LINE]
            inside = left >= 0 and left + room <= width and top >= area["top"] - 8
            if inside and top + LINE <= area["bottom"] + 2 and not covered(box, taken):
                if not crossed(box, curves):
                    return box
                if not found:
                    best, found = box, True
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
