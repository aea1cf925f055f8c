"""What the machine at hand can do, measured in about two seconds by `measure_machine`.

The rates give the least time of a step whose work `kvlib.costs` counts. Of several timings the
fastest counts, as in STREAM (www.cs.virginia.edu/stream): what disturbs a timing only makes it
longer. Still, the rest of the machine should be quiet.
"""

import math
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import matmul
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kvlib import costs
from kvlib.arguments import check_integer, check_list
from kvlib.arrays import default_namespace, is_numpy

COLUMNS = 1024  # numbers in a row of what is read: 4 KiB of float32
WIDE = 4096  # ... and in the longer rows of the second matrix-vector product
SQUARE, SQUARE_ON_A_DEVICE = 2048, 8192  # rows and columns of the matrices that are multiplied
# Bytes that are read to see the memory behind the caches, and the part of all memory at most.
AT_LEAST, AT_MOST, ON_A_DEVICE, SHARE = 2**28, 2**29, 2**31, 16


@dataclass(frozen=True)
class Machine:
    """Measured rates of one machine, and how they were measured.

    bandwidth  the fastest of `ways` to go through an array that fits into no cache
    flops      of a product of two square float32 matrices (16-bit units of a GPU are faster)
    library    the array library; `threads` is how many threads it used (0: not known)
    ways       name -> bandwidth: "matvec" (the way decode reads) and "matvec, wide" (rows four
               times as long), "dot", "sum", "copy" (read and written bytes)

    Raises TypeError for rates without their unit, ValueError for rates that are not above 0.

    >>> from kvlib.costs import BytesPerSecond, FlopsPerSecond, decode
    >>> desk = Machine("desk", BytesPerSecond(50e9), FlopsPerSecond(1e12))
    >>> floor = desk.floor(decode("llama-3.2-1b", batch=1, context=512))
    >>> f"{floor.seconds:.1f ms}", floor.bound  # all weights, for one token
    ('49.8 ms', 'memory')
    """

    name: str
    bandwidth: costs.BytesPerSecond
    flops: costs.FlopsPerSecond
    library: str = ""
    threads: int = 0
    ways: Mapping[str, costs.BytesPerSecond] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what, kind in (("bandwidth", costs.BytesPerSecond), ("flops", costs.FlopsPerSecond)):
            value = getattr(self, what)
            if not isinstance(value, kind):
                raise TypeError(f"{what} must be {kind.__name__}, got {value!r}")
            if value.value <= 0:
                raise ValueError(f"{what} must be above 0, got {value!r}")
        object.__setattr__(self, "ways", MappingProxyType(dict(self.ways)))

    @property
    def ridge(self) -> costs.FlopsPerByte:
        """Operations per byte from which arithmetic takes longer than reading."""
        return self.flops / self.bandwidth  # type: ignore[no-any-return]

    def at_least(self, amount: costs.Bytes | costs.Flops, took: costs.Seconds) -> "Machine":
        """This machine, with its rate corrected if a program did `amount` of work in `took`."""
        seen = amount / took
        if isinstance(amount, costs.Bytes):
            return replace(self, bandwidth=seen) if seen > self.bandwidth else self
        return replace(self, flops=seen) if seen > self.flops else self

    def floor(self, work: "costs.Work") -> costs.Floor:
        """The least time that a step can take here (the roofline, doi:10.1145/1498765.1498785)."""
        sides = (work.total.flops / self.flops, work.total.bytes / self.bandwidth)
        made = costs.Tokens(work.batch if work.phase == "decode" else work.batch * work.fresh)
        return costs.Floor(*sides, tokens_per_second=made / max(sides))

    def __repr__(self) -> str:
        threads = f", {self.threads} thread{'s' * (self.threads != 1)}" if self.threads else ""
        return (
            f"Machine({self.name}: {self.bandwidth:.3g GB/s}, {self.flops:.3g GFLOP/s}, "
            f"ridge {self.ridge:.3g FLOP/B}; {self.library}{threads})"
        )


def measure_machine(
    xp: Any = None, *, nbytes: int | None = None, size: int | None = None, repeats: int = 7
) -> Machine:
    """Measure with the array library `xp` (the one at hand if None): NumPy, or CuPy on a device.

    nbytes   how much is read; more than any cache holds unless given (`memory_sized`)
    size     rows and columns of the matrices whose product is timed; 2048, on a device 8192.
             Matrices of half that size are timed, too: a short product is rarely disturbed
    repeats  timings of the product, and rounds in which every way to read is timed once

    Raises ValueError for sizes below 1, and for fewer bytes than two rows of 4 KiB.

    >>> import numpy as np
    >>> here = measure_machine(np, nbytes=2**16, size=64)  # quick, too small to trust
    >>> sorted(here.ways), here.bandwidth == max(here.ways.values())
    (['copy', 'dot', 'matvec', 'matvec, wide', 'sum'], True)
    """
    xp = default_namespace() if xp is None else xp
    size = (SQUARE if is_numpy(xp) else SQUARE_ON_A_DEVICE) if size is None else size
    size, repeats = check_integer("size", size), check_integer("repeats", repeats)
    nbytes = memory_sized(xp) if nbytes is None else check_integer("nbytes", nbytes)
    wait = _wait(xp)
    ways = _ways(_matrix(xp, nbytes), repeats, wait)
    name, library, threads = _describe(xp)
    rate = _products(xp, size, repeats, wait)
    return Machine(name, max(ways.values()), rate, library, threads, ways)


def bandwidth_by_size(
    sizes: Sequence[int], xp: Any = None, *, repeats: int = 5
) -> dict[int, costs.BytesPerSecond]:
    """Bytes per second at which a matrix of each of `sizes` bytes is read, again and again.

    A matrix-vector product reads it, as decode reads its weights, and a cache keeps it if it fits.
    Keys are the bytes that were read, in rows of 4 KiB. ValueError for less than two rows.

    >>> import numpy as np
    >>> list(bandwidth_by_size([2**13, 2**20 + 5], np, repeats=3))
    [8192, 1048576]
    """
    xp = default_namespace() if xp is None else xp
    sizes = [check_integer("sizes", n) for n in check_list("sizes", sizes, "numbers of bytes")]
    if not sizes:
        raise ValueError("sizes must hold at least one number of bytes, got none")
    repeats = check_integer("repeats", repeats)
    whole, wait, found = _matrix(xp, max(sizes)), _wait(xp), {}
    x = xp.ones((COLUMNS,), dtype=xp.float32)
    for size in sizes:
        part = whole[: _rows(size), :]
        calls = max(1, 2**25 // (part.size * 4))  # a clock cannot time a few microseconds
        took = fastest_seconds(partial(matmul, part, x), repeats=repeats, calls=calls, wait=wait)
        found[part.size * 4] = costs.BytesPerSecond(part.size * 4 / took.value)
    return found


def fastest_seconds(
    function: Callable[[], Any],
    *,
    repeats: int = 7,
    calls: int = 1,
    at_most: float = 0.5,
    wait: Callable[[], Any] | None = None,
) -> costs.Seconds:
    """Time of one call: the fastest of `repeats` timings of `calls` calls each, after one untimed.

    After `at_most` seconds no further timing begins, but at least three are made. `wait` blocks
    until a device has finished.

    >>> fastest_seconds(lambda: sum(range(10)), repeats=3, calls=2).value > 0
    True
    """
    limits: dict[str, Any] = {"repeats": repeats, "calls": calls, "at_most": at_most}
    return fastest_in_turns({"": function}, **limits, wait=wait)[""]


def fastest_in_turns(
    functions: Mapping[str, Callable[[], Any]],
    *,
    repeats: int = 15,
    calls: int = 1,
    at_most: float = 2.0,
    wait: Callable[[], Any] | None = None,
) -> dict[str, costs.Seconds]:
    """The time of each function's fastest call in `repeats` rounds, each of `calls` calls of each.

    For times that are compared: other load slows all functions alike. at_most, wait: as in
    `fastest_seconds`.

    >>> took = fastest_in_turns({n: lambda n=n: sum(range(n)) for n in (10, 10**5)})
    >>> took[10] < took[10**5]
    True
    """
    repeats, calls = check_integer("repeats", repeats), check_integer("calls", calls)
    wait = wait or (lambda: None)
    for function in functions.values():
        function()  # memory is mapped, threads are started, kernels are compiled
    wait()
    best, spent, rounds = dict.fromkeys(functions, math.inf), 0.0, 0
    while rounds < repeats and (rounds < 3 or spent < at_most):
        for name, function in functions.items():
            start = time.perf_counter()
            for _ in range(calls):
                function()
            wait()
            took = time.perf_counter() - start
            best[name], spent = min(best[name], took), spent + took
        rounds += 1
    return {name: costs.Seconds(max(took, 1e-9) / calls) for name, took in best.items()}


def memory_sized(xp: Any = None) -> int:
    """How many bytes to read to measure memory: twice the processor's largest cache.

    From 256 to 512 MiB, or 2 GiB on a GPU, but at most a sixteenth of the memory.

    >>> import numpy as np
    >>> 0 < memory_sized(np) <= 512 * 2**20
    True
    """
    xp = default_namespace() if xp is None else xp
    if not is_numpy(xp):
        return ON_A_DEVICE
    return min(max(AT_LEAST, 2 * largest_cache()), AT_MOST, _memory() // SHARE)


def largest_cache() -> int:
    """Bytes of the processor's largest cache where Linux says so; 32 MiB elsewhere.

    >>> largest_cache() > 2**15
    True
    """
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    texts = [path.read_text(encoding="ascii").strip() for path in sizes]
    known = [int(text[:-1]) for text in texts if text.endswith("K") and text[:-1].isdigit()]
    return max(known, default=32 * 1024) * 1024


def _ways(
    matrix: Any, repeats: int, wait: Callable[[], Any] | None
) -> dict[str, costs.BytesPerSecond]:
    """Each way to go through a matrix once, in bytes per second."""
    flat, half = matrix.reshape(-1), matrix.shape[0] // 2
    width = min(WIDE, flat.size)
    wide = flat[: flat.size // width * width].reshape((-1, width))
    x, long_x = matrix[0, :] * 1.0, wide[0, :] * 1.0
    upper, lower = matrix[:half, :], matrix[half : 2 * half, :]

    def copy() -> None:
        lower[...] = upper

    ways: dict[str, tuple[Callable[[], Any], int]] = {
        "matvec": (lambda: matrix @ x, matrix.size),
        "matvec, wide": (lambda: wide @ long_x, wide.size),
        "dot": (lambda: flat @ flat, matrix.size),
        "sum": (lambda: flat.sum(), matrix.size),
        "copy": (copy, 2 * upper.size),
    }
    functions = {name: function for name, (function, _) in ways.items()}
    took = fastest_in_turns(functions, repeats=2 * repeats, wait=wait)
    return {
        name: costs.BytesPerSecond(numbers * 4 / took[name].value)
        for name, (_, numbers) in ways.items()
    }


def _products(
    xp: Any, size: int, repeats: int, wait: Callable[[], Any] | None
) -> costs.FlopsPerSecond:
    """The faster of two square products, in operations per second."""
    halves = {str(n): n for n in (size, max(1, size // 2))}
    squares = {name: xp.full((n, n), 0.5, dtype=xp.float32) for name, n in halves.items()}
    functions = {name: partial(matmul, a, a) for name, a in squares.items()}
    took = fastest_in_turns(functions, repeats=2 * repeats, wait=wait)
    return max(costs.FlopsPerSecond(2 * n**3 / took[name].value) for name, n in halves.items())


def _matrix(xp: Any, nbytes: int) -> Any:
    """A matrix of ones of `nbytes` bytes: written, so that the system has given it real memory."""
    return xp.ones((_rows(nbytes), COLUMNS), dtype=xp.float32)


def _rows(nbytes: int) -> int:
    rows = int(nbytes) // (COLUMNS * 4)
    if rows < 2:
        raise ValueError(f"nbytes must be at least {2 * COLUMNS * 4} (two rows), got {nbytes!r}")
    return rows


def _wait(xp: Any) -> Callable[[], Any] | None:
    return None if is_numpy(xp) else xp.cuda.Device().synchronize


def _memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not every system answers
        return 8 * 2**30


def _describe(xp: Any) -> tuple[str, str, int]:
    """(name of the processor or device, library, threads)."""
    if not is_numpy(xp):
        properties = xp.cuda.runtime.getDeviceProperties(xp.cuda.Device().id)
        library = sys.modules[xp.ndarray.__module__.partition(".")[0]]  # xp may be a wrapper of it
        return properties["name"].decode(), f"CuPy {library.__version__}", 0
    from kvlib.blas import threads

    return _processor(), f"NumPy {xp.__version__}", threads()


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return " ".join(line.split(":", 1)[1].split())
    except OSError:  # not Linux
        pass
    return platform.processor() or platform.machine() or "processor"
