"""LayerNorm and RMSNorm as fused kernels: `kvlib.norms`, with each array read once."""

import math
from operator import index
from typing import NamedTuple

import numpy as np

from kvlib.arguments import check_positive, describe, is_integer
from kvlib.arrays import Array, namespace
from kvlib.kernels import checks, engine
from kvlib.kernels.launch import H200, Launch, device_of
from kvlib.kernels.source import Kernel
from kvlib.kernels.types import CTYPES, ctype
from kvlib.norms import Saved

PER_THREAD = (8, 16, 32)  # numbers of a row that a thread holds in registers
MOST_THREADS = 256
COLUMNS, SLICES = 32, 8  # of a block of `gather`, as in layernorm.cu


class RowPlan(NamedTuple):
    """per: numbers of a row a thread   threads a block   groups of rows of the backward pass"""

    per: int
    threads: int
    groups: int

    @property
    def shared(self) -> int:
        """Bytes of shared memory: two sums a warp."""
        return 8 * (self.threads // 32)


def plan_rows(rows: int, width: int, sms: int = H200.sms) -> RowPlan:
    """The fewest numbers a thread with which 256 threads hold a row; ValueError if it's too
    long."""
    most = MOST_THREADS * PER_THREAD[-1]
    if rows < 1 or not 1 <= width <= most:
        raise ValueError(f"a row must have 1 to {most} numbers, got x of shape ({rows}, {width})")
    per = next(per for per in PER_THREAD if width <= MOST_THREADS * per)
    threads = math.ceil(width / (32 * per)) * 32
    return RowPlan(per, threads, min(rows, sms * (MOST_THREADS // threads)))


def rms_norm_forward(
    x: Array, weight: Array, eps: float = 1e-6, *, run_on: str | None = None
) -> tuple[Array, Saved]:
    """The same as :func:`kvlib.norms.rms_norm_forward`, in one kernel.

    x (T, D)   weight (D,)   →   y (T, D) and Saved

    Numbers are float32, float16, or bfloat16 as uint16 bits. D is at most 8192, and a row is a
    whole number of vectors of 16 bytes. run_on: "device", "processor" or "twin"; the arrays decide
    by default. Raises ValueError or TypeError before anything is launched.

    >>> import numpy as np
    >>> y, saved = rms_norm_forward(np.full((2, 8), 3, np.float32), np.ones(8, np.float32))
    >>> y[0, 0].round(3), saved.inv_std.shape
    (np.float32(1.0), (2, 1))
    """
    return _forward(x, weight, None, eps, run_on)


def layer_norm_forward(
    x: Array, weight: Array, bias: Array, eps: float = 1e-5, *, run_on: str | None = None
) -> tuple[Array, Saved]:
    """The same as :func:`kvlib.norms.layer_norm_forward`, with the limits of `rms_norm_forward`.

    >>> import numpy as np
    >>> x, one = np.ones((2, 8), np.float32), np.ones(8, np.float32)
    >>> layer_norm_forward(x, one, one)[0][0, :4]  # equal numbers: the bias is left
    array([1., 1., 1., 1.], dtype=float32)
    """
    return _forward(x, weight, bias, eps, run_on)


def rms_norm_backward(
    dy: Array, saved: Saved, *, groups: int | None = None, run_on: str | None = None
) -> tuple[Array, Array]:
    """The same as :func:`kvlib.norms.rms_norm_backward`, in two kernels.

    dy (T, D)   →   dx (T, D), dweight (D,)

    groups: into how many groups of rows the first kernel cuts dweight's sum; chosen by default.

    >>> import numpy as np
    >>> x, one = np.ones((2, 8), np.float32), np.ones(8, np.float32)
    >>> dx, dweight = rms_norm_backward(x, rms_norm_forward(x, one)[1], groups=2)
    >>> dweight[:2].round(4)
    array([2., 2.], dtype=float32)
    """
    dx, dweight, _ = _backward(dy, saved, False, groups, run_on)
    return dx, dweight


def layer_norm_backward(
    dy: Array, saved: Saved, *, groups: int | None = None, run_on: str | None = None
) -> tuple[Array, Array, Array]:
    """The same as :func:`kvlib.norms.layer_norm_backward`.

    dy (T, D)   →   dx (T, D), dweight (D,), dbias (D,)

    >>> import numpy as np
    >>> x, one = np.ones((2, 8), np.float32), np.ones(8, np.float32)
    >>> dx, dweight, dbias = layer_norm_backward(x, layer_norm_forward(x, one, one)[1])
    >>> dbias[:2]
    array([2., 2.], dtype=float32)
    """
    return _backward(dy, saved, True, groups, run_on)


def _forward(
    x: Array, weight: Array, bias: Array | None, eps: float, run_on: str | None
) -> tuple[Array, Saved]:
    run_on = engine.engine_of(run_on, x)
    arrays = {"x": x, "weight": weight} | ({} if bias is None else {"bias": bias})
    namespace(*arrays.values())
    plan = _checked(arrays, "x", run_on)
    eps = check_positive("eps", eps)
    if run_on == "twin":
        from kvlib.kernels.twins.layernorm import forward

        y, x_hat, inv_std = forward(x, weight, bias, eps, plan)
        return y, Saved(x_hat, inv_std, weight)
    y, x_hat = engine.empty(x, x.shape, x.dtype), engine.empty(x, x.shape, x.dtype)
    inv_std = engine.empty(x, (x.shape[0], 1), np.float32)
    kernel = Kernel("layernorm", f"norm_forward<{_arguments(x, plan, bias is not None)}>")
    args = (y, x_hat, inv_std, x, weight, bias, np.int32(x.shape[1]), np.float32(eps))
    engine.start(run_on, Launch(kernel, (x.shape[0], 1, 1), plan.threads, plan.shared, args))
    return y, Saved(x_hat, inv_std, weight)


def _backward(
    dy: Array, saved: Saved, centre: bool, groups: int | None, run_on: str | None
) -> tuple[Array, Array, Array]:
    run_on = engine.engine_of(run_on, dy)
    x_hat, inv_std, weight = saved
    namespace(dy, *saved)
    plan = _checked({"dy": dy, "x_hat": x_hat, "weight": weight}, "dy", run_on)
    checks.check_array("inv_std", inv_std, "T one", {"T": dy.shape[0], "one": 1}, "float32")
    (rows, width), sides = dy.shape, 2 if centre else 1
    if groups is not None:
        if not is_integer(groups) or not 1 <= index(groups) <= rows:
            raise ValueError(
                f"groups must be 1 to the {rows} rows there are, got {describe(groups)}"
            )
        plan = plan._replace(groups=index(groups))
    if run_on == "twin":
        from kvlib.kernels.twins.layernorm import backward

        return backward(dy, saved, centre, plan)
    dx = engine.empty(dy, dy.shape, dy.dtype)
    dweight, dbias = (engine.empty(dy, (width,), dy.dtype) for _ in range(2))
    parts = engine.empty(dy, (sides, plan.groups, width), np.float32)
    kernel = Kernel("layernorm", f"norm_backward<{_arguments(dy, plan, centre)}>")
    args = (dx, parts, dy, x_hat, inv_std, weight, np.int32(rows), np.int32(width))
    grid, block = (-(-width // COLUMNS), sides, 1), COLUMNS * SLICES
    gather = Kernel("layernorm", f"gather<{ctype(dy, 'dy')}>")
    sums = (dweight, dbias, parts, np.int32(plan.groups), np.int32(width))
    engine.start(
        run_on,
        Launch(kernel, (plan.groups, 1, 1), plan.threads, plan.shared, args),
        Launch(gather, grid, block, 4 * block, sums),
    )
    return dx, dweight, dbias


def _arguments(x: Array, plan: RowPlan, centre: bool) -> str:
    return f"{ctype(x, 'x')}, {plan.per}, {'true' if centre else 'false'}"


def _checked(arrays: dict[str, Array], first: str, run_on: str) -> RowPlan:
    """The plan of arrays that fit: one dtype, (T, D) or (D,), at multiples of 16 bytes."""
    sizes: checks.SIZES = {}
    like = arrays[first]
    ctype(like, first)
    for name, x in arrays.items():
        checks.check_shape(name, x, "D" if name in ("weight", "bias") else "T D", sizes)
        checks.check_dtype(name, x, np.dtype(like.dtype).name)
        checks.check_aligned(name, x)
    count = 16 // np.dtype(like.dtype).itemsize
    if sizes["D"] % count:
        raise ValueError(f"a row must be a multiple of {count} numbers, got {sizes['D']}")
    return plan_rows(sizes["T"], sizes["D"], device_of(run_on).sms)


def instantiations() -> list[Kernel]:
    norms = [
        Kernel("layernorm", f"{way}<{t}, {per}, {centre}>")
        for way in ("norm_forward", "norm_backward")
        for t in CTYPES.values() for per in PER_THREAD for centre in ("true", "false")
    ]  # fmt: skip
    return norms + [Kernel("layernorm", f"gather<{t}>") for t in CTYPES.values()]
