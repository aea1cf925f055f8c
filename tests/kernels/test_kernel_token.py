"""The small kernels of a step, beyond the cases of the table: twin and kernel to the bit."""

import numpy as np
import pytest
from engines import HOSTS, leaves
from rows_token import APPEND, STORED


@pytest.mark.parametrize("dim", [64, 96, 128, 256])
@pytest.mark.parametrize("kind", STORED)
def test_the_twin_adds_in_the_kernel_s_order(kind, dim):
    """With a norm, too: the kernel rounds each product before it adds, as NumPy does."""
    sizes = {"kind": kind, "dim": dim, "norm": True, "rotary": 0.5, "lengths": (3, 33)}
    for twin, kernel in zip(*(leaves(APPEND.run(sizes, run_on)) for run_on in HOSTS), strict=True):
        assert np.array_equal(twin, kernel)


@pytest.mark.gpu
@pytest.mark.parametrize("dim", [64, 96, 128, 256])
@pytest.mark.parametrize("kind", STORED)
def test_the_device_gives_what_the_twin_gives(kind, dim):
    sizes = {"kind": kind, "dim": dim, "norm": True, "rotary": 0.5, "lengths": (3, 33)}
    twin, device = (leaves(APPEND.run(sizes, run_on)) for run_on in ("twin", "device"))
    for a, b in zip(twin, device, strict=True):
        assert np.array_equal(a, b)
