"""Call a compiled kernel: in this process, or as a program, the other process of isolated.py."""

import ctypes
import os
import pickle
import sys
from typing import Any


class Array(ctypes.Structure):
    _fields_ = (
        ("begin", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("read", ctypes.c_uint64),
        ("written", ctypes.c_uint64),
    )


def call(
    run: Any, size: Any, cells: list[Any], arrays: list[tuple[Any, int]], first: int, stride: int
) -> tuple[int, str, tuple[int, int, int], list[int], list[int]]:
    """Status, words, counts, and bytes read and written of each array.
    size: grid, threads, shared   cells: arguments   arrays: address and bytes of each"""
    grid, threads, shared = size
    table = (Array * max(1, len(arrays)))(*(Array(at, n, 0, 0) for at, n in arrays))
    pointers = (ctypes.c_void_p * len(cells))(*(ctypes.addressof(c) for c in cells))
    counts, text = (ctypes.c_uint64 * 3)(), ctypes.create_string_buffer(512)
    status = run(
        (ctypes.c_uint32 * 3)(*grid), threads, ctypes.c_uint64(shared), pointers, table,
        len(arrays), first, stride, counts, text,
    )  # fmt: skip
    used = table[: len(arrays)]
    read, written = [a.read for a in used], [a.written for a in used]
    return status, text.value.decode(), (counts[0], counts[1], counts[2]), read, written


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the kernel prints must not get between
    job = pickle.load(sys.stdin.buffer)
    buffers, arrays = [], []
    cells: list[ctypes.Array[ctypes.c_char]] = []
    for x in job["args"]:
        kind, data, rest = ("none", b"", b"") if x is None else x
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
        pointer = bytes(ctypes.c_void_p(at)) + rest
        cells.append((ctypes.c_char * len(pointer)).from_buffer_copy(pointer))
    run = ctypes.CDLL(job["library"]).kvlib_run
    *results, written = call(run, job["launch"], cells, arrays, 0, 1)
    ctypes.CDLL(None).fflush(None)
    data = [
        ctypes.string_at(at, n) if changed else None
        for (at, n), changed in zip(arrays, written, strict=True)
    ]
    answers.write(pickle.dumps((*results, written, data)))
    answers.close()


if __name__ == "__main__":
    main()
