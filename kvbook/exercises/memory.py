"""Checkers of the chapter on memory: bytes of windows here, bytes of a token in `memory_bytes`,
searching for the longest context and mending a calculator in `memory_fit`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kvbook.exercises.memory_bytes import check_token_bytes
from kvbook.exercises.memory_fit import check_context_that_fits, check_longest
from kvbook.exercises.received import whole_number
from kvbook.exercises.report import Finding, checker, expect_equal

__all__ = [
    "check_context_that_fits",
    "check_hybrid_bytes",
    "check_longest",
    "check_token_bytes",
]


@checker
def check_hybrid_bytes(hybrid_bytes: Any) -> Iterator[str]:
    """hybrid_bytes(windows, layer_bytes, seq_len) -> bytes; windows: None or W, layer by layer."""
    small = [4, None, 4, None, 6]
    for seq_len in (12, 8, 7, 6, 5, 4, 3, 1):  # faults look most alike in short texts
        _compare(hybrid_bytes, small, 10, seq_len, "windows of 4 and 6")
    yield "texts shorter than a window, exactly as long, one longer, and twice as long"
    _compare(hybrid_bytes, [None] * 3, 8, 100, "no window anywhere")
    _compare(hybrid_bytes, [16] * 3, 8, 100, "a window in every layer")
    yield "models whose layers are all alike"
    rng = np.random.default_rng(0)
    for _ in range(4):
        windows = [w if w < 40 else None for w in rng.integers(1, 80, 7).tolist()]
        layer, seq_len = rng.integers(1, 100, 2).tolist()
        _compare(hybrid_bytes, windows, layer, seq_len, f"windows {windows}")
    gemma = [None if (i + 1) % 6 == 0 else 1024 for i in range(62)]
    _compare(hybrid_bytes, gemma, 8192, 131_072, "Gemma-3-27B at 131,072 tokens")
    yield f"Gemma-3-27B at 131,072 tokens: {_hybrid(gemma, 8192, 131_072) / 2**30:.1f} GiB"
    oss = [128 if i % 2 == 0 else None for i in range(36)]
    _compare(hybrid_bytes, oss, 2048, 131_072, "gpt-oss-120b at 131,072 tokens")
    yield f"gpt-oss-120b at 131,072 tokens: {_hybrid(oss, 2048, 131_072) / 10**9:.2f} GB"


def _hybrid(windows: list[int | None], layer_bytes: int, seq_len: int, shift: int = 0) -> int:
    kept = [seq_len if w is None else min(seq_len, w + shift) for w in windows]
    return layer_bytes * sum(kept)


def _compare(hybrid_bytes: Any, windows: list[Any], layer: int, seq_len: int, what: str) -> None:
    got = whole_number(hybrid_bytes(list(windows), layer, seq_len), what)
    right = _hybrid(windows, layer, seq_len)
    sizes = [w for w in windows if w is not None] or [seq_len]
    suspects = {
        "every layer is counted in full, but a layer drops tokens that have left its window": (
            layer * seq_len * len(windows)
        ),
        "one layer's window was taken for all layers: look at each layer by itself": (
            layer * min(seq_len, min(sizes)) * len(windows)
        ),
        "your window leaves out the query's own token, but W includes it": (
            _hybrid(windows, layer, seq_len, -1)
        ),
        "you keep one token too many: W tokens are visible, the query's own included": (
            _hybrid(windows, layer, seq_len, 1)
        ),
        "a window of W is counted as W tokens even for a shorter text": (
            layer * sum(seq_len if w is None else w for w in windows)
        ),
        "layers without a window are left out, but None means that they keep everything": (
            layer * sum(min(seq_len, w) for w in windows if w is not None)
        ),
    }
    for words, wrong in suspects.items():
        if got == wrong != right:
            raise Finding(f"{what}, {seq_len} tokens: expected {right:,}, got {got:,}: {words}")
    expect_equal(got, right, f"{what}, {seq_len} tokens: bytes")
