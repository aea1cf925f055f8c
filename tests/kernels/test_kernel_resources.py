"""What the book prints of each kernel is what the compiler says of the kernels that there are."""

import pytest

from kvlib.kernels.nvrtc import CAPABILITIES, instantiations
from kvlib.kernels.results import device_results, resources


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_kernel_is_stored(capability):
    assert set(resources(capability)) == {kernel.name for kernel in instantiations()}


def test_an_unknown_capability_and_a_result_that_is_not_there():
    with pytest.raises(ValueError, match="capability must be one of"):
        resources("7.5")
    assert device_results("no such result") is None
