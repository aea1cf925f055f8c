"""What the drawings of the chapter on the GPU show, read back from their axes; its explorers."""

import numpy as np
import pytest
from small_scenes import check_scene

from kvbook import figures
from kvbook.figures import gpu as draw
from kvlib.kernels.results import device_results


@pytest.fixture(autouse=True)
def style(monkeypatch):
    import matplotlib

    monkeypatch.setenv("MPLBACKEND", "Agg")
    with matplotlib.rc_context():
        figures.use_style()
        yield


def test_as_many_squares_are_filled_as_there_are_blocks():
    few, all_ = draw.busy({"few": 8, "many": 400}, 132).axes
    for ax, n in ((few, 8), (all_, 132)):
        faces = ax.collections[0].get_facecolors()
        assert len(faces) == 132
        assert sum(not np.allclose(f[:3], 1) for f in faces) == n
        assert f"{n} of 132 busy" in ax.get_title(loc="left")


def test_the_ladder_is_in_mib_and_terabytes_on_log_scales():
    sizes, rates = {"a": 2 << 20, "b": 64 << 20}, {"a": 300.0, "b": 4.8}
    left, right = draw.hierarchy(sizes, 8 << 20, rates, {"b": 400}).axes
    assert [p.get_width() for p in left.patches] == [2, 64]
    assert left.get_xscale() == "log" and left.lines[0].get_xdata()[0] == 8
    assert [p.get_width() for p in right.patches] == [300, 4.8]
    assert [t.get_text() for t in right.texts] == ["300, at once", "4.8, 400 clocks"]


def test_idle_shares_are_pairs_in_percent():
    (ax,) = draw.idle({"one": (0.97, 0.04), "two": (0.35, 0.03)}).axes
    assert [round(p.get_width()) for p in ax.patches] == [97, 35, 4, 3]


def test_moved_bytes_are_multiples_of_what_was_asked_for():
    (ax,) = draw.efficiency({"a": 80, "b": 10, "c": 10}, 320).axes
    assert [p.get_width() for p in ax.patches] == [8, 1, 1]


def test_registers_and_warps_stand_side_by_side():
    left, right = draw.resources({"a": 72, "b": 160}, {"a": 28, "b": 12}).axes
    assert [p.get_width() for p in left.patches] == [72, 160]
    assert [p.get_width() for p in right.patches] == [28, 12]
    assert left.yaxis_inverted() and right.yaxis_inverted()


def test_points_lie_on_the_roof():
    (ax,) = draw.intensities({"slope": 10, "flat": 1000}, 200, 5e12, 1e15).axes
    points = [(line.get_xdata()[0], line.get_ydata()[0]) for line in ax.lines[1:3]]
    assert points == [(10, pytest.approx(50)), (1000, pytest.approx(1000))]


def test_a_panel_per_way_and_a_mark_where_nothing_is_gained():
    gib = {"heads": [4, 2, 2.0], "tokens": [4, 2.0, 1.0]}
    axes = draw.on_one_device((1, 2, 4), gib).axes
    assert [ax.get_title(loc="left") for ax in axes] == ["heads", "tokens"]
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
    widths = [bar.get_width() for bar in ax.patches]
    assert widths == [1, 2, 1, 4]  # measured, then allowed: int8 reads a quarter of the bytes
    assert [words.get_text() for words in ax.texts] == ["1.00", "2.00"]


def test_the_stored_results_say_the_gpu_their_date_and_their_commit():
    for name in ("gpu_attention", "gpu_generate", "gpu_guesses", "gpu_sampling"):
        machine = device_results(name)["machine"]
        assert {"device", "date", "commit"} <= set(machine), name
