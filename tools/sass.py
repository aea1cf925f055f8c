"""Count the instructions of the main loop of a kernel, in its machine code; needs no GPU.

    pip install nvidia-cuda-nvdisasm
    python tools/sass.py    # the kernels below, into benchmarks/results/static_sass.json
    python tools/sass.py decode_tensor "decode_tensor<Int8, 128, 4>"   # one, with its instructions

A multiprocessor starts four instructions a clock, each for 32 lanes. What a turn of the loop takes,
over the bytes of keys and values that it reads, says how fast instructions alone would let a kernel
be; the memory says how fast its bytes would. The larger time is the floor. The way through the loop
is the shortest one that passes by the loads of 8 and 16 bytes: what is rare (a new maximum, a
softcap, blocks of less than 16 keys) is left out, and so are loads of 2 bytes that a branch guards.
The clock is an assumption, bandwidths are the vendor's.
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import json
import re
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "static_sass.json"
sys.path.insert(0, str(ROOT))
CLOCK = 1.7e9  # of a multiprocessor, assumed
# Name, unit, kernel, keys of a warp's turn, bytes of one kv head's key and value with their scales.
KERNELS = (
    ("bfloat16, without tensor cores", "decode", "decode<Plain<BFloat16>, 128, 4>", 8, 512),
    ("bfloat16", "decode_tensor", "decode_tensor<Numbers<BFloat16>, 128, 4>", 16, 512),
    ("int8", "decode_tensor", "decode_tensor<Int8, 128, 4>", 32, 264),
    ("fp8 e4m3", "decode_tensor", "decode_tensor<E4M3, 128, 4>", 32, 256),
    ("int4, groups of 32", "decode_tensor", "decode_tensor<Kivi<4>, 128, 4>", 32, 160),
    ("int2, groups of 32", "decode_tensor", "decode_tensor<Kivi<2>, 128, 4>", 32, 96),
)
GPUS = ("h100-sxm", "h200-sxm")
LABEL, LINE = re.compile(r"^\s*(\.L_\w+):"), re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(.*?);")
TARGET = re.compile(r"`\((\.L_\w+)\)")
WIDE = 12  # what passing by a load of 8 or 16 bytes is worth: more than its address takes


def disassembler() -> str:
    """Raises SystemExit with what to install."""
    found = shutil.which("nvdisasm")
    if found is None:
        try:
            files = metadata.files("nvidia-cuda-nvdisasm") or []
        except metadata.PackageNotFoundError:
            files = []
        found = next((str(f.locate()) for f in files if f.name == "nvdisasm"), None)
    if found is None:
        raise SystemExit("nvdisasm is missing. Run: pip install nvidia-cuda-nvdisasm")
    Path(found).chmod(0o755) if not shutil.which(found) else None
    return found


def machine_code(unit: str, name: str, capability: str = "90") -> str:
    """What nvdisasm prints of one kernel."""
    from kvlib.kernels.nvrtc import OPTIONS, library
    from kvlib.kernels.source import source

    nvrtc, program, size = library(), ctypes.c_void_p(), ctypes.c_size_t()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source(unit).encode(), b"k.cu", 0, None, None)
    nvrtc.nvrtcAddNameExpression(program, name.encode())
    options = [f"--gpu-architecture=sm_{capability}", *OPTIONS]
    array = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
    if nvrtc.nvrtcCompileProgram(program, len(options), array):
        raise SystemExit(f"{name} of {unit}.cu does not compile")
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    code = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetCUBIN(program, code)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code.raw[: size.value])
        file.flush()
        command = [disassembler(), "-c", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def parsed(text: str) -> tuple[list[str], dict[str, int]]:
    """Instructions, and where labels are."""
    found: list[str] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        if match := LABEL.match(line):
            labels[match[1]] = len(found)
        elif match := LINE.match(line):
            found.append(match[1].strip())
    return found, labels


def kind(instruction: str) -> str:
    return re.sub(r"^@!?U?P\w+\s+", "", instruction).split()[0]


def main_loop(code: list[str], labels: dict[str, int]) -> tuple[int, int]:
    """First and last instruction of the loop that multiplies most."""
    loops = []
    for i, x in enumerate(code):
        to = TARGET.search(x)
        if re.match(r"@\S+ BRA ", x) and to and labels.get(to[1], i + 1) <= i:  # others resume it
            begin = labels[to[1]]
            kinds = [kind(y)[:4] for y in code[begin : i + 1]]
            loops.append((kinds.count("HMMA"), kinds.count("FFMA"), begin, i))
    *_, begin, end = max(loops)
    return begin, end


def way(code: list[str], labels: dict[str, int], begin: int, end: int) -> list[str]:
    """Instructions of the shortest way through a loop, wide loads counted as gains."""
    cost = {begin: 0}
    before: dict[int, int] = {}
    for i in range(begin, end):  # branches inside lead forward
        if i not in cost:
            continue
        x, to = code[i], TARGET.search(code[i])
        after = [i + 1]
        if "BRA" in x and to and labels[to[1]] > i:
            after = [labels[to[1]], *([i + 1] if x.startswith("@") else [])]
        own = 1 - WIDE * bool(re.search(r"LDG\.E\.(64|128)", x))
        for j in after:
            if j <= end and cost[i] + own < cost.get(j, 1 << 30):
                cost[j], before[j] = cost[i] + own, i
    path = [end]
    while path[-1] != begin:
        path.append(before[path[-1]])
    return [code[i] for i in reversed(path)]


def counted(unit: str, name: str, keys: int, width: int) -> dict[str, Any]:
    """A turn's instructions by kind, and the times that they and the bytes would take."""
    from kvlib.costs import GPUS as KNOWN
    from kvlib.kernels.plans import blocks_that_fit
    from kvlib.kernels.results import registers_of

    code, labels = parsed(machine_code(unit, name))
    turn = way(code, labels, *main_loop(code, labels))
    kinds = collections.Counter(kind(x) for x in turn)
    registers, moved = registers_of(name) or 0, keys * width
    rows = 8 if unit == "decode_tensor" else 4
    found: dict[str, Any] = {
        "kernel": name,
        "registers": registers,
        "blocks_per_multiprocessor": blocks_that_fit(registers, 16 * rows * 130),
        "instructions": len(turn),
        "bytes": moved,
        "instructions_per_byte": len(turn) / moved,
        "loads": {k: n for k, n in kinds.items() if k.startswith("LDG")},
        "local_memory": sum(n for k, n in kinds.items() if k.startswith(("LDL", "STL"))),
        "kinds": dict(kinds.most_common(16)),
    }
    for gpu in GPUS:
        slots = 4 * 132 * CLOCK / KNOWN[gpu].bandwidth.value  # instructions a byte of memory's time
        found[f"issue_over_memory_{gpu}"] = len(turn) / moved / slots
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "unit", nargs="?", help="a file cuda/UNIT.cu (default: the kernels of the book)"
    )
    parser.add_argument("kernel", nargs="?", help="one kernel of it, shown with its instructions")
    args = parser.parse_args()
    if args.kernel:
        code, labels = parsed(machine_code(args.unit, args.kernel))
        print("\n".join(way(code, labels, *main_loop(code, labels))))
        return
    found = {}
    for title, unit, name, keys, width in KERNELS:
        found[title] = row = counted(unit, name, keys, width)
        shares = ", ".join(f"{row[f'issue_over_memory_{gpu}']:.2f} on {gpu}" for gpu in GPUS)
        print(f"{title}: {row['instructions']} instructions for {row['bytes']} bytes, "
              f"{row['registers']} registers; issue over memory {shares}")  # fmt: skip
    about = {
        "compiler": f"NVRTC {metadata.version('nvidia-cuda-nvrtc')}",
        "capability": "9.0",
        "clock_assumed": CLOCK,
        "bandwidth": "vendor's data sheet (kvlib.costs)",
    }
    RESULT.write_text(json.dumps({**about, "kernels": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
