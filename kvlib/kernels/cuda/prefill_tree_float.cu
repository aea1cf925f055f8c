// A few new tokens of each request over many keys in float32: prefill_tree.cu without tensor cores, with
// the same arguments.
#include "prefill_float_tiles.cuh"

template <int D>
__global__ void __launch_bounds__(THREADS) prefill_tree_float(
    float* __restrict__ out, float* __restrict__ lse, float* __restrict__ part_out, float* __restrict__ part_lse,
    const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v,
    const int* __restrict__ block_table, const int* __restrict__ seq_lens, const int* __restrict__ qo_indptr,
    const u32* __restrict__ bits, const int* __restrict__ depths, const int* __restrict__ trees,
    const void* __restrict__ items,
    int table_width, int block_size, int block_shift, int num_kv_heads, int groups, int window,
    int words, float scale, float softcap)
{
    attend_float_tile<D>(out, lse, part_out, part_lse, q, k, v, block_table, seq_lens, qo_indptr,
                         table_width, block_size, block_shift, num_kv_heads, groups, window, scale, softcap,
                         Tree{bits, depths, trees, items, words, -1});
}
