"""Measuring the machine: what is computed from the clock. No speed is asserted."""

import importlib.util
from itertools import count

import numpy as np
import pytest

from kvlib import machine
from kvlib.costs import Bytes, BytesPerSecond, Flops, FlopsPerByte, FlopsPerSecond, Seconds
from kvlib.machine import (
    Machine,
    bandwidth_by_size,
    fastest_in_turns,
    fastest_seconds,
    measure_machine,
    memory_sized,
)

SMALL = 2**16  # bytes


def by_hand(bandwidth: float = 50e9, flops: float = 1e12) -> Machine:
    return Machine("desk", BytesPerSecond(bandwidth), FlopsPerSecond(flops), "NumPy 2", 4)


def test_what_is_measured() -> None:
    m = measure_machine(np, nbytes=SMALL, size=64, repeats=3)
    assert isinstance(m.bandwidth, BytesPerSecond) and isinstance(m.flops, FlopsPerSecond)
    assert set(m.ways) == {"matvec", "matvec, wide", "dot", "sum", "copy"}
    assert m.bandwidth == max(m.ways.values()) and min(m.ways.values()).value > 0
    assert m.name and m.library == f"NumPy {np.__version__}" and m.threads >= 1
    assert f"{m.threads} thread" in repr(m) and "GB/s" in repr(m) and "FLOP/B" in repr(m)


class Clock:
    """perf_counter that moves on by the cost of what is called."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(machine.time, "perf_counter", clock)
    return clock


def test_calls_are_divided_out_and_the_device_is_waited_for(clock: Clock) -> None:
    waited = count()

    def run() -> None:
        clock.now += 0.25

    def wait() -> None:
        next(waited)
        clock.now += 1.0

    took = fastest_seconds(run, repeats=5, calls=4, at_most=99.0, wait=wait)
    assert took == Seconds((4 * 0.25 + 1.0) / 4)
    assert next(waited) == 1 + 5


def test_slow_calls_are_timed_three_times_and_no_more(clock: Clock) -> None:
    calls = count()

    def run() -> None:
        next(calls)
        clock.now += 10.0

    assert fastest_seconds(run, repeats=50, at_most=0.5) == Seconds(10.0)
    assert next(calls) == 1 + 3


def test_functions_take_turns_and_the_fastest_round_counts(clock: Clock) -> None:
    order = []
    costs = {"a": iter([9.0, 4.0, 1.0, 3.0, 0.1]), "b": iter([9.0, 2.0, 5.0, 2.5, 0.1])}

    def cost_of(name):
        def run():
            order.append(name)
            clock.now += next(costs[name])

        return run

    found = fastest_in_turns({n: cost_of(n) for n in costs}, repeats=3, at_most=99.0)
    assert found == {"a": Seconds(1.0), "b": Seconds(2.0)}  # the first call is not timed
    assert order == ["a", "b"] * 4


def test_rates_are_bytes_and_operations_over_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    took = {"matvec": 1.0, "matvec, wide": 4.0, "dot": 2.0, "sum": 4.0, "copy": 2.0}
    took |= {"10": 0.5, "5": 0.25}  # the products
    monkeypatch.setattr(
        machine, "fastest_in_turns", lambda f, **k: {name: Seconds(took[name]) for name in f}
    )
    m = measure_machine(np, nbytes=9 * 4096, size=10)
    assert {name: way.value for name, way in m.ways.items()} == {
        "matvec": 9 * 4096,
        "matvec, wide": 2 * 4096,  # two rows of 16 KiB, the ninth of 4 KiB remains
        "dot": 9 * 4096 / 2, "sum": 9 * 4096 / 4,
        "copy": 4 * 4096,  # half of it read, and as much written
    }
    assert m.bandwidth == BytesPerSecond(9 * 4096)
    assert m.flops == FlopsPerSecond(2 * 10**3 / 0.5)


def test_a_faster_reader_corrects_the_bandwidth() -> None:
    desk = by_hand()
    assert desk.at_least(Bytes(10**9), Seconds(0.1)) is desk
    faster = desk.at_least(Bytes(6 * 10**9), Seconds(0.1))
    assert faster.bandwidth == BytesPerSecond(60e9)
    assert (faster.flops, faster.name, dict(faster.ways)) == (desk.flops, desk.name, {})
    assert desk.at_least(Flops(10**9), Seconds(0.1)) is desk
    assert desk.at_least(Flops(3 * 10**12), Seconds(1)).flops == FlopsPerSecond(3e12)


def test_bandwidth_by_size_reads_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def took(function, *, calls=1, **_):
        assert np.array_equal(function(), np.full(function().shape, 1024.0, np.float32))
        seen.append((len(function()), calls))
        return Seconds(1.0)

    monkeypatch.setattr(machine, "fastest_seconds", took)
    found = bandwidth_by_size([8192, 12288 + 5], np)
    assert found == {8192: BytesPerSecond(8192), 12288: BytesPerSecond(12288)}
    assert seen == [(2, 2**25 // 8192), (3, 2**25 // 12288)]


def test_what_is_read_fits_into_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    mib = 2**20
    for cache, memory, wanted in (
        (32 * mib, 2**34, 256 * mib), (200 * mib, 2**34, 400 * mib), (900 * mib, 2**40, 512 * mib),
        (32 * mib, 2**31, 128 * mib),
    ):
        monkeypatch.setattr(machine, "largest_cache", lambda cache=cache: cache)
        monkeypatch.setattr(machine, "_memory", lambda memory=memory: memory)
        assert memory_sized(np) == wanted
    import array_api_strict

    assert memory_sized(array_api_strict) == 2**31  # whatever is not NumPy counts as a device
    monkeypatch.undo()
    assert machine.largest_cache() >= 2**20
    assert 2**20 <= memory_sized(np) <= 2**29


def test_a_machine_sets_a_floor_as_a_gpu_does() -> None:
    from kvlib.costs import MODELS, decode, prefill

    model, desk = MODELS["llama-3.2-1b"], by_hand()
    work = decode(model, 1, 512, kv_dtype="float32", weight_dtype="float32")
    floor = desk.floor(work)
    assert floor.bound == "memory"
    assert floor.seconds.value == pytest.approx((work.total.bytes / desk.bandwidth).value)
    slow = by_hand(flops=1e6).floor(work)
    assert slow.bound == "compute"
    assert slow.seconds.value == pytest.approx(work.total.flops.value / 1e6)
    assert slow.tokens_per_second.value == pytest.approx(1 / slow.seconds.value)
    read = desk.floor(prefill(model, 2, 300))
    assert read.tokens_per_second.value == pytest.approx(600 / read.seconds.value)
    assert desk.ridge == FlopsPerByte(20.0)


@pytest.mark.parametrize("make, error, words", [
    (lambda: by_hand(bandwidth=0.0), ValueError, "bandwidth must be above 0"),
    (lambda: by_hand(flops=-1.0), ValueError, "flops must be above 0"),
    (lambda: Machine("x", 5e9, FlopsPerSecond(1.0)), TypeError, "bandwidth must be BytesPer"),
    (lambda: measure_machine(np, nbytes=100), ValueError, "nbytes must be at least 8192"),
    (lambda: measure_machine(np, nbytes=SMALL, size=0), ValueError, "size must be an integer"),
    (lambda: measure_machine(np, repeats=True), ValueError, "repeats must be an integer"),
    (lambda: bandwidth_by_size([SMALL, 10], np), ValueError, "nbytes must be at least"),
])
def test_bad_input_is_named(make, error, words) -> None:
    with pytest.raises(error, match=words):
        make()


def test_an_unknown_system_still_answers(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    def refuse(name):
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(machine.os, "sysconf", refuse)
    assert machine._memory() == 8 * 2**30

    class Elsewhere(type(tmp_path)):
        def read_text(self, *args, **kwargs):
            raise FileNotFoundError(str(self))

        def glob(self, pattern):
            return iter(())

    monkeypatch.setattr(machine, "Path", Elsewhere)
    assert machine._processor() and machine.largest_cache() == 32 * 2**20


@pytest.mark.gpu
def test_a_device_is_measured() -> None:
    if importlib.util.find_spec("cupy") is None:
        pytest.skip("CuPy is not installed")
    import array_api_compat.cupy as cp

    try:
        cp.cuda.runtime.getDeviceCount()
    except cp.cuda.runtime.CUDARuntimeError as error:
        pytest.skip(f"CuPy finds no CUDA device: {error}")
    m = measure_machine(cp)
    assert m.library.startswith("CuPy") and m.threads == 0 and m.name
    hill = bandwidth_by_size([2**20, 2**28], cp)
    assert set(hill) == {2**20, 2**28}
    assert m.ridge.value > 1  # no device computes less than an operation per byte
