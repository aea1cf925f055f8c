"""What the figures of the chapters show, read back from their axes."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from drawn import check_shown, labels, legend, role, texts, title
from matplotlib.colors import to_hex, to_rgb

from kvbook import example, figures
from kvbook.figures import (
    batched,
    cached,
    chunked,
    gpu,
    latent,
    layernorm,
    memory,
    museum,
    naive,
    paged,
    prefixes,
    quantized,
    roofline,
    sampling,
    speculative,
    windows,
)
from kvlib.costs import BytesPerSecond, FlopsPerSecond
from kvlib.kernels.results import device_results
from kvlib.serve import Event

pytestmark = pytest.mark.usefixtures("drawn")
MIB = 2**20
ROOF = {"card": (BytesPerSecond(1e12), FlopsPerSecond(100e12))}  # ridge 100
AT_STEPS = [[0, None], [0, 1], [None, 1]]
MASK = np.array([[True, True, False], [True, True, True]])
PLACES = np.array([[0, 1, 1], [0, 1, 2]])
NEW = np.arange(0, 11)
RUNS = {"dense": {"median_us": 8.0, "share": 0.8}, "int8": {"median_us": 4.0, "share": 0.4}}
# Function, its arguments, and what each panel shows, by the names of `drawn.READ`.
SHOWN: list[tuple[Any, tuple[Any, ...], tuple[dict[str, Any], ...]]] = [
    (naive.times_computed, ([3, 3, 2, 1, 0], 2, "a bcd"), (
        dict(heights=[1, 1, 1, 1, 0, 2, 2, 1, 0, 0], bottoms=[0] * 5 + [1, 1, 1, 1, 0],
             xs=[[1.5, 1.5]], title="5 of 9 rows had been computed before"),)),
    (naive.rows_that_choose, (np.array([[0.1, 0], [0.9, 0.2]]), "ab", 1, "a head"), (
        dict(image=[[0.1]], clim=[0, 1], title="a head"),)),
    (cached.errors, ({"one": (1e-6, 5e-6), "other": (1e-3, 2e-3)}, ["recomputed", "cached"]), (
        dict(log="x", y=["one", "other"], roles=["recomputed"] * 3 + ["cached"] * 3,
             xs=[[1e-6, 5e-6], [1e-6], [5e-6], [1e-3, 2e-3], [1e-3], [2e-3]]),)),
    (cached.gap, ({"a": [1e-6, 1.0], "b": [1e-6, 1e-6]}, ["recomputed", "cached"]), (
        dict(log="y", ys=[[1e-6, 1.0], [1e-6, 1e-6]], texts=["a", "b"]),)),
    (batched.rectangle_and_pack, ([3, 1, 6],), (
        dict(widths=[6, 6, 6, 3, 1, 6]),  # outlines, then tokens on top
        dict(widths=[3, 1, 6], lefts=[0, 3, 4], xlim=[0, 10]))),
    (batched.padded_positions, ({"right": (PLACES, MASK),
                                 "left": (PLACES[:, ::-1], MASK[:, ::-1])},), (
        dict(texts=["0", "1", "–", "0", "1", "2"], title="Right: position = column",
             faces=["muted", "muted", "card", "muted", "muted", "muted"]),
        dict(texts=["–", "1", "0", "2", "1", "0"], faces=["card"] + ["muted"] * 5))),
    (batched.shared_step, ({"alone": {"weights": 4 * MIB, "keys and values": MIB},
                            "both": {"weights": 4 * MIB, "keys and values": 3 * MIB}},), (
        dict(widths=[4, 1, 4, 3], texts=["5.0", "7.0"], faces=["weights", "cached"] * 2,
             legend=["weights", "keys and values"]),)),
    (batched.packed_words, ([["the"], ["the", "cat"]],), (
        dict(faces=["muted"] * 3, texts=["the", "the", "cat", "request 0", "0", "0", "request 1",
                                       "1", "0", "2", "1", "row (bold: in qo_indptr)",
                                       "position in its text"]),)),
    (partial(batched.schedules, height=3), ({"one": AT_STEPS, "other": AT_STEPS[:2]},), (
        dict(texts=["0", "1"], xlim=[-0.6, 2.6],
             faces=["ink", "muted", "card", "card", "ink", "muted"]),
        dict(faces=["ink", "muted", "card", "ink"], xlim=[-0.6, 2.6], xlabel="step"))),
    (batched.bytes_a_token, ([1, 2, 4], [2**23, 2**22, 2**21], [2**20] * 3), (
        dict(log="xy", ys=[[8, 4, 2], [1, 1, 1]], x=["1", "2", "4"],
             texts=["weights", "keys and values"]),)),
    (batched.slots, ({"an append": (np.array([[0, 1, -1], [-1, 0, -1]]),
                                    np.array([[0, 1, 2], [-1, 3, -1]]))},), (
        dict(texts=["0", "1", "2", "0→3"],
             faces=["cached", "cached", "key", "card", "key", "card"]),)),
    (memory.doubled, ({"layers": 2.0, "MLP": 1.0}, {"layers": 1.98, "MLP": 1.7}), (
        dict(widths=[2.0, 1.0, 1.98, 1.7], faces=["cached"] * 2 + ["weights"] * 2,
             texts=["× 2", "× 1", "× 1.98", "× 1.70"], y=["layers", "MLP"],
             legend=["cache", "weights"]),)),
    (memory.token, (2, 1, 64), (
        dict(faces=["key", "value"] * 2, y=["layer 0", "layer 1"],
             texts=["key, head 0", "value, head 0"] * 2),)),
    (memory.windows, ([0, 4, 8], {"none": [0, 4 * MIB, 8 * MIB], "all": [0, MIB, MIB]}), (
        dict(styles=["-", "--"], ys=[[0, 4 * MIB, 8 * MIB], [0, MIB, MIB]],
             texts=["none", "all"], ylabel="cache of one request (MiB)", bottom=0),)),
    (memory.models, ({"small": 2**14, "large": 2**19}, {"small": 2**17, "large": 2**19}), (
        dict(xs=[[2**17, 2**19], [2**14, 2**19]], marks=["card", "cached"],
             texts=["16 KiB", "512 KiB"], y=["small", "large"],
             legend=["stored", "if every query head had a key and a value"]),)),
    (memory.crossing, ([256, 512, 1024], 768.0, {"one": [256, 512, 1024], "few": [16, 32, 64]}), (
        dict(dots=[[[768, 768]]], texts={"768", "one", "few", "weights"}),)),
    (memory.fits, ({"a": [None, 54_321, 2_345_678], "b": [512, 131_072, np.inf]},
                   [131_072, 131_072], ["x", "y ?", "z"]), (
        dict(texts=["–", "54k", "2.3M", "512", "131k", "∞"], x=["x", "y ?", "z"], y=["a", "b"],
             faces=["muted"] * 3),)),
    (memory.steps, ({"as published": 120.0, "mended": 137.0}, 121, 138), (
        dict(lefts=[121, 0, 0], widths=[17, 120, 137], faces=["grid", "muted", "ink"],
             texts=["120", "137"]),)),
    (memory.mistakes, ({"too much": 4.0, "too little": 0.5, "far too much": 71.1},), (
        dict(widths=[2, -1, np.log2(71.1)], texts=["× 4.00", "× 0.50", "× 71"],
             x=[f"× {2.0**t:g}" for t in range(-2, 9)]),)),
    (roofline.two_clocks, ({"weights": 4e-3, "cache": 1e-3}, {"weights": 2e-5, "cache": 1e-5}), (
        dict(widths=[4, 1, 0.02, 0.01], lefts=[0, 4, 0, 0.02], faces=["weights", "cached"] * 2,
             texts=["5 ms", "0.03 ms"], legend=["weights", "cache"]),)),
    (roofline.roofline, (ROOF, {"slow": (2.0, None, "cached"), "fast": (500.0, None, "weights")}), (
        dict(log="xy", dots=[[[2.0, 2e12]], [[500.0, 100e12]]],  # on the roof
             texts=["card, ridge 100", "slow", "fast"], ylabel="operations per second (TFLOP/s)",
             roles=["muted", "muted", "cached", "weights"]),)),
    (roofline.roofline, ({"a": (1e9, 1e10), "b": (2e9, 4e10)}, {"p": (1.0, 3e8, "cached")}), (
        dict(ylabel="operations per second (GFLOP/s)", styles=["-", ":", "--", ":", "None"],
             texts=["a, ridge 10", "b, ridge 20", "p"]),)),
    (roofline.ladder, ({"one": (1.0, "cached"), "other": (240.0, "key")}, {"X": 295, "Y": 206}), (
        dict(dots=[[[1, 0]], [[240, 1]]], y=["one", "other"],
             texts=["1", "240", "Y: 206", "X: 295"]),)),
    (roofline.hill, ({MIB: BytesPerSecond(80e9), 2**28: BytesPerSecond(20e9)}, {"model": 2**24}), (
        dict(dots=[[[2**20, 80], [2**28, 20]]], ylabel="bandwidth (GB/s)", texts=["model"],
             x={"1 MiB"}),)),
    (roofline.throughput, ([1, 2, 4], [10.0, 16.0, 20.0], 24.0, 2.0), (
        dict(ys=[[10, 16, 20], [24, 24], [0, 1]], title="The batch gains less and less",
             texts=["bandwidth / K", "2: W = B K"]),
        dict(ys=[[10, 8, 5], [0, 1]], title="Each request gets slower"))),
    (paged.block_sizes, ([2, 4, 8], [0.4, 1.6, 3], [0.5, 1.5, 3.5], [8, 4, 2]), (
        dict(ys=[[0.5, 1.5, 3.5], [0.4, 1.6, 3]]), dict(ys=[[8, 4, 2]]))),
    (paged.moved, ({"dense": 1.0, "x[table]": 5.0}, {"dense": 1.0, "x[table]": 3.5}), (
        dict(widths=[1, 5]),
        dict(widths=[1, 3.5], texts=["1.0", "3.5"], xlabel="time (dense = 1)"))),
    (paged.padded_table, (np.array([[3, -1], [0, 5]]),), (
        dict(texts=["3", "−1", "0", "5"], faces=["cached", "card", "cached", "cached"]),)),
    (prefixes.stored, ({"apart": {"shared": MIB, "recomputed": 5 * MIB, "cached": MIB},
                        "together": {"shared": MIB, "recomputed": 0, "cached": MIB}},), (
        dict(widths=[MIB, 5 * MIB, MIB, MIB, 0, MIB],
             faces=["shared", "recomputed", "cached"] * 2, y=["apart", "together"],
             texts=["7 MiB", "2 MiB"], xlabel="keys and values (MiB)",
             legend=["the system prompt", "more copies of it", "questions and answers"]),)),
    (prefixes.tables, ({"a": [0, 1, 2], "b": [0, 1, 3]}, {0: 2, 1: 2, 2: 1, 3: 1}, 1), (
        dict(texts=["1", "2", "1", "3"], faces=["shared", "cached"] * 2, x=["1", "2"],
             y=["a", "b"]),)),
    (prefixes.turns, ([(0, 9), (8, 4)],), (
        dict(widths=[0, 9, 8, 4], faces=["cached", "key"] * 2, texts=["9", "12"],
             y=["message 1", "message 2"], legend=["found in the cache", "computed"]),)),
    (prefixes.chain, ([["a b", "c d"], ["a b", "d c"]], [["0f", "1e"], ["0f", "2d"]]), (
        dict(texts=["text 1", "a b", "0f", "c d", "1e", "text 2", "a b", "0f", "d c", "2d"],
             faces=["shared", "cached"] * 2),)),
    (prefixes.tree, ([[0, 1], [0, 2]], [["a b", "c d"], ["a b", "d c"]]), (
        dict(texts=["root", *["a b", "block 0", "c d", "block 1"],
                    *["a b", "block 0", "d c", "block 2"]],
             faces=["shared", "cached"] * 2),)),
    (prefixes.stairs, ([0, 1, 2], {"blocks of 1": [0, 1, 2], "blocks of 2": [0, 0, 2]}), (
        dict(ys=[[0, 1, 2], [0, 0, 2]], steps=["steps-post"] * 2,
             legend=["blocks of 1", "blocks of 2"]),)),
    (prefixes.reads, ([1, 2], {"one by one": [1e6, 2e6], "cascade": [1e6, 1.1e6]}), (
        dict(ylabel="read by attention (MiB)", ys=[[1e6, 2e6], [1e6, 1.1e6]], x=["1", "2"],
             texts=["one by one", "cascade"]),)),
    (prefixes.split, (100, [20, 30]), (
        dict(widths=[100, 20, 30], faces=["shared", "cached", "cached"],
             texts={"100 shared tokens,\n2 queries in one product"}),)),
    (chunked.score_matrix, ([1, 2, 4], [3 * MIB, 6 * MIB, 12 * MIB], [MIB] * 3), (
        dict(bottom=0, ylabel="memory (MiB)", ys=[[3 * MIB, 6 * MIB, 12 * MIB], [MIB] * 3],
             texts=["peak, measured", "the scores, once"]),)),
    (chunked.two_tiles, ([-1.0, 2.0, 1.0], [(2.0, 1.5, np.ones(2)), (2.0, 2.0, np.ones(2))]), (
        dict(texts=["the: \u22121.00", "cat: 2.00", "sat: 1.00", "tile 1", "tile 2",
                    "top 2.00\ntotal 1.50\no (1.00, 1.00)",
                    "top 2.00\ntotal 2.00\no (1.00, 1.00)", "o / total\n(0.50, 0.50)"],
             faces=["key"] * 3 + ["card"] * 3),)),
    (chunked.peak_by_tile, ([1, 8], [2 * MIB, 4 * MIB], 5 * MIB), (
        dict(ys=[[5 * MIB] * 2, [2 * MIB, 4 * MIB]], x=["1", "8"], bottom=0),)),
    (chunked.peak_by_chunk, ([1, 8], [MIB, 3 * MIB], 2 * MIB), (
        dict(ys=[[MIB, 3 * MIB], [2 * MIB] * 2], bottom=0),)),
    (chunked.reads, ([8, 16], *[{"weights": [4 * MIB, 2 * MIB], "kv": [2 * MIB, MIB]}] * 2), (
        dict(styles=["--", "None"] * 2, ys=[[4, 2], [4, 2], [2, 1], [2, 1]], log="xy",
             legend=["counted", "by the formula"]),)),
    (chunked.floors, ([16, 32, 64], [3.0, 2.0, 2.0], [0.1, 0.2, 0.4]), (
        dict(ys=[[0.1, 0.2, 0.4], [3, 2, 2]], x=["16", "64"], log="xy"),)),
    (chunked.gap_trade, ([4, 8], [4, 8], [12, 10]), (dict(ys=[[4, 8], [12, 10]], bottom=0),)),
    (quantized.three_keys, (np.eye(3, 2), np.eye(3, 2) + 0.1, np.full((3, 1), 1 / 7),
                            [0.1, 0.6, 0.3], [0.1, 0.7, 0.2]), (
        dict(texts=["the", "cat", "sat"], legend=["exact", "as read back", "levels"]),
        dict(heights=[0.1, 0.6, 0.3, 0.1, 0.7, 0.2], x=["the", "cat", "sat"]))),
    (quantized.groups, (), (
        dict(widths=[3.8] * 16, title="per token: a group runs across"),
        dict(heights=[3.8] * 16, title="per channel: a group runs down"))),
    (quantized.ranges, ({"keys": np.array([[1.0, -3.0], [3.0, 5.0]]), "values": np.ones((2, 2))},
                        ["key", "value"]), (
        dict(uprights=[[1, 3], [-3, 5]], ys=[[2, 1], [0, 0]]), dict(title="values"))),
    (quantized.by_layer, ({"error (%)": {"per channel": [1, 2], "per token": [3, 4]}},), (
        dict(heights=[1, 2, 3, 4], faces=["ink"] * 2 + ["muted"] * 2, ylabel="error (%)",
             legend=["per channel", "per token"]),)),
    (quantized.bytes_of, ({"a": [(0, 2), (1, 3)], "b": [(0, 1), (2, 3)]},), (
        dict(texts=["2", "3", "0", "1"], faces=["grid", "grid", "muted", "muted"],
             y=["high 4 bits", "low 4 bits"]),
        dict(texts=["1", "3", "0", "2"], faces=["muted", "grid"] * 2))),
    (quantized.weight, ({"float32": (100, 0, 0), "int4": (20, 5, 10)}, "256 tokens"), (
        dict(widths=[100, 0, 0, 20, 5, 10], texts=["= 100 %", "35.0 %"], title="256 tokens"),)),
    (windows.looks, ([[60.0, 40.0], [99.6, 0.4], [10.0, 90.0], [0.0, 100.0]], ["near", "far"], 2), (
        dict(texts=["60", "40", "100", "< 1", "10", "90", "0", "100", "layer 0", "layer 1"],
             y=["0", "1", "0", "1"], x=["near", "far"]),)),
    (windows.ring, (["a", "b", "c"], 2), (
        dict(texts=["a", "a", "b", "c", "b"], y=["0: a", "1: b", "2: c"], x=["slot 0", "slot 1"],
             faces=["key", "card", "cached", "key", "key", "cached"]),)),
    (windows.by_window, ([32, 64], [(20.0, 3.0), (10.0, 1.0)],
                         {"64": [0.0, 100.0], "256": [0.0, 0.0]}), (
        dict(uprights=[[17, 23], [9, 11]], x=["32", "64"]),
        dict(image=[[0, 100], [0, 0]], texts=["0", "100", "0", "0"], y=["64", "256"],
             x=["32", "64"]))),
    (windows.influence, ({"windows": [1.0, 0.5, 0.0, 0.0], "full": [1.0, 0.5, 0.2, 0.1]}, 1), (
        dict(uprights=[[1e-5, 1], [1e-5, 0.5]], xs=[[1.5, 1.5]]),
        dict(uprights=[[1e-5, y] for y in (1, 0.5, 0.2, 0.1)], xs=[[1.5, 1.5]]))),
    (windows.edited, ({"near": [0.0, 80.0], "far": [0.0, 1.0]}, 2), (dict(heights=[0, 80, 0, 1]),)),
    (sampling.row, (np.log(np.asarray([0.2, 0.5, 0.3])), ["a", "b", "c"], 2), (
        dict(y=["b", "c"]), dict(widths=[50, 30]))),
    (sampling.floor, ([0.5, 1.0], [3, 1], np.asarray([0.0, 2, 1, 5]), 2), (
        dict(uprights=[[0, 2], [1, 5]], ys=[[0.5, 1.0]]), dict(heights=[3, 1]))),
    (sampling.moved, ({"three passes": 4.0, "one pass": 1.0}, "GB"), (
        dict(widths=[4, 1], faces=["muted", "ink"]),)),
    (sampling.draws, ([12, 4], [9.0, 4.0], ["a", "b"]), (dict(heights=[9, 4], ys=[[12, 4]]),)),
    (speculative.draws, ({"right": [1e-3, -1e-3], "wrong": [0.05, -0.05]}, "ab", [1e-3] * 2), (
        dict(title="right", ys=[[0.1, -0.1], [0, 0]], heights=[2 * 1.96 * 0.1] * 2),
        dict(title="wrong", ys=[[5, -5], [0, 0]]))),
    (speculative.gains, ([1, 4], {0.5: [1.5, 1.9], 0.8: [1.8, 3.4]},
                         {0.5: [1.4, 2.0], 0.8: [1.9, 3.3]}), (
        dict(ys=[[1.5, 1.9], [1.4, 2.0], [1.8, 3.4], [1.9, 3.3]], texts=["a = 0.5", "a = 0.8"]),)),
    (latent.crossing, (NEW, {"a": 3e6 * NEW, "b": 10e6 + 1e6 * NEW}, 5.0), (
        dict(dots=[[[5, 15]]], texts={"a", "b", "5 new tokens"}),)),
    (layernorm.lengths, ([np.asarray([1.0, 2.0]), np.asarray([3.0, 5.0])], [np.ones(2)] * 2), (
        dict(ys=[[1, 2], [3, 5], [1, 1], [1, 1]], roles=["muted"] * 2 + ["ink"] * 2, log="y",
             texts=["before the norm", "after the norm"]),)),
    (layernorm.kept, ({"much": {"x": 4.0, "y": 2.0}, "little": {"y": 2.0}}, "MiB"), (
        dict(widths=[4, 2, 2], lefts=[0, 4, 0], texts=["6", "2"], faces=["ink", "muted", "muted"],
             legend=["x", "y"]),)),
    (layernorm.intensities, ({"forward": 1.2, "backward": 1.8}, {"card": 295.0}), (
        dict(xs=[[1.2], [1.8], [295, 295]], texts={"ridge of card: 295"}, log="x"),)),
    *((errors, ([1e-3, 1e-2, 1e-1], {"two": [1e-9, 0.0, 1e-3], "five": [1e-12] * 3}), (
        dict(ys=[[1e-9, 1e-17, 1e-3], [1e-12] * 3], log="xy", texts=["two", "five"]),))
      for errors in (layernorm.by_step, layernorm.by_offset)),  # zero has no logarithm
    (gpu.anatomy, (3, 2, 2, 1, 64, 6), (
        dict(title="Grid: 6 blocks", faces=["card"] * 5 + ["query"]),
        dict(texts=["channel 6", "channel 38"], y=["0 to 31", "32 to 63"],
             faces=(["card"] * 6 + ["key"] + ["card"] * 25) * 2))),
    (gpu.shuffle, ([3, 1, 4, 2],), (
        dict(texts=["3", "1", "4", "2", "7", "3", "7", "3", "10", "10", "10", "10"],
             title="2 shuffles give each of 4 lanes the whole sum"),)),
    (gpu.sectors, ({"a": [[0], [0]], "b": [range(8)]},), (
        dict(title="a:\n2 of 16 floats are used", faces=(["key"] + ["card"] * 7) * 2),
        dict(title="b:\n8 of 8 floats are used", faces=["key"] * 8))),
    (gpu.hiding, (100, 400, (1, 5), 1500), (
        dict(title="1 warp: the multiprocessor works 20% of the time",
             widths=[100, 400] * 3, faces=["ink", "card"] * 3),
        dict(title="5 warps: the multiprocessor works 100% of the time"))),
    (gpu.timelines, ({"one": [("a", 9), ("b", 3)], "cut": [("a", 5), ("a", 4), ("b", 3)]}, 2), (
        dict(title="one: done after 9 keys, 33% idle", widths=[9, 3], texts=["a", "b"]),
        dict(title="cut: done after 7 keys, 14% idle", widths=[5, 4, 3], lefts=[0, 0, 4],
             faces=["ink", "ink", "muted"]))),
    (gpu.measured, ({"runs": RUNS, "batch": 8, "keys": 9},), (  # made-up numbers
        dict(widths=[1, 2, 1, 4], texts=["1.00", "2.00 of 4.00"]),)),  # a quarter of the bytes
    (museum.shares, ({"healthy": {"a": 75, "b": 25}, "a_bug": {"a": 50, "b": 50}}, "A title"), (
        dict(heights=[75, 25, 50, 50], faces=["ink"] * 2 + ["muted"] * 2, x=["a", "b"],
             legend=["healthy", "a bug"], title="A title"),)),
    (museum.growth, ([1, 2], [3, 5], 5, "A title"), (
        dict(ys=[[3, 5], [3, 5], [5, 5]], texts=["3 with the first test", "all 5"],
             title="A title"),)),
    (cached.work, ([range(2), range(3), range(4)], [range(2), range(2, 3), range(3, 4)]), (
        dict(faces=["key"] * 2 + ["recomputed"] * 2 + ["key"] + ["recomputed"] * 3 + ["key"],
             legend=["computed for the first time", "computed again", "read from the cache"]),
        dict(faces=["key"] * 2 + ["cached"] * 2 + ["key"] + ["cached"] * 3 + ["key"]))),
    (cached.moved, (np.float32([[0, 0, 2.0], [0, 1e-6, 0.5]]), ["keys", "logits"], 2), (
        dict(image=[[np.nan, np.nan, 2], [np.nan, 1e-6, 0.5]], clim=[1e-6, 2]),)),
    (paged.maps, ({"rows": [[1.0, 0.0]]},), (
        dict(title="rows", image=[[*map(to_rgb, (figures.color("cached"), figures.color("grid")))]],
             ),)),
    (speculative.steps, ([([97, 98], 1, 99), ([], 0, 32), ([10], 1, 200)],), (
        dict(texts=["a", "b", "c", "ac", "␣", "␣"], faces=["cached", "recomputed"] + ["card"] * 2),
        dict(texts=["↵", "?", "↵?"], y=["step 3"]))),
    (speculative.coin, (np.array([0.7, 0.1, 0.2]), np.array([0.3, 0.5, 0.2]), "abc"), (
        dict(heights=[0.3, 0.1, 0.2, 0.4, 0, 0, 0, 0.4, 0], bottoms=[0] * 3 + [0.3, 0.1, 0.2] * 2),
    )),
    (partial(speculative.marked, wide=3), ("ab c\nd", [True, False] * 3), (
        dict(faces=["cached"] * 3, lefts=[-0.5, 1.5, 0.5], bottoms=[-0.5, -0.5, 0.5],
             texts=["a", "b", "c", "↵", "d"]),)),
    (speculative.tree, ([97, 98, 99], [-1, 0, 0], np.tri(3)), (
        dict(texts=["a", "0", "b", "1", "c", "2"], ys=[[0], [0, 1], [1], [0, 1], [1]]),
        dict(image=np.tri(3).tolist()))),
    (latent.same_scores, (["a", "b"], {"stored": (np.array([-1.0, 2]), {
        "key": np.array([[1.0, 0], [0, 3]]), "value": np.array([[4.0, 5], [6, 7]])})}), (
        dict(title="stored", y=["query", "a", "b"],
             faces=["query"] * 2 + (["key"] * 2 + ["value"] * 2) * 2,
             texts=["−1", "2", "1", "0", "4", "5", "0", "3", "6", "7", "score", "−1", "6"]),)),
    (latent.by_rank, ([32, 64], [90.0, 6.0], [5.0, 0.5], [0, 100]), (
        dict(uprights=[[85, 95], [5.5, 6.5]], log="y", x=["32", "64"]),
        dict(xs=[[32, 64]], ys=[[0, 100]]))),
    (latent.by_age, ({name: [0.0, end] for name, end in zip("abcd", (2.0, 1.1, 1.4, 1.0))},), (
        dict(ys=[[0, 2], [0, 1.1], [0, 1.4], [0, 1], [1, 1]], xlim=[0, 1],
             roles=["muted"] * 2 + ["ink"] * 2 + ["muted"], styles=[":", "-", "--", "-", "-"],
             texts={*"abcd", "error of answering zero"}),)),
    (museum.weights, ({"healthy": np.tri(2), "mask_of_ones": np.ones((2, 2)) / 2}, "A title"), (
        dict(image=[[1, np.nan], [1, 1]], title="healthy"),
        dict(image=[[0.5] * 2] * 2, title="mask of ones"))),
    (windows.fools, ({"window": {"25": (8.0, 0.2, 0.0), "50": (0.2, 0.1, 100.0)},
                      "H2O": {"25": (0.8, 0.2, 0.0)}},), (  # each row has a separate line
        dict(xs=[[8, 0.2, 0.8], [7.8, 0.1, 0.6], [8.2, 0.3, 1], [0, 0], [0, 1], [0, 1]],
             y=["25 %", "50 %", "25 %"], texts=["8.0 ± 0.2 →", "window", "H2O"]),
        dict(widths=[0, 100, 0], texts=["0", "100", "0"]))),
]  # fmt: skip


DRAWERS = [getattr(draw, "func", draw) for draw, _, _ in SHOWN]
NAMES = [f"{draw.__module__.split('.')[-1]}.{draw.__name__}" for draw in DRAWERS]


@pytest.mark.parametrize(("draw", "given", "panels"), SHOWN, ids=NAMES)
def test_a_figure_shows_what_it_was_given(draw: Any, given: Any, panels: Any) -> None:
    check_shown(draw(*given), panels)


def causal_weights(t: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    p = np.tril(rng.random((t, t))).astype(np.float32)
    return p / p.sum(axis=1, keepdims=True)


def test_white_space_has_marks() -> None:
    assert naive.letters("a b\n\tc") == ["a", "·", "b", "↵", "→", "c"]
    assert naive.letters("é") == ["�", "�"], "one mark a byte"


def test_three_steps_hide_the_future() -> None:
    t = 4
    scores = np.arange(t * t, dtype=np.float32).reshape(t, t) - 8
    hidden = ~np.tri(t, dtype=bool)
    fig = naive.three_steps(scores, hidden, causal_weights(t), "abcd")
    panels = [ax.images[0] for ax in fig.axes[:3]]
    shown = [np.ma.filled(image.get_array(), np.nan) for image in panels]
    assert np.array_equal(shown[0], scores)
    for values, right in ((shown[1], scores), (shown[2], causal_weights(t))):
        assert np.isnan(values[hidden]).all()
        assert np.array_equal(values[~hidden], right[~hidden])
    assert panels[0].get_clim() == panels[1].get_clim() == (-8, 8)
    assert labels(fig.axes[0].xaxis) == ["a", "b", "c", "d"]
    assert [len(texts(ax)) for ax in fig.axes] == [16, 16, 16]
    assert texts(fig.axes[1]).count("\u2212\u221e") == texts(fig.axes[2]).count("0.00") == 6
    assert all(title(ax) for ax in fig.axes[:3])
    for ax in fig.axes[1:3]:  # stripes over what is hidden, which then is not the white of score 0
        striped = {(round(p.get_y() + 0.5), round(p.get_x() + 0.5)) for p in ax.patches}
        assert striped == {(i, j) for i in range(t) for j in range(t) if hidden[i, j]}
        assert all(p.get_hatch() for p in ax.patches)
    assert not fig.axes[0].patches


def test_turned_pairs_are_drawn_where_they_point() -> None:
    up, right = np.array([0.0, 1.0]), np.array([1.0, 0.0])
    fig = naive.pairs_turned([(2, up, 0, right), (3, right, 3, right)])
    first, second = fig.axes
    assert texts(first) == ["query at 2", "key at 0"]
    assert [title(ax) for ax in fig.axes] == ["2 apart: product 0.00", "0 apart: product 1.00"]
    tips = [tuple(text.xy) for text in first.texts if hasattr(text, "xy")]
    assert tips == [(0.0, 1.0), (1.0, 0.0)]
    arc = first.lines[1].get_xydata()
    assert arc[0] == pytest.approx((0.35, 0)) and arc[-1] == pytest.approx((0, 0.35), abs=1e-9)
    assert np.ptp(second.lines[1].get_xydata(), axis=0) == pytest.approx((0, 0))


def test_the_smallest_change_can_be_seen() -> None:
    image = cached.moved(np.float32([[0, 1e-6, 0.5]]), ["keys"], at=2).axes[0].images[0]
    assert figures.contrast(to_hex(image.cmap(image.norm(1e-6))), "#ffffff") > 1.2


def test_the_pipeline_names_its_parts_and_shapes() -> None:
    (ax,) = naive.pipeline(layers=5, hidden=256).axes
    words = " ".join(text.get_text() for text in ax.texts)
    for part in ("token", "embedding", "attention", "MLP", "logits", "has 5", "T rows of 256"):
        assert part in words
    assert "(V, hidden)" in words and "(T, V)" in words and words.count("norm") == 3


def test_three_tokens_and_one_query_show_the_numbers_of_the_trace() -> None:
    words, trace = ["the", "cat", "sat"], example.run()
    (ax,) = naive.three_tokens(words, trace).axes
    shown = texts(ax)
    assert set(words) < set(shown) and len(ax.patches) == 9
    assert shown.count("(\u22121, \u22121)") == 1 and shown.count("(0, 2)") == 1
    (ax,) = naive.one_query(words, trace, at=2).axes
    shown = texts(ax)
    for number in ("2", "1.41", "4.11", "0.07", "0.62", "0.31", "\u22120.71"):
        assert number in shown
    assert any("(\u22120.38, 0.17)" in words for words in shown)
    assert "(\u22121, 1)" in title(ax) and "cat" in title(ax)
    widths = [patch.get_width() for patch in ax.patches if role(patch.get_facecolor()) == "muted"]
    assert widths == pytest.approx(1.5 * trace.weights[2])


def test_queries_are_drawn_with_the_key_that_they_share() -> None:
    (ax,) = naive.heads(query_heads=6, kv_heads=2, dim=64, hidden=384).axes
    shown = {text.get_text().split("\n")[0]: text.get_position()[0] for text in ax.texts}
    frames = [p for p in ax.patches if not p.get_fill()]
    for j, frame in enumerate(frames):
        left, right = frame.get_x(), frame.get_x() + frame.get_width()
        inside = {words for words, x in shown.items() if left < x < right and words[-1:].isdigit()}
        assert inside == {f"key {j}", f"value {j}", *(f"query {3 * j + i}" for i in range(3))}
    assert title(ax) == "6 queries share 2 keys and 2 values"


def test_the_mlp_is_drawn_with_its_sizes() -> None:
    (ax,) = naive.gated_mlp(hidden=256, inner=640).axes
    words = texts(ax)
    assert words.count("SiLU") == 1 and sum("640" in text for text in words) == 2
    sizes = ["row\n256 numbers", "added to row\n256 numbers"]
    assert [text for text in words if "256" in text] == sizes


def test_a_step_computes_one_key_for_the_first_time() -> None:
    (ax,) = naive.keys_per_step(["a", "b", "c"]).axes
    found = [role(p.get_facecolor()) for p in ax.patches]
    assert found.count("key") == 3 and found.count("recomputed") == 3
    assert title(ax) == "Of 6 keys, 3 had been computed before"


def test_a_measured_track_is_joined_and_one_on_the_roof_is_not() -> None:
    ideal = [(1.0, None, "B = 1"), (200.0, None, "B = 200")]
    real = [(1.0, 0.5e12, "one"), (200.0, 20e12, "many")]
    (ax,) = roofline.roofline(
        ROOF, {}, tracks={"ideal": (ideal, "cached"), "real": (real, "weights")}
    ).axes
    drawn = {line.get_color(): line for line in ax.lines if line.get_marker() == "o"}
    assert drawn[figures.color("cached")].get_linestyle() == "None"
    assert drawn[figures.color("weights")].get_linestyle() == "-"
    dots = [line.get_ydata().tolist() for line in ax.lines if line.get_marker() == "o"]
    assert dots == [[1e12, 100e12], [0.5e12, 20e12]]
    assert {"B = 1", "B = 200", "one", "many", "ideal", "real"} <= set(texts(ax))


def test_tables_join_each_block_to_where_it_lies() -> None:
    words = {"a": list("12345"), "b": list("67")}
    (ax,) = paged.tables({"a": [2, 0], "b": [1]}, words, 4, 3).axes
    ends = [line.get_xdata()[1] for line in ax.lines]
    assert ends == [2 * 4 + 1, 0 * 4 + 1, 1 * 4 + 1]
    assert texts(ax).count("5") == 2 and texts(ax).count("6") == 2  # above and below
    assert [w for w in texts(ax) if w.startswith("block")] == [
        "block 0: a", "block 1: b", "block 2: a", "block 3: free",
    ]
    assert len(ax.patches) == 3 * (3 + 4)


EVENTS = [
    Event(0, "a", "prefill", 3, 7), Event(1, "a", "decode", 1, 8), Event(1, "book", "prefill", 4),
    Event(1, "c", "wait", 0), Event(2, "a", "decode", 1, 9), Event(2, "book", "prefill", 2, 5),
    Event(2, "a", "done", 0), Event(3, "book", "decode", 1, 6),
]


def test_the_staircase_covers_what_chunks_compute() -> None:
    pairs = {"whole": 144, "chunks": 96}
    left, right = chunked.grid(12, 4, pairs).axes
    boxes = [p for p in left.patches if hasattr(p, "get_width")]
    assert sum(p.get_width() * p.get_height() for p in boxes) == 96 == 12 * (12 + 4) // 2
    assert len(left.patches) == 2 * 3
    total = [
        sum(p.get_width() for p in right.patches if round(p.get_y() + p.get_height() / 2) == i)
        for i in (0, 1)
    ]
    assert np.allclose(np.array(total) * 1e6, [144, 96])
    assert texts(right) == ["× 1.85", "× 1.23"]  # of 12 · 13 / 2 pairs


def test_a_schedule_is_as_wide_as_its_tokens() -> None:
    assert chunked.fed_before(EVENTS) == [0, 3, 8, 11, 12]
    fig = chunked.gantt({"one": EVENTS, "other": EVENTS[:1]})
    top, low = fig.axes
    marks = legend(fig)
    assert marks == ["a chunk of a prompt, with its tokens", "a new token"]
    assert [(p.get_x(), p.get_width()) for p in top.patches[:3]] == [(0, 3), (3, 5), (8, 3)]
    strokes = sorted((line.get_xdata()[0], line.get_ydata().mean()) for line in top.lines)
    assert strokes == [(3, 0), (8, 0), (11, 0), (11, 1), (12, 1)]
    assert texts(top)[:3] == ["3", "4", "2"] and texts(top)[-1] == "5"  # the longest gap of a
    assert labels(top.yaxis) == ["a", "book", "c"]
    assert top.get_xlim() == low.get_xlim() and texts(low) == ["3"]


def test_waits_for_a_first_token() -> None:
    assert chunked.first_token(EVENTS, "a") == 3
    assert chunked.first_token(EVENTS, "book") == 5 + 3


def bars(ax: Any) -> list[list[tuple[float, float]]]:
    """Of each line with error bars, the lower and the upper end of every bar."""
    ends = [c[2][0].get_segments() for c in ax.containers]
    return [[(float(bar[0, 1]), float(bar[1, 1])) for bar in line] for line in ends]


def test_trade_marks_what_is_swapped_and_draws_errors() -> None:
    kl = {"a": (0.5, 0.25), "b": (0.125, 0.0625)}
    (ax,) = quantized.trade({"a": 640.0, "b": 2560.0}, kl, bad=["a"]).axes
    dots = [c[0] for c in ax.containers]
    points = [(float(p.get_xdata()[0]), float(p.get_ydata()[0])) for p in dots]
    assert points == [(640.0, 0.5), (2560.0, 0.125)]
    assert bars(ax) == [[(0.25, 0.75)], [(0.0625, 0.1875)]]
    hollow, full = (line.get_markerfacecolor() for line in dots)
    assert (hollow, full) == ("none", figures.color("ink"))
    assert texts(ax) == ["a", "b"] and labels(ax.xaxis) == ["512", "1,024", "2,048"]


def test_the_shipped_table_is_whole() -> None:
    table = windows.eviction_table()
    settings, rows = table["settings"], dict(table["rows"])
    everything = rows.pop("all")["100"]
    assert everything["bytes"] == 2048 * 5120 and len(rows) == 6
    for budgets in rows.values():
        assert list(budgets) == [str(share) for share in settings["shares"]]
        for share, found in budgets.items():
            assert set(found["recall"]) == set(settings["chunks"])
            for marks in found["recall"].values():
                assert [len(m) for m in marks.values()] == [settings["trials"]] * 2
            budget = everything["bytes"] * int(share) / 100
            assert found["bytes"] == pytest.approx(budget, rel=0.01)  # blocks round a little
            assert len(found["bits"]) == settings["texts"]
    losses = [table["windows"], table["one full layer"], *table["sinks"].values()]
    assert all(len(b) == settings["texts"] for loss in losses for b in loss.values())


def test_no_rule_needs_fewer_bits_than_the_full_cache_beyond_chance() -> None:
    table = windows.eviction_table()
    plain = np.array(table["rows"].pop("all")["100"]["bits"])
    for name, budgets in table["rows"].items():
        for share, found in budgets.items():
            more = np.array(found["bits"]) / plain - 1
            error = more.std(ddof=1) / len(more) ** 0.5
            assert more.mean() > -2 * error, f"{name} at {share} %"


def test_the_stored_results_say_the_gpu_their_date_and_their_commit():
    for name in ("gpu_attention", "gpu_generate", "gpu_guesses", "gpu_sampling"):
        machine = device_results(name)["machine"]
        assert {"device", "date", "commit"} <= set(machine), name


def test_a_cell_is_a_test_that_kills_a_bug() -> None:
    killed = {"one_test": [True, False], "other": [True, True]}
    (ax,) = museum.caught(killed, ["a_bug", "b"], "A title").axes
    filled = ~np.ma.getmaskarray(ax.images[0].get_array())
    assert filled.tolist() == [[True, True], [False, True]]
    assert labels(ax.yaxis) == ["a bug", "b"] and labels(ax.xaxis) == ["one test", "other"]
    with pytest.raises(ValueError, match="needed"):
        museum.caught({"one_test": [True]}, ["a", "b"], "A title")
