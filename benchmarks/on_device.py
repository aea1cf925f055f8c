"""How the scripts gpu_*.py time: CUDA events, inputs past the cache, medians, provenance.

Calls that are compared take turns. Each is given a number i and works on the i-th of several sets
of inputs, so that no call finds its bytes in the second-level cache. What is timed is a burst of
calls between two events on one stream: the device never waits for Python as long as a call takes
longer than starting it. Shorter ones are recorded into a graph (`Graph`, `TorchGraph`) and
replayed. Results are written after each case: a run that is cut short keeps what it has measured.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from typing import Any

import harness

COPIED = 4 << 30  # bytes of a copy that shows the bandwidth


def device_or_exit() -> Any:
    """CuPy with a device, or a sentence and the end of the script: nothing can be measured here."""
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
        cupy.arange(2).sum().item()
    except Exception as error:
        print(f"no CUDA device here, nothing is measured: {str(error).splitlines()[0]}")
        sys.exit(0)
    return cupy


def describe(cp: Any) -> dict[str, Any]:
    """The device, its driver, and the commit and versions that the figures depend on."""
    found = cp.cuda.runtime.getDeviceProperties(0)
    return {
        "date": date.today().isoformat(),
        "commit": commit(),
        "device": found["name"].decode(),
        "compute_capability": f"{found['major']}.{found['minor']}",
        "multiprocessors": int(found["multiProcessorCount"]),
        "l2_bytes": int(found["l2CacheSize"]),
        "memory_bytes": int(found["totalGlobalMem"]),
        "driver_api": cp.cuda.runtime.driverGetVersion(),
        "cuda_runtime": cp.cuda.runtime.runtimeGetVersion(),
    } | harness.versions()


def commit() -> str:
    """The commit that is checked out, "unknown" for a copy without Git's history."""
    command = ["git", "-C", str(harness.RESULTS), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def copy_bandwidth(cp: Any, rounds: int = 20) -> float:
    """Bytes a second of a device-to-device copy, read and written bytes both counted."""
    n = min(COPIED, int(cp.cuda.runtime.memGetInfo()[0]) // 4)
    source, target = (cp.empty(n // 4, dtype=cp.float32) for _ in "ab")
    source[...] = cp.random.default_rng(0).standard_normal(n // 4, dtype=cp.float32)
    times = [_burst(cp, lambda i: cp.copyto(target, source), 1, i) for i in range(rounds + 3)][3:]
    return 2 * source.nbytes / statistics.median(times)


def alternate(
    cp: Any,
    runs: dict[str, Callable[[int], Any]],
    *,
    rounds: int = 15,
    burst: int = 20,
    seconds: float = 5.0,
) -> dict[str, dict[str, float]]:
    """Microseconds a call of each function: bursts of calls take turns, the first three dropped.

    A function that has taken `seconds` gets no more turns, once two of its bursts are timed.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    spent = dict.fromkeys(runs, 0.0)
    for turn in range(rounds + 3):
        for name, run in runs.items():
            if spent[name] > seconds and len(times[name]) > 1:
                continue
            calls = getattr(run, "calls", 1)  # of one replay of a graph
            bursts = max(1, burst // calls)
            took = _burst(cp, run, bursts, turn)
            spent[name] += took
            if turn >= 3:  # compilation, clocks, the allocator
                times[name].append(took / (bursts * calls) * 1e6)
    found = {}
    for name, values in times.items():
        low, mid, high = statistics.quantiles(values, n=4)
        found[name] = {"median_us": mid, "q1_us": low, "q3_us": high, "bursts": len(values)}
    return found


def _burst(cp: Any, run: Callable[[int], Any], calls: int, turn: int) -> float:
    begin, end = cp.cuda.Event(), cp.cuda.Event()
    begin.record()
    for i in range(calls):
        run(turn * calls + i)
    end.record()
    end.synchronize()
    return cp.cuda.get_elapsed_time(begin, end) / 1e3  # type: ignore[no-any-return]


class Launches:
    """Launches that were made beforehand, a list for each set of inputs."""

    def __init__(self, launches: list[Any]) -> None:
        self.launches = launches

    def __call__(self, i: int) -> None:
        from kvlib.kernels.launch import run

        for launch in self.launches[i % len(self.launches)]:
            run(launch)


class Graph:
    """`calls` calls of a function, recorded once: a replay is one launch from Python.

    The function may launch kernels on CuPy's current stream and nothing that waits for them. What
    it launches them on must be its own: a graph knows addresses, and keeps only the function.
    """

    def __init__(self, cp: Any, run: Callable[[int], Any], calls: int) -> None:
        self.calls, self.run, stream = calls, run, cp.cuda.Stream(non_blocking=True)
        cp.cuda.Device().synchronize()
        with stream:
            for i in range(calls):  # compiled, and memory for results in the stream's pool
                run(i)
            stream.synchronize()
            stream.begin_capture(cp.cuda.runtime.streamCaptureModeRelaxed)
            for i in range(calls):
                run(i)
            self._graph = stream.end_capture()

    def __call__(self, i: int) -> None:
        self._graph.launch()


class TorchGraph:
    """The same of PyTorch's calls, which keep their memory in a pool of the graph's own."""

    def __init__(self, torch: Any, run: Callable[[int], Any], calls: int) -> None:
        self.calls, self._graph = calls, torch.cuda.CUDAGraph()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            run(0)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(self._graph):
            for i in range(calls):
                run(i)

    def __call__(self, i: int) -> None:
        self._graph.replay()


def sets_for(cp: Any, bytes_of_one: int) -> int:
    """Sets of inputs, two at least: together eight times the second-level cache."""
    l2 = int(cp.cuda.runtime.getDeviceProperties(0)["l2CacheSize"])
    return max(2, min(32, -(-8 * l2 // max(1, bytes_of_one))))


def torch_or_none() -> Any:
    """PyTorch on this device, or None."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def as_torch(torch: Any, cp: Any, x: Any) -> Any:
    """The same memory as a PyTorch tensor; uint16 as bfloat16."""
    if x.dtype == cp.uint16:
        return torch.from_dlpack(x.view(cp.int16)).view(torch.bfloat16)
    return torch.from_dlpack(x)


def line(runs: dict[str, dict[str, float]]) -> str:
    """Times and shares of the copy bandwidth, where they are known, for a reader."""
    shares = {n: f" ({t['share']:.0%})" if "share" in t else "" for n, t in runs.items()}
    return "; ".join(f"{n} {t['median_us']:.1f} us{shares[n]}" for n, t in runs.items())


def save(name: str, results: dict[str, Any], cp: Any) -> None:
    """Write what is measured so far, with the device it was measured on."""
    harness.save(name, results, of=describe(cp))
