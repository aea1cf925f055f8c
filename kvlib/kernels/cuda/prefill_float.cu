// Attention of many query tokens in float32: prefill.cu without tensor cores, with the same arguments.
#include "prefill_float_tiles.cuh"

template <int D>
__global__ void __launch_bounds__(THREADS) prefill_float(
    float* __restrict__ out, float* __restrict__ lse, const float* __restrict__ q,
    const float* __restrict__ k, const float* __restrict__ v, const int* __restrict__ block_table,
    const int* __restrict__ seq_lens, const int* __restrict__ qo_indptr,
    int table_width, int block_size, int block_shift, int num_kv_heads, int groups, int window,
    float scale, float softcap)
{
    attend_float_tile<D>(out, lse, nullptr, nullptr, q, k, v, block_table, seq_lens, qo_indptr,
                         table_width, block_size, block_shift, num_kv_heads, groups, window, scale, softcap, Chain());
}
