"""Hand-written CUDA kernels, their twins in NumPy, and the ways to run them.

cuda/          CUDA C++ sources, self-contained: no headers of CUDA are needed
source         joins them; a `Kernel` is one instantiation of a template
plans          launch choices: splits, rows, shared memory; pure arithmetic
checks, types  which arrays are refused before a launch
decode, prefill, sample, layernorm    public functions: check, plan, launch
token          the small launches of a compiled decode step
caches         attention of a whole cache by the kernels
step, mirror   a whole decode step as one CUDA graph: launches of product, token and decode
twins/         each kernel in NumPy, block by block; tests compare the two
launch, engine run a `Launch` on a GPU (CuPy RawModule), on the processor, or as its twin
processor/     runs the same sources on the processor; every access is checked and counted
custom         your own kernel, as text; ways to read keys
nvrtc          compiles for GPUs that this machine lacks; reads registers and spills

    o = decode_attention(q, k, v, seq_lens, block_table)            # CuPy arrays: the device
    o = decode_attention(q, k, v, seq_lens, block_table)            # NumPy arrays: the twin
    o = decode_attention(..., run_on="processor")                   # NumPy: the CUDA source itself

`python -m kvlib.kernels` compiles every kernel and prints its registers and spills.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # each public name, once: see `kvlib.lazy`
    from kvlib.kernels.caches import Kernels as Kernels
    from kvlib.kernels.caches import use_kernels as use_kernels
    from kvlib.kernels.codes import Codes as Codes
    from kvlib.kernels.custom import read_keys as read_keys
    from kvlib.kernels.custom import run_cuda as run_cuda
    from kvlib.kernels.decode import decode_attention as decode_attention
    from kvlib.kernels.engine import watched as watched
    from kvlib.kernels.layernorm import layer_norm_backward as layer_norm_backward
    from kvlib.kernels.layernorm import layer_norm_forward as layer_norm_forward
    from kvlib.kernels.layernorm import rms_norm_backward as rms_norm_backward
    from kvlib.kernels.layernorm import rms_norm_forward as rms_norm_forward
    from kvlib.kernels.prefill import prefill_attention as prefill_attention
    from kvlib.kernels.sample import sample_tokens as sample_tokens
    from kvlib.kernels.sample import softmax_topk as softmax_topk
    from kvlib.kernels.step import compile_step as compile_step
else:
    from kvlib.lazy import attach

    __getattr__, __dir__, __all__ = attach(__name__)
