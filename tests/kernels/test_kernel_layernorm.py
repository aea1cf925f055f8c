"""LayerNorm and RMSNorm, the kernels and their twins, against float64 and against each other."""

import norm_oracle as oracle
import numpy as np
import pytest
from engines import HOSTS, RUNS, SLACK, back, given

from kvlib import kernels, norms
from kvlib.kernels import engine, processor
from kvlib.kernels import layernorm as module
from kvlib.kernels.layernorm import plan_rows
from kvlib.kernels.processor import compiled
from kvlib.kernels.types import as_float, as_type

NEAR = {"float32": 3e-6, "float16": 6e-3, "uint16": 4e-2}
KINDS = ("layer", "rms")
EPS = 1e-5


def case(seed, rows, width, dtype="float32", offset=0.0):
    """x (rows, width), weight, bias (width,), dy as x."""
    rng = np.random.default_rng(seed)
    shapes = ((rows, width), width, width, (rows, width))
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    arrays[0] += np.float32(offset)
    return [as_type(a, np.dtype(dtype)) for a in arrays]


def run(kind, x, weight, bias, dy, run_on, groups=None, eps=EPS):
    """y, Saved and (dx, dweight[, dbias])."""
    there = getattr(kernels, f"{kind}_norm_forward")
    handed = given(run_on, (x, weight, bias) if kind == "layer" else (x, weight))
    y, saved = there(*handed, eps, run_on=run_on)
    behind = getattr(kernels, f"{kind}_norm_backward")
    got = behind(given(run_on, dy), saved, groups=groups, run_on=run_on)
    return back(y), back(saved), back(got)


def agrees(kind, arrays, run_on, groups=None):
    x, weight, bias, dy = arrays
    near, centre = NEAR[str(x.dtype)] * SLACK.get(run_on, 1), kind == "layer"
    y, saved, got = run(kind, *arrays, run_on, groups)
    x, weight, bias, dy = (as_float(a).astype(float) for a in arrays)
    chain = oracle.chain_rule(x, weight, EPS, centre, dy)
    close(as_float(y), oracle.forward(x, weight, bias if centre else 0 * bias, EPS, centre), near)
    close(as_float(saved.x_hat), oracle.forward(x, 1.0, 0.0, EPS, centre), near)
    assert len(got) == 2 + centre and saved.inv_std.shape == (len(x), 1)
    scale = float(saved.inv_std.max())
    close(as_float(got[0]), chain.dx, near * max(1.0, scale) * 4)
    for a, b in zip(got[1:], chain[1:]):
        close(as_float(a), b, near * len(x) ** 0.5 * 4)
    assert all(a.dtype == y.dtype == saved.x_hat.dtype == arrays[0].dtype for a in got)


def close(got, needed, near):
    np.testing.assert_allclose(got, needed, atol=near * max(1.0, np.abs(needed).max()), rtol=0)


@pytest.mark.pairwise
@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("width", [8, 64, 264, 2048])
def test_every_type_and_width(kind, dtype, width, run_on):
    agrees(kind, case(width, 5, width, dtype), run_on, groups=2)


@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize("width", [2056, 4096, 8192])
def test_rows_that_take_more_numbers_a_thread(width, run_on):
    agrees("layer", case(1, 2, width, "float16"), run_on)


@pytest.mark.parametrize("run_on", RUNS)
@pytest.mark.parametrize("groups", [1, 2, 8, 9, 20])
def test_any_number_of_groups(groups, run_on):
    agrees("layer", case(2, 20, 16), run_on, groups=groups)


@pytest.mark.parametrize("run_on", RUNS)
def test_an_offset_is_survived(run_on):
    x, weight, bias, dy = case(3, 3, 999 // 4 * 4)
    far = (100 * x + np.float32(1e8)).astype(np.float32)  # where float32 has a number in 8
    y, _, (dx, *_) = run("layer", far, weight, bias, dy, run_on)
    wide = [a.astype(float) for a in (far, weight, bias, dy)]
    close(y, oracle.forward(*wide[:3], EPS, True), 1e-5)
    needed = oracle.chain_rule(*wide[:2], EPS, True, wide[3]).dx
    assert np.abs(dx - needed).max() < 1e-5 * np.abs(needed).max()


@pytest.mark.parametrize("run_on", RUNS)
def test_rows_of_zeros_and_of_equal_numbers(run_on):
    x, weight, bias, dy = case(4, 3, 32)
    x[0], x[1] = 0, 7
    y, saved, (dx, *_) = run("layer", x, weight, bias, dy, run_on)
    assert (y[:2] == bias).all() and np.allclose(saved.inv_std[:2], EPS**-0.5)
    assert np.isfinite(dx).all()
    y, _, (dx, _) = run("rms", x, weight, bias, dy, run_on)
    assert (y[0] == 0).all() and np.allclose(dx[0], dy[0] * weight / EPS**0.5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_twin_adds_in_the_kernel_s_order(kind):
    """So close that another order of the sums would show."""
    arrays = case(5, 12, 1024)
    found = [run(kind, *arrays, run_on, groups=5) for run_on in HOSTS]
    for a, b in zip(
        (found[0][0], *found[0][1], *found[0][2]), (found[1][0], *found[1][1], *found[1][2])
    ):
        assert np.abs(a - b).max() <= 4e-7 * np.abs(b).max()


@pytest.mark.parametrize("kind", KINDS)
def test_the_kernel_agrees_with_kvlib_norms(kind):
    x, weight, bias, dy = case(6, 9, 48)
    y, _, got = run(kind, x, weight, bias, dy, "processor")
    given = (x, weight, bias) if kind == "layer" else (x, weight)
    needed, saved = getattr(norms, f"{kind}_norm_forward")(*given, EPS)
    close(y, needed, 1e-6)
    for a, b in zip(got, getattr(norms, f"{kind}_norm_backward")(dy, saved)):
        close(a, b, 3e-6)


def watched(monkeypatch, **turned):
    """The launches of the calls that follow, each with its traffic; new arrays hold NaN."""
    seen = []

    def start(where, *launches):
        for launch in launches:
            for x in launch.args[: 3 if "forward" in launch.kernel.name else 2]:
                if isinstance(x, np.ndarray):
                    x[...] = 0x7FFF if x.dtype == np.uint16 else np.nan
            seen.append((launch, processor.run(launch, **turned)))

    monkeypatch.setattr(engine, "start", start)
    return seen


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_threads_does_not_matter(kind, monkeypatch):
    results = []
    for first, stride in ((0, 1), (63, -1 % 64), (5, 37)):
        with monkeypatch.context() as patch:
            watched(patch, first=first, stride=stride)
            y, saved, got = run(kind, *case(7, 4, 512), "processor", groups=3)
            results.append((y, *saved, *got))
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other))


@pytest.mark.parametrize("kind", KINDS)
def test_each_array_is_read_once_in_whole_sectors(kind, monkeypatch):
    seen = watched(monkeypatch)
    rows, width, groups = 30, 512, 2
    x, *rest = case(8, rows, width, "float16")
    run(kind, x, *rest, "processor", groups=groups)
    (_, there), (_, back), (_, gather) = seen
    row, sides = width * 2, 2 if kind == "layer" else 1
    weights = [rows * row] * sides  # from the cache after the first row
    assert there.written[:3] == (x.nbytes, x.nbytes, 4 * rows)
    assert there.read[3:] == (x.nbytes, *weights)
    assert back.written[:2] == (x.nbytes, sides * groups * width * 4)
    # 1/σ is asked for by each of 64 threads, and is one sector to a warp
    assert back.read[2:] == (x.nbytes, x.nbytes, 64 * 4 * rows, rows * row)
    assert gather.read[2] == sides * groups * width * 4
    assert sum(gather.written) == sides * row
    # NumPy begins arrays at multiples of 16 bytes, so a sector may be cut in two at the ends
    assert there.efficiency > 0.9 and back.efficiency > 0.9


CHANGES = {
    "sums read before they are there": (
        "= float2{a, b};\n    __syncthreads();\n",
        "= float2{a, b};\n",
    ),
    "the mean taken off what is not there": (
        "            if (vector(i / COUNT) * COUNT < width) x[i] -= mean;",
        "            x[i] -= mean;",
    ),
    "the mean's rounding left in": (
        "        r.subtract(block_sums(r.sum(), 0.0f).x / width, width);  // what",
        "        //",
    ),
    "a store past the row's end": (
        "            if (vector(v) * COUNT < width) store((uint4*)row",
        "            store((uint4*)row",
    ),
    "the last warp left out": ("w < (int)blockDim.x / 32", "w < (int)blockDim.x / 32 - 1"),
    "partial sums of dbias on top of dweight": (
        "(i64)gridDim.x * width + channel",
        "channel",
    ),
    "groups left out of the second stage": (
        "g < groups; g += SLICES",
        "g < groups - 1; g += SLICES",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_broken_kernel_is_seen(name, monkeypatch):
    old, new = CHANGES[name]
    text = compiled.source("layernorm")
    assert text.count(old) == 1, name
    monkeypatch.setattr(compiled, "source", lambda unit: text.replace(old, new))
    processor._entries.clear()
    try:
        for first, stride in ((0, 1), (63, -1 % 64), (5, 37)):
            with monkeypatch.context() as patch:
                watched(patch, first=first, stride=stride)
                agrees("layer", case(9, 11, 488), "processor", groups=11)
                x, weight, bias, dy = case(3, 2, 488)
                far = (100 * x + np.float32(1e8)).astype(np.float32)
                y = run("layer", far, weight, bias, dy, "processor")[0]
                needed = oracle.forward(*(a.astype(float) for a in (far, weight, bias)), EPS, True)
                close(y, needed, 1e-5)
    except (AssertionError, processor.KernelError):
        return
    finally:
        processor._entries.clear()
    pytest.fail(f"not seen: {name}")


@pytest.mark.parametrize(
    ("rows", "width", "plan"),
    [
        (1, 8, (8, 32, 1)),
        (5000, 256, (8, 32, 1056)),
        (5000, 2048, (8, 256, 132)),
        (5000, 2056, (16, 160, 132)),
        (5000, 4096, (16, 256, 132)),
        (100, 8192, (32, 256, 100)),
    ],
)
def test_plans(rows, width, plan):
    assert plan_rows(rows, width) == plan
    per, threads, _ = plan
    assert (
        per * threads >= width
        and threads % 32 == 0
        and plan_rows(rows, width).shared == threads // 4
    )


X, W = np.ones((2, 8), np.float32), np.ones(8, np.float32)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (
            {"x": X[:, :6].copy(), "weight": W[:6].copy()},
            ValueError,
            "multiple of 4 numbers, got 6",
        ),
        ({"x": X[0]}, ValueError, r"x must be \(T, D\)"),
        ({"x": X[:0]}, ValueError, r"1 to 8192 numbers, got x of shape \(0, 8\)"),
        (
            {"x": np.ones((1, 8200), np.float32), "weight": np.ones(8200, np.float32)},
            ValueError,
            "8192",
        ),
        ({"weight": W[:4]}, ValueError, r"weight must be \(D\) with D=8"),
        ({"weight": W.astype(np.float16)}, TypeError, "weight must be float32"),
        ({"x": X.astype(float)}, TypeError, "float32, float16 or uint16"),
        ({"x": X[:, ::-1]}, ValueError, "in one piece"),
        ({"eps": 0.0}, ValueError, "eps must be a finite number above 0"),
        ({"eps": float("nan")}, ValueError, "eps must be a finite number above 0"),
        ({"run_on": "device"}, TypeError, "CuPy arrays"),
    ],
)
def test_what_does_not_fit_is_refused(change, error, words):
    for run_on in HOSTS:
        given = {"x": X, "weight": W, "eps": EPS, "run_on": run_on} | change
        with pytest.raises(error, match=words):
            kernels.rms_norm_forward(**given)


def test_what_does_not_fit_on_the_way_back_is_refused():
    _, saved = kernels.rms_norm_forward(X, W)
    for dy, words in (
        (X[:1], "x_hat must be"),
        (np.ones(17, np.float32)[1:].reshape(2, 8), "16 bytes"),
    ):
        with pytest.raises(ValueError, match=words):
            kernels.rms_norm_backward(dy, saved)
    with pytest.raises(TypeError, match="x_hat must be float16"):
        kernels.rms_norm_backward(X.astype(np.float16), saved)
    with pytest.raises(ValueError, match="groups must be 1 to the 2 rows"):
        kernels.rms_norm_backward(X, saved, groups=3)
    wrong = saved._replace(inv_std=saved.inv_std[:1])
    with pytest.raises(ValueError, match="inv_std must be"):
        kernels.layer_norm_backward(X, wrong)


def test_every_kernel_is_in_the_catalogue():
    from kvlib.kernels.nvrtc import instantiations

    assert set(module.instantiations()) <= set(instantiations())
