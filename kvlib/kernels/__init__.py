"""Hand-written CUDA kernels, their twins in NumPy, and the ways to run them.

cuda/           CUDA C++ sources, self-contained (no headers of CUDA are needed)
source          joins them; `Kernel` names one instantiation of a template
plans           launch choices: splits, rows, shared memory; pure arithmetic
checks          what is refused before a launch
decode, ...     one file per public function: check, plan, launch
trees           which new tokens see which, for guesses that are a tree
twins/          each kernel again in NumPy, block by block: tests compare the two
device          runs a `Launch` on a graphics card (CuPy RawModule)
processor/      runs the same sources on the processor, every access checked and counted
own             a kernel of yours, as text
nvrtc           compiles for GPUs that this machine lacks; reads registers and spills

    o = decode_attention(q, k, v, seq_lens, block_table)            # CuPy arrays: the device
    o = decode_attention(q, k, v, seq_lens, block_table)            # NumPy arrays: the twin
    o = decode_attention(..., run_on="processor")                   # NumPy: the CUDA source itself

`python -m kvlib.kernels` compiles every kernel and prints its registers and spills.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvlib.kernels.cache_steps import decode_cache
    from kvlib.kernels.caches import Kernels, use_kernels
    from kvlib.kernels.codes import Codes
    from kvlib.kernels.decode import decode_attention
    from kvlib.kernels.engine import watched
    from kvlib.kernels.layernorm import (
        layer_norm_backward,
        layer_norm_forward,
        rms_norm_backward,
        rms_norm_forward,
    )
    from kvlib.kernels.loads import read_keys
    from kvlib.kernels.own import run_cuda
    from kvlib.kernels.prefill import prefill_attention
    from kvlib.kernels.sample import sample_tokens
    from kvlib.kernels.topk import softmax_topk

_HOME = {
    "Codes": "codes",
    "decode_cache": "cache_steps",
    "decode_attention": "decode",
    "prefill_attention": "prefill",
    "read_keys": "loads",
    "run_cuda": "own",
    "Kernels": "caches",
    "use_kernels": "caches",
    "watched": "engine",
    "sample_tokens": "sample",
    "softmax_topk": "topk",
    **dict.fromkeys(("layer_norm_backward", "layer_norm_forward"), "layernorm"),
    **dict.fromkeys(("rms_norm_backward", "rms_norm_forward"), "layernorm"),
}

__all__ = [
    "Kernels",
    "Codes",
    "decode_attention",
    "decode_cache",
    "layer_norm_backward",
    "layer_norm_forward",
    "prefill_attention",
    "read_keys",
    "rms_norm_backward",
    "rms_norm_forward",
    "run_cuda",
    "sample_tokens",
    "softmax_topk",
    "use_kernels",
    "watched",
]


if not TYPE_CHECKING:  # type checkers would take any name for one that is there

    def __getattr__(name: str) -> Any:
        if name in _HOME:
            from importlib import import_module

            return getattr(import_module(f"kvlib.kernels.{_HOME[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
