"""The small kernels of a compiled step give the twin's bits, with a norm, too.

They round each product before they add, as NumPy does, and sum in the twin's order.
"""

import numpy as np
import pytest
from engines import RUNS, leaves
from rows_token import APPEND, STORED


@pytest.mark.parametrize("run_on", RUNS[1:])
@pytest.mark.parametrize("dim", [64, 96, 128, 256])
@pytest.mark.parametrize("kind", STORED)
def test_normalised_and_rotated_heads_are_the_twin_s(kind, dim, run_on):
    sizes = {"kind": kind, "dim": dim, "norm": True, "rotary": 0.5, "lengths": (3, 33)}
    found = (leaves(APPEND.run(sizes, engine)) for engine in ("twin", run_on))
    for twin, kernel in zip(*found, strict=True):
        assert np.array_equal(twin, kernel)
