"""Where a kernel's test runs: the same body on NumPy's twin, on the processor, and on a device.

The device is marked `gpu` and skipped where CuPy has none; `make gpu` runs it where there is one.
"""

import importlib.util

import numpy as np
import pytest

from kvlib.kernels import processor

# How much farther from float64 than a host a device may be: 2^x of the special function unit is
# good to two units in the last place, and tensor cores cut sums off where they do not round them.
SLACK = {"device": 4.0}
HOSTS = ("twin", "processor")
RUNS = (*HOSTS, pytest.param("device", marks=pytest.mark.gpu))


def library(run_on):
    """The array library of an engine; a test that asks for a device where there is none skips."""
    if run_on != "device":
        return np
    from kvlib.devices import trouble

    if importlib.util.find_spec("cupy") is None:
        pytest.skip("CuPy is not installed")
    if reason := trouble():
        pytest.skip(reason)
    import array_api_compat.cupy as cp

    return cp


def given(run_on, x):
    """Arrays where the engine takes them: copies on the device; in tuples and codes, too."""
    xp = library(run_on)
    if isinstance(x, np.ndarray):
        return x if xp is np else xp.asarray(x)
    if isinstance(x, tuple) and xp is not np:
        moved = (given(run_on, y) for y in x)
        return type(x)(*moved) if hasattr(x, "_fields") else tuple(moved)
    return x


def back(x):
    """The same as NumPy arrays."""
    if isinstance(x, tuple):
        moved = (back(y) for y in x)
        return type(x)(*moved) if hasattr(x, "_fields") else tuple(moved)
    return x.get() if hasattr(x, "get") and not isinstance(x, np.ndarray) else x


def leaves(x):
    """The arrays and numbers in nested tuples and lists."""
    return [y for part in x for y in leaves(part)] if isinstance(x, tuple | list) else [x]


def in_orders(call):
    """What a call gives on the processor as threads run in order, backwards, and far apart."""
    run, seen = processor.run, []
    for order in (lambda n: (0, 1), lambda n: (n - 1, n - 1), lambda n: (5, 37)):

        def turned(launch, order=order):
            first, stride = order(launch.threads)
            return run(launch, first=first, stride=stride)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(processor, "run", turned)
            seen.append(call())
    return seen
