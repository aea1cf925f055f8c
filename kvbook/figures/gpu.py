"""Drawings of the chapter on the GPU: data in, Figure out. Its explorers are in `gpu_blocks`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvbook.figures.draw import bars, figure, finish
from kvbook.figures.gpu_blocks import splits_explorer, steps_explorer
from kvbook.figures.style import CARD, INK, MUTED, color

__all__ = [
    "busy",
    "efficiency",
    "hierarchy",
    "idle",
    "intensities",
    "measured",
    "on_one_device",
    "resources",
    "splits_explorer",
    "step_times",
    "steps_explorer",
]
COLUMNS = 22  # multiprocessors in a row of the drawing


def busy(blocks: Mapping[str, int], sms: int) -> Any:
    """Which of `sms` multiprocessors have a block to run; blocks: words → number of blocks."""
    fig, axes = figure(1.45, ncols=len(blocks))
    for ax, (name, n) in zip(np.atleast_1d(axes), blocks.items(), strict=True):
        i = np.arange(sms)
        edge = [color("ink" if j < n else "free") for j in i]
        fill = [color("ink") if j < n else CARD for j in i]
        ax.scatter(i % COLUMNS, -(i // COLUMNS), s=52, marker="s", c=fill, edgecolors=edge)
        ax.set(xlim=(-0.8, COLUMNS - 0.2), ylim=(-(sms - 1) // COLUMNS - 0.3, 0.8))
        ax.set_axis_off()
        ax.set_aspect("equal")
        ax.set_title(f"{name}: {min(n, sms)} of {sms} busy")
    return finish(fig)


def idle(shares: Mapping[str, tuple[float, float]]) -> Any:
    """Idle share of the places' time, by batch: (before, after) a change of plan."""
    fig, ax = figure(0.62 * len(shares) + 1.1)
    rows = np.arange(len(shares))
    for i, (label, role) in enumerate((("same splits for all", "muted"), ("balanced", "ink"))):
        wide = [100 * pair[i] for pair in shares.values()]
        drawn = ax.barh(rows + (i - 0.5) * 0.38, wide, 0.34, color=color(role), label=label)
        ax.bar_label(drawn, labels=[f"{x:.0f}" for x in wide], padding=4, fontsize=9)
    ax.set_yticks(rows, labels=list(shares))
    ax.invert_yaxis()
    ax.set(xlim=(0, 112), xlabel="idle share of the places' time (%)")
    ax.grid(axis="x", visible=True)
    ax.grid(axis="y", visible=False)
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
    return finish(fig)


def hierarchy(
    sizes: Mapping[str, int],
    needed: int,
    bandwidths: Mapping[str, float],
    clocks: Mapping[str, int],
) -> Any:
    """Each level of memory: bytes, with a line at `needed`; TB/s, and clocks that a load waits."""
    fig, (left, right) = figure(2.6, ncols=2)
    bars(
        left, {k: v / 2**20 for k, v in sizes.items()}, ["muted"] * len(sizes), xlabel="size (MiB)"
    )
    left.set_xscale("log")
    left.set_xlim(1, max(sizes.values()) / 2**20 * 60)
    left.axvline(needed / 2**20, color=color("key"), dashes=(4, 3))
    left.set_title("dashed: one request's keys, values", fontsize=9, color=color("key"))
    bars(right, bandwidths, ["muted"] * len(sizes), xlabel="bandwidth (TB/s)", digits=False)
    right.set_xscale("log")
    right.set_xlim(1, max(bandwidths.values()) * 60)
    for row, (name, rate) in enumerate(bandwidths.items()):
        wait = f"{clocks[name]} clocks" if clocks.get(name) else "at once"
        right.text(rate * 1.2, row, f"{rate:.3g}, {wait}", va="center", fontsize=9, color=INK)
    right.set_yticklabels([])
    right.set_title("bandwidth, and the wait for a load", fontsize=9, color=MUTED)
    return finish(fig)


def efficiency(sectors: Mapping[str, int], bytes_read: int) -> Any:
    """Bytes moved in sectors of 32 bytes by each way of reading, per byte asked for."""
    fig, ax = figure(1.9)
    times = {name: 32 * n / bytes_read for name, n in sectors.items()}
    bars(ax, times, ["muted", "ink", "ink"], xlabel="bytes moved per byte asked for")
    ax.axvline(1, color=MUTED, linewidth=1)
    return finish(fig)


def resources(registers: Mapping[str, int], warps: Mapping[str, int]) -> Any:
    """Registers per thread of some kernels, and the warps that a multiprocessor then holds."""
    fig, (left, right) = figure(2.4, ncols=2)
    bars(left, registers, ["muted"] * len(registers), xlabel="registers per thread")
    bars(right, warps, ["ink"] * len(warps), xlabel="warps per multiprocessor (at most 64)")
    right.set_yticklabels([])
    return finish(fig)


def intensities(points: Mapping[str, float], ridge: float, bandwidth: float, peak: float) -> Any:
    """A roofline in bfloat16 (bytes and operations per second) with intensities marked on it."""
    fig, ax = figure(3.4)
    x = np.geomspace(0.5, 2000, 200)
    ax.plot(x, np.minimum(peak, x * bandwidth) / 1e12, color=color("ink"))
    for name, at in points.items():
        y = min(peak, at * bandwidth) / 1e12
        ax.plot([at], [y], marker="o", color=color("muted"))
        ax.annotate(name, (at, y), xytext=(7, -4), textcoords="offset points", va="top", fontsize=9)
    ax.axvline(ridge, color=MUTED, linewidth=1, dashes=(2, 3))
    ax.annotate(
        f"ridge: {ridge:.0f}",
        (ridge, x[0] * bandwidth / 1e12),
        xytext=(4, 0),
        textcoords="offset points",
        fontsize=9,
        color=MUTED,
    )
    ax.set(xscale="log", yscale="log", xlabel="operations per byte of keys and values")
    ax.set_ylabel("TFLOP/s, at most")
    return finish(fig)


def on_one_device(devices: Sequence[int], gib: Mapping[str, Sequence[float]]) -> Any:
    """GiB of cache on the fullest device against the number of devices, one panel per way."""
    fig, axes = figure(2.5, ncols=len(gib), sharey=True)
    ticks = sorted({round(x) for y in gib.values() for x in y})
    for ax, (name, y) in zip(np.atleast_1d(axes), gib.items(), strict=True):
        ax.plot(devices, y, marker="o", color=color("cached"))
        ax.set(xscale="log", yscale="log", xlabel="devices")
        ax.set_title(name)
        ax.set_xticks(devices, labels=[str(n) for n in devices])
        ax.set_yticks(ticks, labels=[str(n) for n in ticks])
        ax.minorticks_off()
        level = next((i for i in range(1, len(y)) if y[i] == y[i - 1]), None)
        if level is not None:  # from here on another device takes nothing away
            ax.plot(devices[level - 1 :], y[level - 1 :], color=color("muted"), linewidth=5)
    np.atleast_1d(axes)[0].set_ylabel("fullest device (GiB)")
    return finish(fig)


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
    return finish(fig)


def step_times(step_ms: Mapping[str, float]) -> Any:
    """Milliseconds per decode step: the first entry is the time to read the weights."""
    fig, ax = figure(0.6 + 0.36 * len(step_ms))
    bars(ax, step_ms, ["weights"] + ["muted"] * (len(step_ms) - 1), xlabel="ms per step")
    return finish(fig)
