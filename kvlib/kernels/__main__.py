"""Compile every CUDA kernel, which needs no GPU, and print the registers and spills of each."""

import argparse
import json
import re
import sys
from importlib.metadata import version

from kvlib.commands import add_version, run
from kvlib.devices import trouble
from kvlib.kernels import custom, decode, layernorm, nvrtc, prefill, product, sample, token
from kvlib.kernels.results import STORED
from kvlib.kernels.source import ONLY, Kernel

MODULES = (decode, prefill, layernorm, sample, product, token, custom)
SPILLS = 64  # bytes per thread that a kernel may spill


def instantiations() -> list[Kernel]:
    """Every kernel there is: what CI compiles."""
    return [kernel for module in MODULES for kernel in module.instantiations()]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kvlib.kernels", description=__doc__)
    add_version(parser)
    parser.add_argument(
        "--unit",
        action="append",
        choices=sorted({k.unit for k in instantiations()}),
        metavar="UNIT",
        help="only the kernels of cuda/UNIT.cu (may be repeated)",
    )
    parser.add_argument(
        "--capability",
        action="append",
        choices=nvrtc.CAPABILITIES,
        help="only for this compute capability (may be repeated; default: all four)",
    )
    parser.add_argument(
        "--store", action="store_true", help="also write resources.json, which the book shows"
    )
    parser.add_argument(
        "--device",
        action="store_true",
        help="compile for the GPU of this machine; CuPy keeps the kernels on the disk",
    )
    args = parser.parse_args(argv)
    kernels = [k for k in instantiations() if not args.unit or k.unit in args.unit]
    capabilities = args.capability or nvrtc.CAPABILITIES
    if args.device and (words := trouble()):
        parser.exit(2, f"{parser.prog}: {words}\n")
    from tqdm import tqdm

    if args.device:
        from kvlib.kernels.launch import here, prepare

        capability = here().capability
        kernels = [k for k in kernels if ONLY.get(k.unit, capability) == capability]
        done = list(tqdm(prepare(kernels), total=len(kernels), unit="kernel"))
        print(f"{len(done)} kernels compiled for {here().name}")
        return 0
    total = sum(c in nvrtc.capabilities_of(k.unit) for k in kernels for c in capabilities)
    reports = list(tqdm(nvrtc.compile_all(kernels, capabilities), total=total, unit="kernel"))
    for r in reports:
        spills = f"{r.spills:>4} B spilled"
        print(f"{r.capability:>5} {r.registers:>4} registers {spills}  {r.kernel.name}")
    if args.store:
        STORED.write_text(as_json(reports), encoding="utf-8")
    over = [r for r in reports if r.spills > SPILLS]
    worst = max(reports, key=lambda r: r.spills, default=None)
    most = f" (at most {worst.spills})" if worst else ""
    print(f"{len(reports)} kernels compiled")
    print(f"{len(over)} of them spill more than {SPILLS} bytes per thread{most}")
    return 1 if over else 0


def as_json(reports: list[nvrtc.Resources]) -> str:
    """resources.json: the sources' fingerprints, and [registers, spills, stack] of each kernel."""
    by_capability: dict[str, dict[str, list[int]]] = {}
    order = {kernel: i for i, kernel in enumerate(instantiations())}
    for r in sorted(reports, key=lambda r: order[r.kernel]):
        kernels = by_capability.setdefault(r.capability, {})
        kernels[r.kernel.name] = [r.registers, r.spills, r.stack]
    document = {
        "compiler": f"NVRTC {version('nvidia-cuda-nvrtc')}",
        "sources": {
            unit: nvrtc.fingerprint(unit) for unit in sorted({r.kernel.unit for r in reports})
        },
        "capabilities": by_capability,
    }
    text = json.dumps(document, indent=1)
    return re.sub(r"\[\s+(\d+),\s+(\d+),\s+(\d+)\s+\]", r"[\1, \2, \3]", text) + "\n"


if __name__ == "__main__":
    sys.exit(run(main))
