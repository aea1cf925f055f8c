"""Every kernel compiles for every compute capability, without a graphics card, and fits one."""

import os
import platform
import re
import sys
from contextlib import suppress

import pytest

from kvlib.kernels.__main__ import SPILLS
from kvlib.kernels.catalogue import MODULES, instantiations
from kvlib.kernels.nvrtc import CAPABILITIES, compiled, library
from kvlib.kernels.source import FOLDER, source

REGISTERS = 65_536  # of a multiprocessor, on each of these capabilities
MOST_THREADS = 1024
KERNELS = instantiations()
UNITS = sorted({kernel.unit for kernel in KERNELS})
BATCH = 12  # kernels in one run of the compiler: reading the source again costs more than they do


@pytest.fixture(scope="module")
def nvrtc():
    """The compiler; it may be missing, but not where the tests must be whole."""
    try:
        return library()
    except ImportError as error:
        if os.environ.get("CI") and sys.platform == "linux" and platform.machine() == "x86_64":
            raise
        pytest.skip(str(error))


def batches():
    """(unit, kernels) of at most BATCH each, so that workers share the catalogue."""
    for unit in UNITS:
        own = [kernel for kernel in KERNELS if kernel.unit == unit]
        for i in range(0, len(own), BATCH):
            yield pytest.param(own[i : i + BATCH], id=f"{unit}-{i // BATCH}")


def most_threads(kernel):
    """Threads of a block that a kernel declares (__launch_bounds__); else any size."""
    text, constants = source(kernel.unit), {}
    for line in re.findall(r"static const int ([^;]+);", text):
        for name, value in re.findall(r"(\w+) = ([\w */+-]+?)(?:,|$)", line):
            with suppress(NameError, SyntaxError):  # of a template's parameters: no thread count
                constants[name] = eval(value.replace("/", "//"), {}, dict(constants))
    name = kernel.name.split("<")[0]
    bounds = re.search(rf"__global__ void __launch_bounds__\(([^,)]+)[^\n]*\) {name}\(", text)
    assert bounds or re.search(rf"__global__ void {name}\(", text), f"{name} of {kernel.unit}.cu"
    return int(eval(bounds[1], {}, constants)) if bounds else MOST_THREADS


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("kernels", list(batches()))
def test_every_kernel_compiles_and_fits(nvrtc, kernels, capability):
    """No spills above the budget, and one block's registers within a multiprocessor's."""
    for found in compiled(kernels, capability):
        what = f"{found.kernel.name} for {capability}: {found}"
        assert found.spills <= SPILLS, what
        assert 0 < found.registers <= 255 and found.code > 0, what
        # Registers are handed out eight at a time to each thread.
        assert -(-found.registers // 8) * 8 * most_threads(found.kernel) <= REGISTERS, what


def test_every_unit_is_in_the_catalogue():
    """A kernel that nobody lists is a kernel that nobody compiles."""
    assert {path.stem for path in FOLDER.glob("*.cu")} == set(UNITS)
    assert len(set(KERNELS)) == len(KERNELS) and len(MODULES) == len(set(MODULES))
