"""The chapter on the GPU: drawings, and the explorers of splits and of one decode step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvbook.explorers.controls import Slider
from kvbook.explorers.explorer import Explorer, Scene
from kvbook.explorers.scenes.panels import bars_panel, cells_panel
from kvbook.explorers.scenes.words import count_words
from kvbook.figures import draw
from kvbook.figures.draw import Amounts, Series, bars, centered, figure, note
from kvbook.figures.style import CARD, INK, MUTED, color
from kvlib.kernels.plans import handed_out

COLUMNS = 22  # multiprocessors in a row of the drawing
SPLITS = (1, 2, 4, 8, 16, 32, 49, 64, 128)


def busy(blocks: Amounts, sms: int) -> Any:
    """Which of `sms` multiprocessors have a block to run; blocks: words → number of blocks."""
    fig, axes = figure(1.45, ncols=len(blocks))
    for ax, (name, n) in zip(np.atleast_1d(axes), blocks.items(), strict=True):
        i = np.arange(sms)
        edge = [color("ink" if j < n else "free") for j in i]
        fill = [color("ink") if j < n else CARD for j in i]
        ax.scatter(i % COLUMNS, -(i // COLUMNS), s=52, marker="s", c=fill, edgecolors=edge)
        ax.set(xlim=(-0.8, COLUMNS - 0.2), ylim=(-(sms - 1) // COLUMNS - 0.3, 0.8))
        ax.set_axis_off()
        ax.set(aspect="equal", title=f"{name}: {min(n, sms)} of {sms} busy")
    return fig


def idle(shares: Mapping[str, tuple[float, float]]) -> Any:
    """Idle share of the places' time, by batch: (before, after) a change of plan."""
    fig, ax = figure(0.62 * len(shares) + 1.1)
    names = ("same splits for all", "balanced")
    series = {name: [100 * pair[i] for pair in shares.values()] for i, name in enumerate(names)}
    for drawn in draw.grouped(ax, series, ("muted", "ink"), share=0.76, flat=True):
        words = [f"{bar.get_width():.0f}" for bar in drawn]
        ax.bar_label(drawn, labels=words, padding=4, fontsize=9)
    draw.list_rows(ax, shares, across=True)
    ax.set(xlim=(0, 112), xlabel="idle share of the places' time (%)")
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
    return fig


def hierarchy(sizes: Amounts, needed: int, bandwidths: Amounts, clocks: Amounts) -> Any:
    """Each level of memory: bytes, with a line at `needed`; TB/s, and clocks that a load waits."""
    fig, (left, right) = figure(2.6, ncols=2)
    roles = ["muted"] * len(sizes)
    bars(left, {k: v / 2**20 for k, v in sizes.items()}, roles, xlabel="size (MiB)")
    left.set_xscale("log")
    left.set_xlim(1, max(sizes.values()) / 2**20 * 60)
    left.axvline(needed / 2**20, color=color("key"), dashes=(4, 3))
    left.set_title("dashed: one request's keys, values", fontsize=9, color=color("key"))
    bars(right, bandwidths, roles, xlabel="bandwidth (TB/s)", digits=False)
    right.set_xscale("log")
    right.set_xlim(1, max(bandwidths.values()) * 60)
    for row, (name, rate) in enumerate(bandwidths.items()):
        wait = f"{clocks[name]} clocks" if clocks.get(name) else "at once"
        centered(right, rate * 1.2, row, f"{rate:.3g}, {wait}", ha="left")
    right.set_yticklabels([])
    right.set_title("bandwidth, and the wait for a load", fontsize=9, color=MUTED)
    return fig


def efficiency(sectors: Amounts, bytes_read: int) -> Any:
    """Bytes moved in sectors of 32 bytes by each way of reading, per byte asked for."""
    fig, ax = figure(1.9)
    times = {name: 32 * n / bytes_read for name, n in sectors.items()}
    bars(ax, times, ["muted", "ink", "ink"], xlabel="bytes moved per byte asked for")
    ax.axvline(1, color=MUTED, linewidth=1)
    return fig


def resources(registers: Amounts, warps: Amounts) -> Any:
    """Registers per thread of some kernels, and the warps that a multiprocessor then holds."""
    fig, (left, right) = figure(2.4, ncols=2)
    bars(left, registers, ["muted"] * len(registers), xlabel="registers per thread")
    bars(right, warps, ["ink"] * len(warps), xlabel="warps per multiprocessor (at most 64)")
    right.set_yticklabels([])
    return fig


def intensities(points: Amounts, ridge: float, bandwidth: float, peak: float) -> Any:
    """A roofline in bfloat16 (bytes and operations per second) with intensities marked on it."""
    fig, ax = figure(3.4)
    x = np.geomspace(0.5, 2000, 200)
    ax.plot(x, np.minimum(peak, x * bandwidth) / 1e12, color=color("ink"))
    for name, at in points.items():
        y = min(peak, at * bandwidth) / 1e12
        ax.plot([at], [y], "o", color=color("muted"))
        note(ax, name, (at, y), (7, -4))
    ax.axvline(ridge, color=MUTED, linewidth=1, dashes=(2, 3))
    foot = (ridge, x[0] * bandwidth / 1e12)
    note(ax, f"ridge: {ridge:.0f}", foot, (4, 0), va="baseline", color=MUTED)
    ax.set(xscale="log", yscale="log", xlabel="operations per byte of keys and values")
    ax.set_ylabel("TFLOP/s, at most")
    return fig


def on_one_device(devices: Sequence[int], gib: Series) -> Any:
    """GiB of cache on the fullest device against the number of devices, one panel per way."""
    fig, axes = figure(2.5, ncols=len(gib), sharey=True)
    ticks = sorted({round(x) for y in gib.values() for x in y})
    for ax, (name, y) in zip(np.atleast_1d(axes), gib.items(), strict=True):
        ax.plot(devices, y, "o-", color=color("cached"))
        ax.set(xscale="log", yscale="log", xlabel="devices", title=name)
        draw.ticks_at(ax, devices)
        draw.ticks_at(ax, ticks, axis="y")
        level = next((i for i in range(1, len(y)) if y[i] == y[i - 1]), None)
        if level is not None:  # from here on another device takes nothing away
            ax.plot(devices[level - 1 :], y[level - 1 :], color=color("muted"), linewidth=5)
    np.atleast_1d(axes)[0].set_ylabel("fullest device (GiB)")
    return fig


def measured(case: Mapping[str, Any]) -> Any:
    """Speed of each way to decode beside dense bfloat16, measured, and as its bytes would allow.

    case: one entry of "decode" in gpu_attention.json. A way that reads b times the bytes of the
    dense cache could be 1 / b times as fast; that is its outline.
    """
    runs = case["runs"]
    dense = runs["dense"]
    fig, ax = figure(0.9 + 0.36 * len(runs))
    speeds = {name: dense["median_us"] / run["median_us"] for name, run in runs.items()}
    allowed = [speeds[name] * dense["share"] / run["share"] for name, run in runs.items()]
    bars(ax, speeds, ["ink"] * len(runs), xlabel="times as fast as bfloat16, dense", digits=False)
    ax.barh(list(runs), allowed, height=0.62, fill=False, edgecolor=color("free"))
    for row, (speed, most) in enumerate(zip(speeds.values(), allowed, strict=True)):
        ax.text(max(speed, most) + 0.05, row, f"{speed:.2f}", va="center", color=INK)
    ax.set_xlim(0, max(allowed) * 1.1)
    ax.set_title("solid: measured; outline: what the bytes would allow", fontsize=9, color=MUTED)
    return fig


def step_times(step_ms: Amounts) -> Any:
    """Milliseconds per decode step: the first entry is the time to read the weights."""
    fig, ax = figure(0.6 + 0.36 * len(step_ms))
    bars(ax, step_ms, ["weights"] + ["muted"] * (len(step_ms) - 1), xlabel="ms per step")
    return fig


def splits_explorer(
    keys: int, num_kv_heads: int, groups: int, head_dim: int, sms: int, per_sm: int
) -> Explorer:
    """A slider over the splits of one request's keys: which places are busy, what the merge costs.

    keys of one request; num_kv_heads, groups (query heads of each), head_dim: of the model;
    sms: multiprocessors, each with room for per_sm blocks. Numbers are of 2 bytes, partial results
    of 4.
    """
    slider = Slider("splits", "Splits of the keys", SPLITS, 1)
    sizes = (keys, num_kv_heads, groups, head_dim, sms, per_sm)
    scenes = [_split_scene(n, *sizes) for n in SPLITS]
    return Explorer.from_frames("splits", "One request on a device", slider, scenes)


def _split_scene(
    splits: int, keys: int, heads: int, groups: int, dim: int, sms: int, per_sm: int
) -> Scene:
    blocks, each = heads * splits, -(-keys // splits)
    split_words = count_words(splits, "split", "splits")
    waves = -(-blocks // (sms * per_sm))
    read = 2 * keys * heads * dim * 2
    partial = (splits > 1) * splits * heads * groups * (dim + 1) * 4
    busiest, share = handed_out([keys], [splits], heads, sms * per_sm)
    idle = f"the {sms * per_sm} places are idle for {share:.0%} of the time"
    roles = ["muted" if i < blocks else "free" for i in range(sms)]
    rows = [[f"from {i}", roles[i : i + COLUMNS]] for i in range(0, sms, COLUMNS)]
    legend = [["muted", "has a block"], ["free", "idle"]]
    once = ["read once", read / 2**20, "key"]
    twice = ["written, then read", 2 * partial / 2**20, "muted"]
    moved = [["keys and values", [once]], ["partial results", [twice]]]
    most = read / 2**20 * 1.35
    return {
        "title": f"{split_words}: {blocks:,} blocks",
        "summary": f"{blocks:,} blocks of {each:,} keys each; the busiest place reads"
        f" {busiest:,} keys, and {idle}. Partial results add {2 * partial / read:.1%} to the"
        " bytes.",
        "formula": [f"{heads} kv heads \u00d7 {split_words} = {blocks:,} blocks"],
        "numbers": [
            {"label": "Keys per block", "text": f"{each:,}"},
            {"label": f"Waves of {sms * per_sm} blocks", "text": f"{waves:,}"},
            {"label": "Keys that the busiest place reads", "text": f"{busiest:,}"},
            {"label": "Idle share of the places' time", "text": f"{share:.0%}"},
            {"label": "Partial results, written and read", "text": f"{2 * partial / read:.1%}"},
        ],
        "panels": [
            cells_panel(f"{sms} multiprocessors", rows, legend),
            bars_panel("Bytes moved by one layer, MiB", "MiB", most, moved),
        ],
    }


def steps_explorer(blocks: int, steps: int, keys_a_step: int, groups: int) -> Explorer:
    """One kv head's decode, step by step: `blocks` splits of `steps` stretches of keys each.

    groups: groups of lanes in a block, each with a state of its own.
    """
    names = ["launch", *(f"read {i + 1}" for i in range(steps)), "merge in blocks", "merge splits"]
    slider = Slider("step", "Step", range(len(names)), 0, texts=names)
    frames = [_step_scene(i, names, blocks, steps, keys_a_step, groups) for i in range(len(names))]
    return Explorer.from_frames("decode_steps", "One kv head, step by step", slider, frames)


def _step_scene(
    at: int, names: Sequence[str], blocks: int, steps: int, each: int, groups: int
) -> Scene:
    done = min(at, steps)
    states = [blocks * groups, blocks, 1][max(0, at - steps)] if at else 0
    words = {
        0: f"{blocks} blocks start. Each computes its first and last key.",
        steps + 1: f"The {groups} groups of each block merge, by shuffles in a warp, then through"
        " shared memory.",
        steps + 2: f"A second kernel merges the {blocks} splits: one (o, lse) is left.",
    }
    reads = f"Each group of lanes loads {each // groups} keys and values, then updates (m, l, o)."
    roles = ["cached" if i < done else "free" for i in range(steps)]
    if 0 < at <= steps:
        roles[at - 1] = "muted"
    rows = [[f"block {b}", roles] for b in range(blocks)]
    legend = [["cached", "read"], ["muted", "on its way"], ["free", "not yet"]]
    return {
        "title": f"Step {at} of {len(names) - 1}: {names[at]}",
        "summary": words.get(at, reads),
        "formula": [f"{blocks} blocks \u00d7 {groups} groups = {blocks * groups} online softmaxes"],
        "numbers": [
            {"label": "Keys read", "text": f"{done * blocks * each:,}"},
            {"label": "Partial results (m, l, o)", "text": f"{states:,}"},
        ],
        "panels": [cells_panel(f"One row per block, {each} keys per square", rows, legend)],
    }
