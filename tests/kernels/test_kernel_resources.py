"""What the book prints of each kernel is what the compiler says of the kernels that there are."""

import pytest

from kvlib.kernels.catalogue import instantiations
from kvlib.kernels.nvrtc import CAPABILITIES, library
from kvlib.kernels.results import device_results, resources


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_kernel_is_stored(capability):
    assert set(resources(capability)) == {kernel.name for kernel in instantiations()}


def test_what_is_stored_is_what_the_compiler_says():
    from kvlib.kernels.nvrtc import compiled

    try:
        library()
    except ImportError as error:
        pytest.skip(str(error))
    kernels = [k for k in instantiations() if k.unit == "loads"]
    for found in compiled(kernels, "9.0"):
        stored = resources("9.0")[found.kernel.name]
        assert stored == {
            "registers": found.registers,
            "spills": found.spills,
            "stack": found.stack,
        }


def test_an_unknown_capability_and_a_result_that_is_not_there():
    with pytest.raises(ValueError, match="capability must be one of"):
        resources("7.5")
    assert device_results("no such result") is None
