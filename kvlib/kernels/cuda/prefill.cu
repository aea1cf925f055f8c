// Attention of many query tokens on tensor cores.
//
// Requests lie one behind the other, n tokens each, the last n of their seq_len positions: a whole
// prompt, a chunk of one, or a few guessed tokens. Each token sees itself and all tokens before it. Grid
// (tiles of ROWS rows, kv heads, requests).
#include "prefill_tiles.cuh"

template <typename T, int D, int BANDS, int WARPS, int KEYS, int STAGES>
__global__ void __launch_bounds__(32 * WARPS, Tiles<D, BANDS, WARPS, KEYS, STAGES>::BLOCKS) prefill(
    T* __restrict__ out,             // (tokens, Hq, D)
    float* __restrict__ lse,         // (tokens, Hq)
    const T* __restrict__ q,         // (tokens, Hq, D)
    const T* __restrict__ k, const T* __restrict__ v,  // (blocks, Hkv, block size, D)
    const int* __restrict__ block_table,  // (B, table_width)
    const int* __restrict__ seq_lens,     // (B,), new tokens included
    const int* __restrict__ qo_indptr,    // (B + 1,)
    int table_width, int block_size, int block_shift, int num_kv_heads, int groups, int window,
    float scale, float softcap)      // both times log2 e
{
    attend_tile<T, D, BANDS, WARPS, KEYS, STAGES>(out, lse, nullptr, nullptr, q, k, v, block_table, seq_lens, qo_indptr,
                      table_width, block_size, block_shift, num_kv_heads, groups, window, scale, softcap, Chain());
}
