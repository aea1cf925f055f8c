// Attention of a few new tokens of each request over many keys, on tensor cores: guessed tokens, which
// may be trees.
//
// As prefill.cu, but a new token sees of the new ones only itself and its ancestors, and the keys of a
// request are split between blocks: few rows make few blocks. Grid (tiles of ROWS rows, kv heads, work
// items). A tree of up to ROWS rows reads each key once per kv head, however many tokens it has.
// decode.cu merges the splits.
#include "prefill_tiles.cuh"

template <typename T, int D, int BANDS, int WARPS, int KEYS, int STAGES>
__global__ void __launch_bounds__(32 * WARPS, Tiles<D, BANDS, WARPS, KEYS, STAGES>::BLOCKS) prefill_tree(
    T* __restrict__ out, float* __restrict__ lse,  // (tokens, Hq, D), (tokens, Hq)
    float* __restrict__ part_out,    // (parts, Hq, D), what is to be merged; or null
    float* __restrict__ part_lse,    // (parts, Hq)
    const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
    const int* __restrict__ block_table, const int* __restrict__ seq_lens, const int* __restrict__ qo_indptr,
    const u32* __restrict__ bits,    // (N, words), these four as in rules.cuh
    const int* __restrict__ depths,  // (N,)
    const int* __restrict__ trees,   // (B, 2)
    const void* __restrict__ items,  // (items, 4)
    int table_width, int block_size, int block_shift, int num_kv_heads, int groups, int window,
    int words, float scale, float softcap)
{
    attend_tile<T, D, BANDS, WARPS, KEYS, STAGES>(out, lse, part_out, part_lse, q, k, v, block_table, seq_lens, qo_indptr,
                      table_width, block_size, block_shift, num_kv_heads, groups, window, scale, softcap,
                      Tree{bits, depths, trees, items, words, -1});
}
