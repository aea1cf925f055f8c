"""The other process of isolated.py: loads a compiled kernel, runs it on copies, sends them back."""

from __future__ import annotations

import ctypes
import os
import pickle
import sys


class Array(ctypes.Structure):
    _fields_ = (
        ("begin", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("read", ctypes.c_uint64),
        ("written", ctypes.c_uint64),
    )


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the kernel prints must not get between
    job = pickle.load(sys.stdin.buffer)
    grid, threads, shared = job["launch"]
    buffers, arrays = [], []
    cells: list[ctypes.c_void_p | ctypes.Array[ctypes.c_char]] = []
    for x in job["args"]:
        kind, data = ("none", b"") if x is None else x
        if kind == "number":
            cells.append((ctypes.c_char * len(data)).from_buffer_copy(data))
            continue
        at = None
        if kind == "array":  # arrays begin at multiples of 256 bytes, as on a device
            room = ctypes.create_string_buffer(len(data) + 256)
            at = -(-ctypes.addressof(room) // 256) * 256
            ctypes.memmove(at, data, len(data))
            buffers.append(room)
            arrays.append((at, len(data)))
        cells.append(ctypes.c_void_p(at))
    table = (Array * max(1, len(arrays)))(*(Array(at, n, 0, 0) for at, n in arrays))
    pointers = (ctypes.c_void_p * len(cells))(*(ctypes.addressof(c) for c in cells))
    counts, text = (ctypes.c_uint64 * 3)(), ctypes.create_string_buffer(512)
    status = ctypes.CDLL(job["library"]).kvlib_run(
        (ctypes.c_uint32 * 3)(*grid), threads, ctypes.c_uint64(shared), pointers, table,
        len(arrays), 0, 1, counts, text,
    )  # fmt: skip
    ctypes.CDLL(None).fflush(None)
    used = table[: len(arrays)]
    data = [
        ctypes.string_at(at, n) if a.written else None
        for (at, n), a in zip(arrays, used, strict=True)
    ]
    found = (
        status, text.value.decode(), [*counts],
        [a.read for a in used], [a.written for a in used], data,
    )  # fmt: skip
    answers.write(pickle.dumps(found))
    answers.close()


if __name__ == "__main__":
    main()
