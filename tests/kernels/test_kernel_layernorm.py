"""Norms, beyond the cases of the table: the order of the sums, and what a backward pass refuses."""

import numpy as np
import pytest
from engines import HOSTS, leaves
from rows_norms import LAYER, RMS

from kvlib import kernels


@pytest.mark.parametrize("row", [LAYER, RMS], ids=["layer", "rms"])
def test_the_twin_adds_in_the_kernel_s_order(row):
    """So close that another order of the sums would show."""
    sizes = {"rows": 12, "width": 1024, "groups": 5}
    twin, kernel = (leaves(row.run(sizes, run_on)) for run_on in HOSTS)
    for a, b in zip(twin, kernel, strict=True):
        assert np.abs(a - b).max() <= 4e-7 * np.abs(b).max()


X, W = np.ones((2, 8), np.float32), np.ones(8, np.float32)


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
