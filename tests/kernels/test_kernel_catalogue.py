"""Every kernel compiles for every compute capability, without a graphics card, and fits one.

What the compiler says of a source does not change while the source does not: it is stored beside
the source's fingerprint, and only sources that have changed are compiled whole again.
"""

import os
import platform
import re
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

import effort
import pytest

from kvlib.kernels.__main__ import MODULES, SPILLS, instantiations
from kvlib.kernels.nvrtc import CAPABILITIES, capabilities_of, compiled, fingerprint, library
from kvlib.kernels.results import device_results, resources, stored
from kvlib.kernels.source import FOLDER, source

REGISTERS = 65_536  # of a multiprocessor, on each of these capabilities
MOST_THREADS = 1024
NVRTC = "nvidia-cuda-nvrtc"
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


def unchanged(unit):
    """Whether the compiler has seen this very source; what it said is in resources.json."""
    with suppress(PackageNotFoundError):
        return stored()["sources"].get(unit) == fingerprint(unit)
    return False


def jobs():
    """(kernels of one unit, capability): all that changed; of the others one kernel each.

    KVLIB_TESTS=whole compiles everything.
    """
    for i, unit in enumerate(UNITS):
        own = [kernel for kernel in KERNELS if kernel.unit == unit]
        if unchanged(unit) and effort.LEVEL != "whole":
            capability = capabilities_of(unit)[i % len(capabilities_of(unit))]
            yield pytest.param(own[:1], capability, id=f"{unit}-one-{capability}")
            continue
        for start in range(0, len(own), BATCH):
            for capability in capabilities_of(unit):
                name = f"{unit}-{start // BATCH}-{capability}"
                yield pytest.param(own[start : start + BATCH], capability, id=name)


def most_threads(kernel):
    """Threads of a block that a kernel declares (__launch_bounds__); else any size."""
    text, constants = source(kernel.unit), {"WARPS": 8}  # at most, where templates say
    for line in re.findall(r"static const int ([^;]+);", text):
        for name, value in re.findall(r"(\w+) = ([\w */+-]+?)(?:,|$)", line):
            with suppress(NameError, SyntaxError):  # of a template's parameters: no thread count
                constants[name] = eval(value.replace("/", "//"), {}, dict(constants))
    name, _, given = kernel.name.removesuffix(">").partition("<")
    if head := re.search(rf"template <(.+)>\n__global__ [^\n]* {name}\(", text):
        chosen = zip(parts(head[1]), parts(given))  # the last parameters have defaults
        constants |= {what.split(" = ")[0].split()[-1]: int(x) for what, x in chosen if x.isdigit()}
    bounds = re.search(rf"__global__ void __launch_bounds__\((.+)\) {name}\(", text)
    assert bounds or re.search(rf"__global__ void {name}\(", text), f"{name} of {kernel.unit}.cu"
    return int(eval(parts(bounds[1])[0], {}, constants)) if bounds else MOST_THREADS


def parts(text):
    """What commas separate that are in no brackets."""
    while text != (text := re.sub(r"([(<][^()<>]*),([^()<>]*[)>])", r"\1;\2", text)):
        pass
    return [part.replace(";", ",") for part in text.split(", ")]


@pytest.mark.parametrize(("kernels", "capability"), list(jobs()))
def test_kernels_compile_to_what_is_stored(nvrtc, kernels, capability, record_property):
    """Of a source that has changed every kernel, for every capability."""
    known, same_compiler = resources(capability), stored()["compiler"] == f"NVRTC {version(NVRTC)}"
    for found in compiled(kernels, capability):
        here = {"registers": found.registers, "spills": found.spills, "stack": found.stack}
        assert_fits(found.kernel, here, capability)
        assert known.get(found.kernel.name) == here or not same_compiler, (
            f"{found.kernel.name} for {capability}: the compiler says {here}, stored is "
            f"{known.get(found.kernel.name)}; store it: python -m kvlib.kernels --store"
        )
    record_property("sampled", f"compiled kernels: {len(kernels)} of {len(kernels)}")


def assert_fits(kernel, found, capability):
    """No spills above the budget, and one block's registers within a multiprocessor's."""
    what = f"{kernel.name} for {capability}: {found}"
    assert found["spills"] <= SPILLS, what
    assert 0 < found["registers"] <= 255, what
    # Registers are allocated eight at a time to each thread.
    assert -(-found["registers"] // 8) * 8 * most_threads(kernel) <= REGISTERS, what


def test_what_is_not_compiled_again_has_not_changed(record_property):
    ran = sum(len(job.values[0]) for job in jobs())
    of = sum(len(capabilities_of(kernel.unit)) for kernel in KERNELS)
    record_property("sampled", f"compiled kernels: 0 of {of - ran}")
    for unit in UNITS:
        first = [job for job in jobs() if job.id.startswith(f"{unit}-0")]
        assert unchanged(unit) or len(first) == len(capabilities_of(unit))


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_stored_kernel_fits(capability):
    stored = resources(capability)
    here = [kernel for kernel in KERNELS if capability in capabilities_of(kernel.unit)]
    assert stored.keys() == {kernel.name for kernel in here}
    for kernel in here:
        assert_fits(kernel, stored[kernel.name], capability)


def test_every_unit_is_in_the_catalogue():
    assert {path.stem for path in FOLDER.glob("*.cu")} == set(UNITS)
    assert len(set(KERNELS)) == len(KERNELS) and len(MODULES) == len(set(MODULES))


def test_an_unknown_capability_and_a_result_that_is_not_there():
    with pytest.raises(ValueError, match="capability must be one of"):
        resources("7.5")
    assert device_results("no such result") is None
