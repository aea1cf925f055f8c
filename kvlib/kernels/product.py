"""The products of a decode step: few rows of x times a weight, as fast as the weight is read."""

from typing import Any, NamedTuple

import numpy as np

from kvlib.arguments import check_positive
from kvlib.arrays import Array, namespace
from kvlib.kernels import checks, engine
from kvlib.kernels.launch import H200, Device, Launch, device_of
from kvlib.kernels.source import Kernel
from kvlib.kernels.tuning import choice
from kvlib.kernels.types import CTYPES, ctype

MOST_ROWS = 16
UNIT, CELL = 64, 256  # columns that a warp multiplies at a time, bytes of a row of x in them


class ProductPlan(NamedTuple):
    """How one product is launched.

    rows: of x that the kernel has sums for   gated: two rows of the weight make one number
    warps a block   depth: units of the weight in a warp's queue   blocks
    step: numbers of a row of the result that a tile makes   room: units of x that a warp keeps
    late: whether the next kernel may start only when all loads are under way
    """

    rows: int
    gated: bool
    warps: int
    depth: int
    blocks: int
    step: int
    room: int
    late: bool

    def shared(self, itemsize: int) -> int:
        """Bytes of shared memory a block: queues, x, its squares, and sums of two tiles."""
        tile = tile_of(self.rows, itemsize)
        loads = 4 if itemsize == 2 else tile // 2
        x = CELL * self.room * self.rows + 4 * self.rows
        return self.warps * (512 * self.depth * loads + x + 8 * tile * self.rows)


def tile_of(rows: int, itemsize: int) -> int:
    """Rows of the weight in a tile, as in product.cu."""
    return 16 if itemsize == 2 else 8 if rows <= 4 else 4


def rows_of(rows: int, itemsize: int) -> int:
    """Rows of x that the kernel for `rows` has sums for."""
    return next(r for r in ((1, 4, 8, 16) if itemsize == 2 else (1, 2, 4, 8, 16)) if rows <= r)


def plan_product(
    rows: int, n: int, k: int, dtype: object, gated: bool = False, device: Device = H200,
    *, warps: int = 0, depth: int = 0, per_sm: int | None = None, late: bool = False,
    most: int = 128,
) -> ProductPlan:  # fmt: skip
    """How x (rows, k) times a weight (n, k), or (2n, k) if gated, is launched.

    warps, depth: 0: about 96 kB on their way to a block   most: kB of x in a block's shared memory
    per_sm: blocks a multiprocessor that go through the tiles in turns; 0: a block a tile;
    None: as many as fit, but a block a tile where that's two and there are few
    """
    itemsize = np.dtype(dtype).itemsize  # type: ignore[call-overload]
    kernel_rows, units = rows_of(rows, itemsize), -(-k // UNIT)
    usual = _queues(kernel_rows, units, itemsize)
    warps, depth = warps or usual[0], depth or usual[1]
    room = units_of_warp = -(-units // warps)
    if CELL * kernel_rows * warps * room > most * 1024:
        room = max(min(units_of_warp, 2), most * 1024 // (warps * CELL * kernel_rows))
    step = tile_of(kernel_rows, itemsize) // (1 + gated)
    blocks = -(-n // step)
    plan = ProductPlan(kernel_rows, gated, warps, depth, blocks, step, room, late)
    if per_sm is None:
        per_sm = min(2, (device.shared + 1024) // (plan.shared(itemsize) + 1024))
        per_sm = 0 if per_sm == 2 and blocks < 3 * device.sms else per_sm
    if per_sm:  # tiles of the same size, as many for each block
        turns = -(-blocks // (per_sm * device.sms))
        step = max(step // 2, min(step, -(-n // (turns * per_sm * device.sms))))
        plan = plan._replace(blocks=-(-n // (step * turns)), step=step)
    return plan


def _queues(rows: int, units: int, itemsize: int) -> tuple[int, int]:
    """Warps of a block and units in the queue of each, as they were fastest on an H200."""
    if itemsize == 4:
        return (12, 4) if rows <= 2 else (12, 6) if rows <= 8 else (8, 8)
    if rows == 1:
        return (8, 6) if units <= 64 else (16, 3)
    return (16, 2) if rows <= 8 else (8, 4)


def case_of(rows: int, n: int, k: int, dtype: object, gated: bool) -> str:
    """The name of what a variant is chosen for: kernel, type, and bytes of a power of two."""
    itemsize = np.dtype(dtype).itemsize  # type: ignore[call-overload]
    bits = (n * k * itemsize * (1 + gated) - 1).bit_length()
    kind = ", gated" if gated else ""
    return f"{rows_of(rows, itemsize)} rows of {8 * itemsize} bits, 2^{bits} bytes{kind}"


def tuned(
    rows: int, n: int, k: int, dtype: object, gated: bool = False, device: Device = H200,
    **given: Any,
) -> ProductPlan:  # fmt: skip
    """:func:`plan_product` with what was measured on this card, where it isn't given."""
    measured = choice("product", case_of(rows, n, k, dtype, gated))
    return plan_product(rows, n, k, dtype, gated, device, **{**measured, **given})


def linear(
    x: Array, weight: Array, bias: Array | None = None, *, norm: Array | None = None,
    eps: float = 1e-5, residual: Array | None = None, gated: bool = False,
    run_on: str | None = None,
) -> Array:  # fmt: skip
    """x · weightᵀ for the few rows of a decode step, with what a layer does around it.

    x (R, K) float32, R <= 16   weight (N, K) in float32, float16 or uint16 (bfloat16's bits)
    bias (N,), norm (K,) in the weight's type or float32   residual (R, N) float32
    →   (R, N) float32

    norm: x / sqrt(mean of x² + eps) · norm is multiplied   residual: added to the result
    gated: weight (2N, K), the result is silu(x · first halfᵀ) · (x · second halfᵀ)

    A row is a multiple of 16 bytes. Raises ValueError or TypeError before anything is launched.
    """
    run_on = engine.engine_of(run_on, x)
    given = {"bias": bias, "norm": norm, "residual": residual}
    more = {name: a for name, a in given.items() if a is not None}
    namespace(x, weight, *more.values())
    sizes: checks.SIZES = {}
    checks.check_array("x", x, "R K", sizes, "float32")
    checks.check_array("weight", weight, "H K", sizes, *CTYPES)
    (rows, width), height = x.shape, weight.shape[0]
    count = 16 // np.dtype(weight.dtype).itemsize
    if not 1 <= rows <= MOST_ROWS:
        raise ValueError(f"x must have 1 to {MOST_ROWS} rows, got {rows}")
    if width == 0 or width % count:
        raise ValueError(f"a row must be a multiple of {count} numbers, got {width}")
    if height == 0 or height % (1 + gated) or (gated and bias is not None):
        raise ValueError(
            f"weight must have rows, in pairs and without bias if gated, got {height} rows, "
            f"gated={gated} and {'no' if bias is None else 'a'} bias"
        )
    sizes["N"], kinds = height // (1 + gated), ("float32", np.dtype(weight.dtype).name)
    for name, a in more.items():
        shape = {"bias": "N", "norm": "K", "residual": "R N"}[name]
        checks.check_array(name, a, shape, sizes, *(kinds if name != "residual" else kinds[:1]))
    for name, a in {"x": x, "weight": weight, **more}.items():
        checks.check_aligned(name, a)
    eps = check_positive("eps", eps)
    device = device_of(run_on)
    plan = tuned(rows, sizes["N"], width, weight.dtype, gated, device)
    if run_on == "twin":
        from kvlib.kernels.twins.product import product

        return product(x, weight, bias, norm=norm, eps=eps, residual=residual, plan=plan)
    out = engine.empty(x, (rows, sizes["N"]), np.float32)
    engine.start(run_on, *launches_of(
        out, x, weight, bias=bias, norm=norm, eps=eps, residual=residual, gated=gated, plan=plan
    ))  # fmt: skip
    return out


def launches_of(
    out: Array, x: Array, weight: Array, *, bias: Array | None = None, norm: Array | None = None,
    eps: float = 0.0, residual: Array | None = None, gated: bool = False, device: Device = H200,
    plan: ProductPlan | None = None,
) -> list[Launch]:  # fmt: skip
    """The launch of :func:`linear` over arrays that fit; `out` (R, N) may be `residual`."""
    (rows, width), height = x.shape, out.shape[1]
    plan = plan or tuned(rows, height, width, weight.dtype, gated, device)
    wide = sum(bit for bit, a in ((1, bias), (2, norm)) if a is not None and a.dtype == np.float32)
    numbers = (rows, height, width, plan.step, wide, plan.room, plan.late)
    args = (out, x, weight, bias, norm, residual, *map(np.int32, numbers), np.float32(eps))
    shared = plan.shared(np.dtype(weight.dtype).itemsize)
    kernel = kernel_of(plan, ctype(weight, "weight"))
    return [Launch(kernel, (plan.blocks, 1, 1), 32 * plan.warps, shared, args, early=True)]


def kernel_of(plan: ProductPlan, number: str) -> Kernel:
    gated = "true" if plan.gated else "false"
    return Kernel("product", f"product<{number}, {plan.rows}, {gated}, {plan.warps}, {plan.depth}>")


def instantiations() -> list[Kernel]:
    """Those that `plan_product` chooses."""
    found = {
        kernel_of(plan_product(rows, 64, k, dtype, gated), number)
        for dtype, number in CTYPES.items()
        for gated in (False, True)
        for rows in (1, 2, 4, 8, 16)
        for k in (64, 8192)
    }
    return sorted(found)
