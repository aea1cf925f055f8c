"""What the drawings of the chapter on the GPU show, read back from their axes; its explorers; and
whether the numbers that pages quote from a GPU are the stored ones."""

from pathlib import Path

import numpy as np
import pytest
from drawn import texts, title, widths
from small_scenes import check_scene

from kvbook.figures import gpu as draw
from kvlib.kernels.results import device_results

pytestmark = pytest.mark.usefixtures("drawn")


def test_as_many_squares_are_filled_as_there_are_blocks():
    few, all_ = draw.busy({"few": 8, "many": 400}, 132).axes
    for ax, n in ((few, 8), (all_, 132)):
        faces = ax.collections[0].get_facecolors()
        assert len(faces) == 132
        assert sum(not np.allclose(f[:3], 1) for f in faces) == n
        assert f"{n} of 132 busy" in title(ax)


def test_the_ladder_is_in_mib_and_terabytes_on_log_scales():
    sizes, rates = {"a": 2 << 20, "b": 64 << 20}, {"a": 300.0, "b": 4.8}
    left, right = draw.hierarchy(sizes, 8 << 20, rates, {"b": 400}).axes
    assert widths(left) == [2, 64]
    assert left.get_xscale() == "log" and left.lines[0].get_xdata()[0] == 8
    assert widths(right) == [300, 4.8]
    assert texts(right) == ["300, at once", "4.8, 400 clocks"]


def test_idle_shares_are_pairs_in_percent():
    (ax,) = draw.idle({"one": (0.97, 0.04), "two": (0.35, 0.03)}).axes
    assert [round(p.get_width()) for p in ax.patches] == [97, 35, 4, 3]


def test_moved_bytes_are_multiples_of_what_was_asked_for():
    (ax,) = draw.efficiency({"a": 80, "b": 10, "c": 10}, 320).axes
    assert widths(ax) == [8, 1, 1]


def test_registers_and_warps_stand_side_by_side():
    left, right = draw.resources({"a": 72, "b": 160}, {"a": 28, "b": 12}).axes
    assert widths(left) == [72, 160]
    assert widths(right) == [28, 12]
    assert left.yaxis_inverted() and right.yaxis_inverted()


def test_points_lie_on_the_roof():
    (ax,) = draw.intensities({"slope": 10, "flat": 1000}, 200, 5e12, 1e15).axes
    points = [(line.get_xdata()[0], line.get_ydata()[0]) for line in ax.lines[1:3]]
    assert points == [(10, pytest.approx(50)), (1000, pytest.approx(1000))]


def test_a_panel_per_way_and_a_mark_where_nothing_is_gained():
    gib = {"heads": [4, 2, 2.0], "tokens": [4, 2.0, 1.0]}
    axes = draw.on_one_device((1, 2, 4), gib).axes
    assert [title(ax) for ax in axes] == ["heads", "tokens"]
    assert [list(ax.lines[0].get_ydata()) for ax in axes] == [*gib.values()]
    assert [len(ax.lines) for ax in axes] == [2, 1]
    assert list(axes[0].lines[1].get_xdata()) == [2, 4]


def scene_number(scene, words):
    return next(n["text"] for n in scene["numbers"] if words in n["label"])


def test_splits_fill_the_device():
    explorer = draw.splits_explorer(65536, 8, 4, 128, 132, 3)
    for splits, busy in ((1, 8), (16, 128), (32, 132)):
        scene = explorer.scene(splits=splits)
        check_scene(scene)
        found = [c for row in scene["panels"][0]["rows"] for c in row["cells"]]
        assert len(found) == 132 and found.count("muted") == busy
    busiest = [scene_number(explorer.scene(splits=n), "busiest") for n in (1, 49, 64, 128)]
    assert busiest == ["65,536", "1,338", "2,048", "1,536"]  # more is not free
    one, many = (explorer.scene(splits=n)["panels"][1]["bars"] for n in (1, 128))
    assert one[0] == many[0] and one[1]["parts"][0]["value"] == 0
    partial = 2 * 128 * 32 * 129 * 4 / 2**20
    assert many[1]["parts"][0]["value"] == pytest.approx(partial, rel=0.005)


def test_steps_read_every_key_once_and_leave_one_state():
    explorer = draw.steps_explorer(blocks=8, steps=4, keys_a_step=32, groups=8)
    numbers = []
    for step in range(7):
        scene = explorer.scene(step=step)
        check_scene(scene)
        numbers.append([n["text"] for n in scene["numbers"]])
    read, states = zip(*numbers, strict=True)
    assert read == ("0", "256", "512", "768", "1,024", "1,024", "1,024")
    assert states == ("0", "64", "64", "64", "64", "8", "1")


def test_measured_speeds_stand_beside_what_the_bytes_allow():
    """The form of benchmarks/gpu_attention.py's results, with numbers of no device."""
    runs = {"dense": {"median_us": 8.0, "share": 0.8}, "int8": {"median_us": 4.0, "share": 0.4}}
    (ax,) = draw.measured({"runs": runs}).axes
    assert widths(ax) == [1, 2, 1, 4]  # measured, then allowed: int8 reads a quarter of the bytes
    assert texts(ax) == ["1.00", "2.00"]


def test_the_stored_results_say_the_gpu_their_date_and_their_commit():
    for name in ("gpu_attention", "gpu_generate", "gpu_guesses", "gpu_sampling"):
        machine = device_results(name)["machine"]
        assert {"device", "date", "commit"} <= set(machine), name


def quoted():
    """Page → what it says in words around stored numbers."""
    names = ("attention", "generate", "guesses", "sampling", "tests")
    attention, generate, guesses, sampling, tests = (device_results(f"gpu_{n}") for n in names)
    commit = tests["commit"]
    assert {x["machine"]["commit"] for x in (attention, generate, guesses, sampling)} == {commit}
    share, times = [], {}
    for case in attention["decode"][:5]:
        runs = {name.split(",")[0]: run for name, run in case["runs"].items()}
        share.append({name: f"{100 * run['share']:.0f} %" for name, run in runs.items()})
        times = times or {name: f"{1 / run['times_dense']:.2f}" for name, run in runs.items()}
    rows = [" | ".join(x[n] for n in ("dense", "paged", "int8", "e4m3", "int4", "torch"))
            for x in share]  # fmt: skip
    prompts = attention["prefill"]
    ours, theirs = (
        [f"{x['runs'][n]['tflops']:.0f}" for x in prompts] for n in ("kvlib", "torch")
    )
    weights = f"{400e9 / attention['copy_bytes_per_s']:.2f}"
    step = next(x for x in generate["decode"] if x["prompt"] == 128)
    kernels, arrays, peer = (step[n]["median_ms"] for n in ("kernels", "arrays", "transformers"))
    forms = ("one token", "chain of 5", "tree of 16")
    long, _, short = ([x["runs"][n]["median_us"] for n in forms] for x in guesses["guesses"])
    one, chain, _ = (guesses["guesses"][0]["runs"][n] for n in forms)
    full, _, half = sampling["candidates"][:3]  # 2,048 rows of float32 and of bfloat16
    (full_ms, torch_ms), (half_ms, _) = (
        [t["median_us"] / 1e3 for t in x["times"].values()] for x in (full, half)
    )
    full_share, half_share = (100 * x["share_of_copy_bandwidth"] for x in (full, half))
    draw_ms = {n: t["median_us"] / 1e3 for n, t in sampling["draws"][0]["times"].items()}
    return {
        "README.md": (
            f"({tests['date']}, commit {commit})",
            f"{share[0]['dense']} of the copy bandwidth, dense or paged",
            f"dense or paged; PyTorch {share[0]['torch']}",
            f"{times['int8']} times as fast as bfloat16 in int8, {times['e4m3']} times in fp8",
            f"only {times['int4']} times in int4",
            f"{ours[2]} TFLOP/s; PyTorch {theirs[2]}",
            f"{full_ms:.2f} ms; PyTorch {torch_ms:.2f} ms",
            f"{kernels:.1f} ms; transformers {peer:.1f} ms",
            f"would take {weights} ms",
        ),
        "benchmarks/README.md": (
            f"on {tests['date']} at commit {commit} with CuPy {tests['cupy-cuda13x']}",
            f"is {times['int8']} times; int4 could be 3.2 times, and is {times['int4']} times",
            *rows[:2],
            f"{', '.join(ours[:2])} and {ours[2]} TFLOP/s",
            f"reaches {', '.join(theirs[:2])} and {theirs[2]}",
            f"is {full['times_torch']:.1f} times as fast as PyTorch's two calls",
            f"reads at {full_share:.0f} %",
            f"is {half['times_torch']:.1f} times as fast and reads at {half_share:.0f} %",
            f"takes {half_ms / full_ms:.1f} times as long",
            f"takes {draw_ms['top_k 50']:.2f} ms with `top_k=50`",
            f"and {draw_ms['top_p 0.9'] / 1e3:.1f} s with `top_p=0.9`",
            "takes {:.0f} µs, a chain of five {:.0f} µs and a tree of 16 {:.0f} µs".format(*long),
            "they take {:.0f}, {:.0f} and {:.0f} µs".format(*short),
            f"{kernels:.1f} ms per step with kvlib's kernels",
            f"{arrays:.1f} ms with array operations and {peer:.1f} ms in transformers",
            f"{kernels / 0.4:.0f} µs per launch",
            f"All {tests['tests']['passed']} tests",
            f"{tests['parts']['kernels']['passed']} of them tests of the kernels",
        ),
        "book/gpu.ipynb": (
            f"shorter requests, by {share[4]['torch']} to {share[4]['dense']}",
            f"single long one, by {share[1]['torch']} to {share[1]['dense']}",
            f"Int8 is {times['int8']} times as fast as bfloat16",
            f"and int4 only {times['int4']} times",
            f"reading 400 MB takes {weights} ms",
            f"Int8 reaches {times['int8']} of 1.94, e4m3 {times['e4m3']} of 2.00",
            f"int4 {times['int4']} of 3.20; paged equals dense, PyTorch {times['torch']}",
            f"without tensor cores {times['without tensor cores']}",
            f"reading the weights once takes {weights}, transformers {peer:.1f}",
            f"its kernels {kernels:.1f}, kvlib with array operations {arrays:.1f}",
            f"about {kernels / 0.4:.0f} µs to prepare each",
            f"takes {100 * (1 - peer / kernels):.0f} % less time",
        ),
        "book/sampling.ipynb": (
            f"is {full['times_torch']:.1f} times as fast as PyTorch's two calls",
            f"reads at only {full_share:.0f} %",
            f"{half_ms:.3f} ms, and its share falls to {half_share:.0f} %",
            f"PyTorch takes {torch_ms:.2f} and kvlib {full_ms:.3f}",
        ),
        "book/speculative.ipynb": (
            f"a chain of five takes {chain['times_one']:.1f} times as long",
            f"reads at {100 * one['share']:.0f} % of the rate of a copy",
            f"which reaches {100 * chain['share']:.0f} %",
        ),
    }


def test_the_numbers_of_a_gpu_are_the_stored_ones():
    root = Path(__file__).resolve().parent.parent
    for page, words in quoted().items():
        text = " ".join((root / page).read_text(encoding="utf-8").split())
        assert not [x for x in words if x not in text], page
