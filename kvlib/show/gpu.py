"""Drawings of the chapter on the GPU: data in, Figure out. Explorers in `kvlib.show.gpu_blocks`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvlib.show.draw import bars, figure, finish, label_ends
from kvlib.show.gpu_blocks import splits_explorer, steps_explorer
from kvlib.show.style import CARD, MUTED, color

__all__ = [
    "busy",
    "efficiency",
    "hierarchy",
    "intensities",
    "measured",
    "on_one_device",
    "resources",
    "splits_explorer",
    "steps_explorer",
]
COLUMNS = 22  # multiprocessors in a row of the drawing


def busy(blocks: Mapping[str, int], sms: int) -> Any:
    """Which of `sms` multiprocessors have a block to run; blocks: words → number of blocks."""
    fig, axes = figure(1.9, ncols=len(blocks))
    for ax, (name, n) in zip(np.atleast_1d(axes), blocks.items(), strict=True):
        i = np.arange(sms)
        edge = [color("query" if j < n else "free") for j in i]
        fill = [color("query") if j < n else CARD for j in i]
        ax.scatter(i % COLUMNS, -(i // COLUMNS), s=52, marker="s", c=fill, edgecolors=edge)
        ax.set(xlim=(-0.8, COLUMNS - 0.2), ylim=(-(sms - 1) // COLUMNS - 0.3, 0.8))
        ax.set_axis_off()
        ax.set_aspect("equal")
        ax.set_title(f"{name}: {min(n, sms)} of {sms} busy")
    return finish(fig)


def hierarchy(sizes: Mapping[str, int], needed: int) -> Any:
    """Bytes of each level of memory, and a line at the bytes of one request's keys and values."""
    fig, ax = figure(2.3)
    bars(ax, {k: v / 2**20 for k, v in sizes.items()}, ["weights"] * len(sizes), xlabel="MiB")
    ax.set_xscale("log")
    ax.set_xlim(1, max(sizes.values()) / 2**20 * 12)
    ax.axvline(needed / 2**20, color=color("key"), dashes=(4, 3))
    ax.text(needed / 2**20 * 1.15, -0.62, "one request's keys and values", color=color("key"))
    return finish(fig)


def efficiency(sectors: Mapping[str, int], bytes_read: int) -> Any:
    """Bytes moved in sectors of 32 by each way of reading, as multiples of what was asked for."""
    fig, ax = figure(1.9)
    times = {name: 32 * n / bytes_read for name, n in sectors.items()}
    bars(ax, times, ["recomputed", "key", "key"], xlabel="bytes moved for each byte asked for")
    ax.axvline(1, color=MUTED, linewidth=1)
    return finish(fig)


def resources(registers: Mapping[str, int], warps: Mapping[str, int]) -> Any:
    """Registers a thread of some kernels, and the warps that a multiprocessor then holds."""
    fig, (left, right) = figure(2.4, ncols=2)
    bars(left, registers, ["weights"] * len(registers), xlabel="registers a thread")
    bars(right, warps, ["query"] * len(warps), xlabel="warps a multiprocessor, at most 64")
    right.set_yticklabels([])
    return finish(fig)


def intensities(points: Mapping[str, float], ridge: float, bandwidth: float, peak: float) -> Any:
    """A roofline in bfloat16 (bytes and operations a second) with intensities marked on it."""
    fig, ax = figure(3.4)
    x = np.geomspace(0.5, 2000, 200)
    ax.plot(x, np.minimum(peak, x * bandwidth) / 1e12, color=color("ink"))
    for name, at in points.items():
        y = min(peak, at * bandwidth) / 1e12
        ax.plot([at], [y], marker="o", color=color("query"))
        ax.annotate(name, (at, y), xytext=(7, -4), textcoords="offset points", va="top", fontsize=9)
    ax.axvline(ridge, color=MUTED, linewidth=1, dashes=(2, 3))
    ax.set(xscale="log", yscale="log", xlabel="operations for each byte of keys and values")
    ax.set_ylabel("TFLOP/s, at most")
    return finish(fig)


def on_one_device(devices: Sequence[int], gib: Mapping[str, Sequence[float]]) -> Any:
    """GiB of cache on the fullest device against the number of devices, a line a way."""
    fig, ax = figure(3.0)
    roles = ("query", "key", "value", "recomputed")
    for (_, y), role in zip(gib.items(), roles, strict=False):
        ax.plot(devices, y, marker="o", color=color(role))
    ax.set(xscale="log", yscale="log", xlabel="devices", ylabel="cache on one of them (GiB)")
    ax.set_xticks(devices, labels=[str(n) for n in devices])
    ticks = sorted({round(x) for y in gib.values() for x in y})
    ax.set_yticks(ticks, labels=[str(n) for n in ticks])
    ax.minorticks_off()
    ends = {name: float(y[-1]) for name, y in gib.items()}
    label_ends(ax, ends, roles[: len(ends)], x_end=devices[-1])
    return finish(fig)


def measured(found: Mapping[str, Any]) -> Any:
    """Share of the copy bandwidth that each way to decode reached; found: gpu_attention.json."""
    rows = found["decode"]
    names = list(rows[0]["runs"])
    fig, ax = figure(0.6 + 0.36 * len(rows) * 1.6)
    roles = ("key", "value", "query", "recomputed", "shared", "weights")
    for row, case in enumerate(rows):
        for i, name in enumerate(names):
            share = 100 * case["runs"][name]["share"]
            words = {"label": name} if row == 0 else {}
            role = color(roles[i % len(roles)])
            ax.plot([share], [row], linestyle="", marker="o", color=role, **words)
    labels = [f"{c['batch']} of {c['keys']:,} keys" for c in rows]
    ax.set_yticks(range(len(rows)), labels=labels)
    ax.set(ylim=(len(rows) - 0.5, -0.5), xlabel="percent of the measured copy bandwidth")
    ax.axvline(100, color=MUTED, linewidth=1)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return finish(fig)
