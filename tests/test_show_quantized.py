"""The drawings of the chapter on few bits: what they show is what they were given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from drawn import faces, heights, labels, legend, texts, title, widths

from kvbook import figures
from kvbook.figures import quantized as draw
from kvbook.figures.quantized import bits_explorer, decoded
from kvlib import codecs

pytestmark = pytest.mark.usefixtures("drawn")


def test_stripes_share_one_scale_of_colours() -> None:
    keys, values = np.full((4, 3), -2.0), np.full((4, 3), 0.5)
    fig = draw.stripes(keys, values)
    images = [ax.images[0] for ax in fig.axes if ax.images and title(ax)]
    assert [image.get_clim() for image in images] == [(-2.0, 2.0)] * 2
    assert (images[0].get_array() == keys).all() and (images[1].get_array() == values).all()


def test_ranges_draw_least_mean_and_largest() -> None:
    x = np.array([[1.0, -3.0], [3.0, 5.0]])
    fig = draw.ranges({"keys": x, "values": x / 2}, ["key", "value"])
    first, _ = fig.axes
    segments = first.collections[0].get_segments()
    assert [(s[0][1], s[1][1]) for s in segments] == [(1.0, 3.0), (-3.0, 5.0)]
    assert list(first.lines[0].get_ydata()) == [2.0, 1.0]


def test_by_axis_writes_every_error() -> None:
    table = {"per channel": [0.29, 5.0, 25.0], "per token": [0.48, 8.1, 41.0]}
    fig = draw.by_axis({"keys": table, "values": table}, (8, 4, 2))
    titles = [title(ax) for ax in fig.axes]
    assert titles == ["error of the keys", "error of the values"]
    for ax in fig.axes:
        assert texts(ax) == ["0.29 %", "5 %", "25 %", "0.48 %", "8.1 %", "41 %"]
    assert labels(fig.axes[0].xaxis) == ["8 bits", "4 bits", "2 bits"]
    assert labels(fig.axes[0].yaxis) == ["per channel", "per token"]


def test_by_layer_draws_both_axes_side_by_side() -> None:
    fig = draw.by_layer({"error (%)": {"per channel": [1, 2], "per token": [3, 4]}})
    (ax,) = fig.axes
    assert heights(ax) == [1, 2, 3, 4]
    assert faces(ax) == [figures.color("key")] * 2 + [figures.color("muted")] * 2
    assert legend(fig) == ["per channel", "per token"]


def test_bytes_of_colours_the_halves_of_the_channels() -> None:
    fig = draw.bytes_of({"a": [(0, 2), (1, 3)], "b": [(0, 1), (2, 3)]})
    far, near = fig.axes
    assert texts(far) == ["2", "3", "0", "1"] and texts(near) == ["1", "3", "0", "2"]
    key, other = figures.color("muted"), figures.color("grid")
    assert faces(far) == [other, other, key, key] and faces(near) == [key, other] * 2
    assert labels(far.yaxis) == ["high 4 bits", "low 4 bits"]


def bars(ax: Any) -> list[list[tuple[float, float]]]:
    """Of each line with error bars, the lower and the upper end of every bar."""
    ends = [c[2][0].get_segments() for c in ax.containers]
    return [[(float(bar[0, 1]), float(bar[1, 1])) for bar in line] for line in ends]


def test_residual_names_its_lines_and_draws_their_errors() -> None:
    found = {"int2": [(20.0, 2.0), (3.0, 0.5)], "int4": [(0.5, 0.25), (-0.5, 1.0)]}
    fig = draw.residual([0, 32], found)
    (ax,) = fig.axes
    assert [list(c[0].get_ydata()) for c in ax.containers] == [[20.0, 3.0], [0.5, -0.5]]
    assert bars(ax) == [[(18.0, 22.0), (2.5, 3.5)], [(0.25, 0.75), (-1.5, 0.5)]]
    assert legend(ax) == ["int2", "int4"]
    assert labels(ax.xaxis) == ["0", "32"]
    assert ax.get_ylim()[0] < -1.5  # the lowest bar does not end on the axis


def test_weight_stacks_and_compares_with_the_first() -> None:
    fig = draw.weight({"float32": (100, 0, 0), "int4": (20, 5, 10)}, title="256 tokens")
    (ax,) = fig.axes
    assert widths(ax) == [100, 0, 0, 20, 5, 10]
    assert texts(ax) == ["= 100 %", "35.0 %"]
    assert title(ax) == "256 tokens"


def test_speed_draws_bytes_and_a_bar_for_each_length() -> None:
    read = {"float32": 1.0, "int4": 0.16}
    fig = draw.speed(read, {"float32": [1.0, 1.0], "int4": [1.25, 2.0]}, ["short", "long"])
    (ax,) = fig.axes
    assert widths(ax) == [1.0, 0.16, 1.0, 1.25, 1.0, 2.0]
    assert {"× 0.16", "× 1.2", "× 2"} <= set(texts(ax))


def test_trade_marks_what_is_swapped_and_draws_errors() -> None:
    kl = {"a": (0.5, 0.25), "b": (0.125, 0.0625)}
    fig = draw.trade({"a": 640.0, "b": 2560.0}, kl, bad=["a"])
    (ax,) = fig.axes
    dots = [c[0] for c in ax.containers]
    points = [(float(p.get_xdata()[0]), float(p.get_ydata()[0])) for p in dots]
    assert points == [(640.0, 0.5), (2560.0, 0.125)]
    assert bars(ax) == [[(0.25, 0.75)], [(0.0625, 0.1875)]]
    hollow, full = (line.get_markerfacecolor() for line in dots)
    assert (hollow, full) == ("#ffffff", figures.color("ink"))
    assert texts(ax) == ["a", "b"] and labels(ax.xaxis) == ["512", "1,024", "2,048"]


# ------------------------------------------------------------------------------------ explorer


def keys_and_queries() -> tuple[np.ndarray, np.ndarray]:
    """64 keys of 64 channels: offsets, and channel 3 that swings and is looked at."""
    rng = np.random.default_rng(0)
    keys = rng.standard_normal((64, 64)).astype(np.float32) * np.float32(0.3)
    keys += np.linspace(-3, 3, 64, dtype=np.float32)
    keys[:, 3] = 9 * np.cos(np.arange(64))
    queries = rng.standard_normal((64, 2, 64)).astype(np.float32)
    queries[:, :, 3] *= 12
    return keys, queries


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_decoded_is_what_the_codecs_decode(bits: int) -> None:
    keys, _ = keys_and_queries()
    for axis, made in (("per channel", codecs.PerChannel), ("per token", codecs.PerToken)):
        codec = made(bits, 32)
        wanted = codec.decode(codec.encode(keys[None]), np.float32)[0]
        np.testing.assert_allclose(decoded(keys, bits, axis), wanted, atol=1e-5)


def test_bits_explorer_shows_that_the_two_errors_disagree() -> None:
    keys, queries = keys_and_queries()
    explorer = bits_explorer(keys, queries)
    (slider,) = explorer.controls
    assert list(slider.values) == list(range(1, 9)) and explorer.settings == {"bits": 2}
    widths = []
    for bits in slider.values:
        scene = explorer.scene(bits=bits)
        curves, bars = scene["panels"]
        assert curves["label"].startswith("Channel 3,")
        assert [bar["label"] for bar in bars["bars"]] == ["keys"] * 2 + ["scores"] * 2
        parts = [bar["parts"][0] for bar in bars["bars"]]
        assert bars["max"] == pytest.approx(1.04 * max(p["value"] for p in parts), rel=0.01)
        near = [min(pair, key=lambda p: p["value"])["label"] for pair in (parts[:2], parts[2:])]
        disagree = f"{near[0]}, but that of the scores is smaller {near[1]}"
        agree = f"{near[0]}, and so is that of the scores"
        assert (agree if near[0] == near[1] else disagree) in scene["summary"]
        widths.append([part["value"] for part in parts[2:]])
    assert near == ["per channel", "per token"]
    assert (np.diff(np.array(widths), axis=0) < 0).all()  # more bits, less error
    assert explorer.scene(bits=4)["formula"] == ["4 + 32 / 32 = 5 bits per number"]
    lines = {n["label"]: [y for _, y in n["points"]] for n in curves["lines"]}
    assert np.allclose(lines["as it was"], keys[:, 3], atol=0.0051)
    assert explorer.svg(bits=3) != explorer.svg(bits=4)


def test_bits_explorer_refuses_other_shapes() -> None:
    keys, queries = keys_and_queries()
    with pytest.raises(ValueError, match="both multiples of 32, got \\(60, 64\\)"):
        bits_explorer(keys[:60], queries[:60])
    with pytest.raises(ValueError, match=r"queries must be \(64, G, 64\)"):
        bits_explorer(keys, queries[:32])
