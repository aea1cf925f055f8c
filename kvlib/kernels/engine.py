"""Where a kernel runs: on the device, on the processor, or as its twin in NumPy."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from kvlib.arrays import Array
from kvlib.kernels.launch import Launch, run

ENGINES = ("device", "processor", "twin")
_watching: list[list[tuple[Launch, Any]]] = []


def engine_of(engine: str | None, *arrays: Array) -> str:
    """The engine for these arrays; by default the device for CuPy's, the twin for NumPy's."""
    host = isinstance(arrays[0], np.ndarray)
    if engine is None:
        return "twin" if host else "device"
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    if host == (engine == "device"):
        kind = "NumPy" if host else type(arrays[0]).__module__.split(".")[0]
        wanted = "CuPy arrays" if engine == "device" else "NumPy arrays"
        raise TypeError(f"engine {engine!r} takes {wanted}, got {kind} arrays; leave run_on out")
    return engine


def start(engine: str, *launches: Launch) -> Any:
    """Run launches one after the other; on the processor gives the list of their Traffic."""
    if engine == "device":
        for launch in launches:
            run(launch)
        return None
    from kvlib.kernels import processor

    traffic = [processor.run(launch) for launch in launches]
    for seen in _watching:
        seen.extend(zip(launches, traffic, strict=True))
    return traffic


@contextmanager
def watched() -> Iterator[list[tuple[Launch, Any]]]:
    """List every launch that runs on the processor inside the `with` block, with its Traffic.

    >>> import numpy as np
    >>> from kvlib.kernels import rms_norm_forward
    >>> x = np.ones((2, 8), np.float32)
    >>> with watched() as seen:
    ...     y, saved = rms_norm_forward(x, x[0], run_on="processor")
    >>> launch, traffic = seen[0]
    >>> launch.grid, sum(traffic.written)  # a block per row; y, x_hat and inv_std: 64 + 64 + 8
    ((2, 1, 1), 136)
    """
    seen: list[tuple[Launch, Any]] = []
    _watching.append(seen)
    try:
        yield seen
    finally:
        _watching.remove(seen)


def empty(like: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """A new array beside `like`, unwritten."""
    if isinstance(like, np.ndarray):
        return np.empty(shape, dtype=dtype)
    import cupy

    return cupy.empty(shape, dtype=dtype)


def zeros(like: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """A new array of zeros beside `like`."""
    x = empty(like, shape, dtype)
    x.fill(0)
    return x
