"""A GPU by its maker's figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvlib.costs.codecs import codec
from kvlib.costs.rows import Row, Value, row_of
from kvlib.costs.units import Bytes, BytesPerSecond, FlopsPerByte, FlopsPerSecond

_GPU_KEYS = {
    "memory": "memory_GB",
    "usable": "usable_MiB",
    "bandwidth": "bandwidth_GB_per_s",
    "bf16": "bf16_TFLOP_per_s",
    "fp8": "fp8_TFLOP_per_s",
    "l2": "l2_MiB",
    "shared_memory_per_sm": "shared_memory_per_sm_KiB",
}


@dataclass(frozen=True)
class Gpu:
    """A GPU by its maker's figures (dense operations), and what its driver leaves to programs.

    bf16, fp8: operations per second of the matrix units, None if there are none. ``memory`` is
    the size on the data sheet (GB = 10^9), ``usable`` what the driver reports.

    >>> from kvlib.costs import GPUS
    >>> round(GPUS["h100-sxm"].ridge().value)
    295
    """

    name: str
    title: str
    memory: Bytes
    usable: Bytes
    bandwidth: BytesPerSecond
    bf16: FlopsPerSecond
    fp8: FlopsPerSecond | None
    l2: Bytes
    shared_memory_per_sm: Bytes
    row: Row

    def ridge(self, dtype: str = "bf16") -> FlopsPerByte:
        """Operations per byte above which a kernel is bound by arithmetic, and not by memory.

        This is the roofline's ridge point, Williams et al., doi:10.1145/1498765.1498785.
        dtype: bf16 (float16 runs as fast) or fp8.
        """
        kind = {"bfloat16": "bf16", "float16": "bf16", "fp8": "fp8"}.get(codec(dtype).name)
        rate = getattr(self, kind) if kind else None
        if rate is None:
            rates = "bf16 or fp8" if self.fp8 else "bf16"
            raise ValueError(f"{self.title} has no rate for {dtype!r}, needed: {rates}")
        return rate / self.bandwidth

    def value(self, name: str) -> Value:
        """The figure as its source states it: ``value("bandwidth")`` in GB/s, ``value("bf16")``
        in TFLOP/s, ``value("usable")`` in MiB; or by its key in gpus.toml, which names the unit."""
        return self.row.value(_GPU_KEYS.get(name, name))

    @property
    def facts(self) -> dict[str, Any]:
        """Plain numbers in bytes and operations per second, as the explorers take them."""
        return {
            "name": self.name,
            "title": self.title,
            "memory": self.memory.value,
            "usable": self.usable.value,
            "bandwidth": self.bandwidth.value,
            "bf16": self.bf16.value,
            "fp8": self.fp8.value if self.fp8 else 0,
        }

    def __repr__(self) -> str:
        fp8 = f"{self.fp8:.0f TFLOP/s}" if self.fp8 else "none"
        return (
            f"{self.title}: {self.memory:.0f GB} ({self.usable:.2f GiB} usable), "
            f"{self.bandwidth:.2f TB/s}, bf16 {self.bf16:.0f TFLOP/s}, fp8 {fp8}, "
            f"ridge {self.ridge():.0f}"
        )


def gpu_of(key: str, entry: dict[str, Any]) -> Gpu:
    aside = ("title", "source", "sources", "unconfirmed")
    values = {name: value for name, value in entry.items() if name not in aside}
    fp8 = values["fp8_TFLOP_per_s"]
    return Gpu(
        name=key,
        title=entry["title"],
        memory=Bytes(values["memory_GB"] * 10**9),
        usable=Bytes(values["usable_MiB"] * 2**20),
        bandwidth=BytesPerSecond(values["bandwidth_GB_per_s"] * 10**9),
        bf16=FlopsPerSecond(_tera(values["bf16_TFLOP_per_s"])),
        fp8=FlopsPerSecond(_tera(fp8)) if fp8 else None,
        l2=Bytes(values["l2_MiB"] * 2**20),
        shared_memory_per_sm=Bytes(values["shared_memory_per_sm_KiB"] * 2**10),
        row=row_of(key, entry, values),
    )


def _tera(value: float) -> int:
    return round(value * 10) * 10**11  # 165.2 is not exact in binary


def rate(gpu: Gpu, kind: str) -> Any:
    """Operations a second of `gpu` in "bf16" or "fp8". Raises ValueError where it has none."""
    if kind not in ("bf16", "fp8"):
        raise ValueError(f"compute is {kind!r}, needed: 'bf16' or 'fp8'")
    found = getattr(gpu, kind)
    if found is None:
        raise ValueError(f"compute is {kind!r}, but {gpu.title} has no {kind} products")
    return found
