"""The chapter on the GPU: drawings, and the explorer of splits."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvbook.explorers.controls import Slider
from kvbook.explorers.explorer import Explorer, Scene
from kvbook.explorers.scenes.panels import bars_panel, cells_panel
from kvbook.explorers.scenes.words import count_words
from kvbook.figures import draw
from kvbook.figures.draw import bars, centered, figure
from kvbook.figures.style import CARD, INK, MUTED, color
from kvlib.kernels.plans import handed_out

COLUMNS = 22  # multiprocessors in a row of the drawing
NAMES = {
    "dense": "bfloat16, dense",
    "without tensor cores": "bfloat16, no tensor cores",
    "paged, blocks of 16": "bfloat16, paged",
    "torch": "bfloat16, PyTorch",
    "e4m3": "fp8 e4m3",
}
SPLITS = (1, 2, 4, 8, 16, 32, 49, 64, 128)


def anatomy(heads: int, requests: int, head: int, request: int, dim: int, lane: int) -> Any:
    """Left: a grid with a block per query head and request, one marked. Right: its 32 lanes.

    The marked `lane` of the block multiplies the channels lane, lane + 32, ... of a key.
    """
    fig, (grid, warp) = figure(2.5, ncols=2, width_ratios=(1, 1.5))
    roles = [["query" if (r, h) == (request, head) else "free" for h in range(heads)]
             for r in range(requests)]  # fmt: skip
    draw.cells(grid, roles, xlabel="query head (blockIdx.x)", ylabel="request (blockIdx.y)")
    grid.set(title=f"Grid: {heads * requests} blocks", aspect="equal")
    grid.set(xticks=range(heads), yticks=range(requests))
    roles = [["key" if j == lane else "free" for j in range(32)] for _ in range(dim // 32)]
    draw.cells(warp, roles, xlabel="lane (threadIdx.x)", ylabel="channels of a key")
    warp.set_title("The orange block: 32 lanes share a key")
    warp.set(xticks=[0, lane, 31], yticks=range(dim // 32))
    warp.set_yticklabels([f"{i} to {i + 31}" for i in range(0, dim, 32)])
    for patch in warp.patches:
        patch.set_linewidth(0.5)
    for i in range(dim // 32):
        warp.text(32, i, f"channel {lane + 32 * i}", va="center", color=INK)
    return fig


def shuffle(values: Sequence[int]) -> Any:
    """Sums of all lanes by exchanges between lanes that are half as far apart in each round."""
    fig, ax = figure(2.6)
    rounds, far = [np.asarray(values)], len(values)
    names = ["before"]
    while far > 1:
        far //= 2
        partner = np.arange(len(values)) ^ far
        for lane, other in enumerate(partner):
            row = len(rounds)
            ax.plot([other, lane], [row - 0.72, row - 0.28], color=MUTED, linewidth=1)
        rounds.append(rounds[-1] + rounds[-1][partner])
        names.append(f"after s += shuffle(s, {far})")
    for row, sums in enumerate(rounds):
        for lane, total in enumerate(sums):
            role = "ink" if row == len(rounds) - 1 else "free"
            draw.box(ax, lane, row, 0.7, 0.5, **draw.fill(role))
            centered(ax, lane, row, str(total), CARD if role == "ink" else INK)
    ax.set(xlim=(-0.6, len(values) - 0.4), ylim=(len(rounds) - 0.6, -0.5))
    ax.set_yticks(range(len(rounds)), labels=names)
    ax.set_xticks(range(len(values)), labels=[f"lane {i}" for i in range(len(values))])
    ax.tick_params(length=0)
    ax.grid(visible=False)
    ax.set_title(f"{len(rounds) - 1} shuffles give each of {len(values)} lanes the whole sum")
    return fig


def sectors(ways: Mapping[str, Sequence[Sequence[int]]]) -> Any:
    """Way of reading -> for each sector that its loads touch, the floats asked for, of eight."""
    fig, axes = figure(1.9, ncols=len(ways))
    for ax, (name, touched) in zip(np.atleast_1d(axes), ways.items(), strict=True):
        asked = sum(map(len, touched))
        roles = [["key" if i in row else "free" for i in range(8)] for row in touched]
        draw.cells(ax, roles, xlabel="float of the sector")
        ax.set_yticks(range(len(touched)), labels=[f"sector {i}" for i in range(len(touched))])
        ax.set(xticks=range(8), aspect="equal")
        ax.set_title(f"{name}:\n{asked} of {8 * len(touched)} floats are used")
    return fig


def hiding(work: int, wait: int, warps: Sequence[int], until: int) -> Any:
    """Timelines in clocks of multiprocessors with so many warps: each works, then waits."""
    panels = {}
    for n in warps:
        starts = [range(i * work, until, max(work + wait, n * work)) for i in range(n)]
        busy = sum(min(work, until - at) for row in starts for at in row)
        words = "1 warp" if n == 1 else f"{n} warps"
        panels[f"{words}: the multiprocessor works {busy / until:.0%} of the time"] = {
            f"warp {i}": [x for at in row for x in ((at, work, "ink"), (at + work, wait, "free"))]
            for i, row in enumerate(starts)
        }
    return tracks(panels, until, "clock", {"ink": "computes", "free": "waits for its load"})


def tracks(
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float, str]]]],
    until: float,
    xlabel: str,
    legend: Mapping[str, str],
) -> Any:
    """Timelines; title -> row -> (start, length, role) of each piece, cut off at `until`."""
    heights = [len(rows) + 1 for rows in panels.values()]
    fig, axes = figure(0.28 * sum(heights) + 0.94, nrows=len(panels), sharex=True,
                       height_ratios=heights)  # fmt: skip
    for ax, (title, rows) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        for y, pieces in enumerate(rows.values()):
            for start, length, role in pieces:
                if start < until:
                    ax.barh(y, min(length, until - start), left=start, height=0.7,
                            **draw.fill(role))  # fmt: skip
        draw.list_rows(ax, rows)
        ax.set(title=title, xlim=(0, until), ylim=(len(rows) - 0.5, -0.5))
        ax.tick_params(axis="x", length=0)
    ax.set_xlabel(xlabel)
    draw.legend_below(fig, legend)
    return fig


def timelines(plans: Mapping[str, Sequence[tuple[str, int]]], at_once: int) -> Any:
    """Which block runs when; words -> (name, keys) of each block, in the order of their start."""
    fig, axes = figure(0.3 * at_once * len(plans) + 1.6, nrows=len(plans), sharex=True)
    for ax, (name, blocks) in zip(np.atleast_1d(axes), plans.items(), strict=True):
        ends = [0] * at_once
        for words, keys in blocks:
            row = ends.index(min(ends))
            role = "ink" if words == blocks[0][0] else "muted"
            ax.barh(row, keys, left=ends[row], height=0.8, color=color(role), edgecolor=CARD)
            centered(ax, ends[row] + keys / 2, row, words, CARD)
            ends[row] += keys
        last = max(ends)
        ax.set_title(f"{name}: done after {last:,} keys, {1 - sum(ends) / at_once / last:.0%} idle")
        ax.set(yticks=[], ylim=(at_once - 0.4, -0.6), ylabel=f"{at_once} blocks at once")
        ax.grid(axis="y", visible=False)
    np.atleast_1d(axes)[-1].set_xlabel("keys read one after another")
    return fig


def measured(case: Mapping[str, Any]) -> Any:
    """Speed of each way to decode beside dense bfloat16, measured, and as its bytes would allow.

    case: one entry of "decode" in gpu_attention.json. A way that reads b times as many bytes as the
    dense cache could be 1 / b times as fast; that is its outline.
    """
    runs = case["runs"]
    dense = runs["dense"]
    fig, ax = figure(1.5 + 0.36 * len(runs))
    speeds = {NAMES.get(name, name): dense["median_us"] / run["median_us"]
              for name, run in runs.items()}  # fmt: skip
    allowed = [
        x * dense["share"] / run["share"]
        for x, run in zip(speeds.values(), runs.values(), strict=True)
    ]
    label = f"times as fast as bfloat16, dense ({case['batch']} requests of {case['keys']:,} keys)"
    bars(ax, speeds, ["ink"] * len(runs), xlabel=label, digits=False)
    ax.barh(list(speeds), allowed, height=0.62, fill=False, edgecolor=color("free"))
    for row, (speed, most) in enumerate(zip(speeds.values(), allowed, strict=True)):
        words = f"{speed:.2f} of {most:.2f}" if most > speed + 0.05 else f"{speed:.2f}"
        ax.text(max(speed, most) + 0.05, row, words, va="center", color=INK)
    ax.set_xlim(0, max(allowed) * 1.3)
    ax.set_title("Codes gain less speed than their bytes allow")
    words = "what the bytes allow, at the rate of dense bfloat16"
    draw.legend_below(fig, {"ink": "measured", "free": words})
    return fig


def splits_explorer(
    keys: int, num_kv_heads: int, groups: int, head_dim: int, sms: int, per_sm: int
) -> Explorer:
    """A slider over the splits of one request: busy multiprocessors, and what the merge costs.

    keys of one request; num_kv_heads, groups (query heads of each), head_dim: of the model;
    sms: multiprocessors, each of which runs per_sm blocks at once. Numbers are of 2 bytes, partial
    results of 4.
    """
    slider = Slider("splits", "Splits of the keys", SPLITS, 1)
    sizes = (keys, num_kv_heads, groups, head_dim, sms, per_sm)
    scenes = [_split_scene(n, *sizes) for n in SPLITS]
    return Explorer.from_frames("splits", "One request on a GPU", slider, scenes)


def _split_scene(
    splits: int, keys: int, heads: int, groups: int, dim: int, sms: int, per_sm: int
) -> Scene:
    blocks, each = heads * splits, -(-keys // splits)
    split_words = count_words(splits, "split", "splits")
    waves = -(-blocks // (sms * per_sm))
    read = 2 * keys * heads * dim * 2
    partial = (splits > 1) * splits * heads * groups * (dim + 1) * 4
    busiest, share = handed_out([keys], [splits], heads, sms * per_sm)
    counts = [min(per_sm, (blocks + sms - 1 - i) // sms) for i in range(sms)]
    roles = ["muted" if n else "free" for n in counts]
    letters = "".join(str(n) if n else " " for n in counts)
    rows = [
        [f"{i} to {end - 1}", roles[i:end], letters[i:end]]
        for i, end in ((i, min(i + COLUMNS, sms)) for i in range(0, sms, COLUMNS))
    ]
    legend = [["muted", "number: blocks that run at first"], ["free", "idle"]]
    once = ["read once", read / 2**20, "key"]
    twice = ["written, then read", 2 * partial / 2**20, "muted"]
    moved = [["keys and values", [once]], ["partial results", [twice]]]
    most = read / 2**20 * 1.35
    return {
        "title": f"{split_words}: {blocks:,} blocks",
        "summary": f"{blocks:,} blocks of {each:,} keys each. The last block finishes after"
        f" {busiest:,} keys, and {share:.0%} of the capacity is idle. Partial results add"
        f" {2 * partial / read:.1%} to the bytes.",
        "formula": [f"{heads} kv heads \u00d7 {split_words} = {blocks:,} blocks"],
        "numbers": [
            {"label": "Keys per block", "text": f"{each:,}"},
            {"label": f"Waves of {sms * per_sm} blocks", "text": f"{waves:,}"},
            {"label": "Keys until the last block finishes", "text": f"{busiest:,}"},
            {"label": "Idle share of the capacity", "text": f"{share:.0%}"},
            {"label": "Partial results, written and read", "text": f"{2 * partial / read:.1%}"},
        ],
        "panels": [
            cells_panel(f"{sms} multiprocessors, up to {per_sm} blocks on each", rows, legend),
            bars_panel("Bytes moved by one layer, MiB", "MiB", most, moved),
        ],
    }
