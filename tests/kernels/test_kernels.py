"""Every kernel of the table: the source on the processor, its twin and a device against float64.

Also its accesses, what it refuses, and that a broken one is seen.
"""

import effort as efforts
import numpy as np
import pytest
from cuda_mutants import MUTANTS, in_cuda
from engines import HOSTS, in_orders, leaves
from table import TABLE

from kvlib.kernels import engine, watched
from kvlib.kernels.__main__ import instantiations
from kvlib.kernels.processor import KernelError
from kvlib.kernels.source import source

UNITS = [(name, unit) for name, row in TABLE.items() for unit in row.units]
SAMPLED = []  # of each product: cases that run on hosts, and all


@pytest.fixture(autouse=True)
def poisoned(monkeypatch):
    """Results, before they are written, are numbers that no test expects."""
    empty = engine.empty

    def poison(like, shape, dtype):
        x = empty(like, shape, dtype)
        x[...] = np.nan if x.dtype.kind == "f" else 0x7FFF
        return x

    monkeypatch.setattr(engine, "empty", poison)


def named(kernel, case, marks=()):
    shown = [str(x).replace(" ", "") for name, x in case.items() if name != "run_on"]
    return pytest.param(kernel, case, marks=marks, id="-".join([kernel, *shown, case["run_on"]]))


def cases():
    """(kernel, case): of each product what covers all pairs of values; all of it on a device."""
    for kernel, row in TABLE.items():
        for product in row.products():
            kept = range(len(product))
            if efforts.LEVEL != "whole":
                kept = efforts.pairwise(product)
            SAMPLED.append((len(kept), len(product)))
            yield from (named(kernel, product[i]) for i in kept)
        if row.device:
            for product in row.products(["device"]):
                yield from (named(kernel, case, pytest.mark.gpu) for case in product)


@pytest.mark.parametrize(("kernel", "case"), list(cases()))
def test_results_are_those_of_the_oracle(kernel, case, effort):
    TABLE[kernel].check(case, case["run_on"])


def test_the_cases_are_sampled(effort):
    effort.ran("cases of kernels", *(sum(n) for n in zip(*SAMPLED, strict=True)))


def test_every_unit_is_in_the_table():
    assert {unit for _, unit in UNITS} == {kernel.unit for kernel in instantiations()}


@pytest.mark.parametrize(("kernel", "unit"), UNITS)
def test_the_order_of_threads_does_not_matter(kernel, unit):
    """A missing barrier shows when threads run backwards, or far apart."""
    row = TABLE[kernel]
    with watched() as seen:
        row.check(row.units[unit], "processor")
    assert unit in {launch.kernel.unit for launch, _ in seen}
    first, *others = in_orders(lambda: row.run(row.units[unit], "processor"))
    for other in others:
        assert all(np.array_equal(a, b) for a, b in zip(leaves(first), leaves(other), strict=True))


ACCESSES = [(kernel, *accesses) for kernel, row in TABLE.items() for accesses in row.traffic]


@pytest.mark.parametrize(("kernel", "case", "expected"), ACCESSES)
def test_each_number_is_read_once_in_whole_sectors(kernel, case, expected):
    """16 bytes per lane side by side: what is asked for is what is moved."""
    with watched() as seen:
        TABLE[kernel].run(case, "processor")
    for (launch, traffic), wanted in zip(seen, expected, strict=True):
        assert {i: traffic.read[i] for i in wanted.get("read", {})} == wanted.get("read", {})
        written = {i: n for i, n in enumerate(traffic.written) if n}
        assert written == wanted.get("written", written)
        assert launch.grid == wanted.get("grid", launch.grid)
        assert traffic.efficiency >= wanted.get("efficiency", 0)


REFUSED = [
    pytest.param(kernel, case, *refusal, id=f"{kernel}-{refusal[2]}")
    for kernel, row in TABLE.items()
    for case, refusals in row.refused
    for refusal in refusals
]


@pytest.mark.parametrize(("kernel", "case", "changes", "error", "words"), REFUSED)
def test_what_does_not_fit_is_refused(kernel, case, changes, error, words):
    row = TABLE[kernel]
    for run_on in HOSTS:
        sizes, settings = row.parts(case)
        inputs, _ = row.case(**sizes)
        settings = {"run_on": run_on, **settings}
        for name, change in changes.items():
            if name in inputs:
                inputs[name] = change(inputs[name])
            elif not callable(change):
                settings[name] = change
        with pytest.raises(error, match=words):
            row.call(*inputs.values(), **settings)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_is_of_a_source_that_there_is(mutant):
    assert source(mutant.unit).count(mutant.old) == 1


@pytest.mark.slow
@pytest.mark.every(12, start=5)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_kernel_is_seen(mutant):
    try:
        with in_cuda(mutant):
            for row in (row for row in TABLE.values() if mutant.unit in row.units):
                in_orders(lambda row=row: row.check(row.units[mutant.unit], "processor"))
                for product in reversed([*row.products(["processor"])]):  # widths come first
                    for case in product:
                        row.check(case, "processor")
    except (AssertionError, KernelError):
        return
    pytest.fail(f"not seen: {mutant.name}")
