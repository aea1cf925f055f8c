// A block of attention of many query tokens, on tensor cores (FlashAttention-2, arXiv:2307.08691).
//
// The rows of a kv head are its query heads of all tokens, token by token, so that keys are read once
// for all of them. Grid (tiles of ROWS rows, kv heads, requests or work items); a warp has 16 rows, and
// walks with the others over tiles of KEYS keys that all four warps share. Scores never leave
// registers: what the first product sums in is what the second takes in.
#pragma once
#include "places.cuh"
#include "rules.cuh"
#include "state.cuh"
#include "tensor.cuh"

static const int THREADS = 128, WARPS = THREADS / 32, ROWS = 16 * WARPS;

template <int D> struct Tiles {
    static const int KEYS = D > 128 ? 32 : 64;
    static const int STRIDE = D + 8;  // of a row in shared memory: 16 bytes more, and no bank serves two rows
    static const int SHARED = (ROWS + 2 * KEYS) * STRIDE * 2;
};

// The arguments are those of prefill.cu; part_out and part_lse hold what is to be merged, if anything.
template <typename T, int D, typename Rule>
__device__ __forceinline__ void attend_tile(
    T* __restrict__ out, float* __restrict__ lse, float* __restrict__ part_out, float* __restrict__ part_lse,
    const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
    const int* __restrict__ block_table, const int* __restrict__ seq_lens, const int* __restrict__ qo_indptr,
    int table_width, int block_size, int block_shift, int num_kv_heads, int groups, int window,
    float scale, float softcap, Rule rule)
{
    typedef Tiles<D> S;
    const Item item = rule.item();
    const int b = item.request, kv_head = blockIdx.y;
    const int token0 = load(qo_indptr + b), n = load(qo_indptr + b + 1) - token0;
    const int rows = n * groups, first_row = blockIdx.x * ROWS;
    if (first_row >= rows) return;  // the grid is as wide as the longest request
    const int count = rule.count(b, n), skip = count - n;  // new tokens, and those before the first row
    const int len = load(seq_lens + b), start = len - count;
    const Table table = {block_table + (i64)b * table_width, block_size, block_shift, num_kv_heads};
    const int num_qo_heads = num_kv_heads * groups;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    DYNAMIC_SHARED(u16, shared);
    u16* shared_q = shared;
    u16* shared_k = shared_q + ROWS * S::STRIDE;
    u16* shared_v = shared_k + S::KEYS * S::STRIDE;

    // Row r of the request: token r / groups, query head r % groups of this kv head.
    for (int i = threadIdx.x; i < ROWS * (D / 8); i += THREADS) {
        const int r = i / (D / 8), c = i % (D / 8), row = first_row + r;
        uint4 x = {0u, 0u, 0u, 0u};
        if (row < rows) {
            const i64 at = (i64)(token0 + row / groups) * num_qo_heads + kv_head * groups + row % groups;
            x = load((const uint4*)(q + at * D) + c);
        }
        *(uint4*)(shared_q + r * S::STRIDE + c * 8) = x;
    }

    // Positions of this lane's two rows, and the keys that some row of the block sees.
    const int row_a = first_row + warp * 16 + lane / 4, row_b = row_a + 8;
    const int position_a = start + rule.depth(rule.token(row_a / groups, skip, n));
    const int position_b = start + rule.depth(rule.token(row_b / groups, skip, n));
    int last = start + skip + (min(rows, first_row + ROWS) - 1) / groups;
    const int oldest = start + rule.oldest(skip + first_row / groups);
    const int low = window > 0 ? max(0, oldest - window + 1) : 0;
    int before = 0;  // keys of earlier splits
    if constexpr (Rule::tree()) {  // this split's tiles of keys
        const int tiles = last / S::KEYS + 1 - low / S::KEYS, each = (tiles + item.splits - 1) / item.splits;
        before = item.split * each * S::KEYS;
        last = min(last, (low / S::KEYS + (item.split + 1) * each) * S::KEYS - 1);
    }

    float m[2] = {-infinity(), -infinity()}, l[2] = {0.0f, 0.0f}, o[D / 8][4];
#pragma unroll
    for (int i = 0; i < D / 8; i++) o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0.0f;

    for (int first = low / S::KEYS * S::KEYS + before; first <= last; first += S::KEYS) {
        __syncthreads();  // the last tile is read, and the queries are written
        for (int i = threadIdx.x; i < S::KEYS * (D / 8); i += THREADS) {
            const int r = i / (D / 8), c = i % (D / 8), j = first + r;
            uint4 key = {0u, 0u, 0u, 0u}, value = {0u, 0u, 0u, 0u};  // 0 · NaN is NaN
            if (j >= low && j <= last) {
                const i64 at = table.entry(j, kv_head) * (D / 8) + c;
                key = load((const uint4*)k + at);
                value = load((const uint4*)v + at);
            }
            *(uint4*)(shared_k + r * S::STRIDE + c * 8) = key;
            *(uint4*)(shared_v + r * S::STRIDE + c * 8) = value;
        }
        __syncthreads();
        if constexpr (Rule::tree())
            if (first_row + warp * 16 >= rows) continue;  // a small tree leaves warps without rows

        float s[S::KEYS / 8][4];
#pragma unroll
        for (int t = 0; t < S::KEYS / 8; t++) s[t][0] = s[t][1] = s[t][2] = s[t][3] = 0.0f;
#pragma unroll
        for (int c = 0; c < D; c += 16) {
            u32 a[4];
            load_tiles(a, shared_q + (warp * 16 + lane % 16) * S::STRIDE + c + lane / 16 * 8);
#pragma unroll
            for (int t = 0; t < S::KEYS / 8; t += 2) {
                u32 x[4];  // keys 8t ... 8t + 15, channels c ... c + 15
                load_tiles(x, shared_k + (t * 8 + lane % 8 + lane / 16 * 8) * S::STRIDE + c + lane / 8 % 2 * 8);
                multiply_add<T>(s[t], a, x);
                multiply_add<T>(s[t + 1], a, x + 2);
            }
        }

        // Scale, hide what a row may not see, and the online softmax of two rows a lane.
        const bool whole = first + S::KEYS - 1 <= oldest && first >= low && (window == 0 || last - first < window);
        u32 mine = 0xffffffffu;  // of this lane's scores those that are seen, a bit each
        if constexpr (Rule::tree())
            if (!whole) {
                const int token_a = rule.token(row_a / groups, skip, n), token_b = rule.token(row_b / groups, skip, n);
                mine = 0u;
                for (int e = 0; e < S::KEYS / 2; e++) {
                    const int j = first + e / 4 * 8 + lane % 4 * 2 + e % 2, c = e % 4 < 2 ? token_a : token_b;
                    const int own = (e % 4 < 2 ? position_a : position_b) - start;
                    mine |= (u32)(j <= last && rule.sees(c, own, j, start, window)) << e;
                }
            }
#pragma unroll
        for (int t = 0; t < S::KEYS / 8; t++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float x = s[t][i] * scale;
                if (softcap > 0.0f) x = softcap * tanhf(x / softcap);
                const int j = first + t * 8 + lane % 4 * 2 + i % 2, p = i < 2 ? position_a : position_b;
                bool seen = whole || (j <= p && (window == 0 || p - j < window));
                if constexpr (Rule::tree()) seen = mine >> (t * 4 + i) & 1u;
                s[t][i] = seen ? x : -infinity();
            }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float top = m[half];
#pragma unroll
            for (int t = 0; t < S::KEYS / 8; t++) top = fmaxf(top, fmaxf(s[t][2 * half], s[t][2 * half + 1]));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));  // four lanes have a row
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
            const float safe = top == -infinity() ? 0.0f : top, shrink = exp2_fast(m[half] - safe);
            m[half] = top;
            l[half] *= shrink;  // this lane's share: lanes add up at the end
#pragma unroll
            for (int t = 0; t < S::KEYS / 8; t++)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    s[t][i] = exp2_fast(s[t][i] - safe);
                    l[half] += s[t][i];
                }
#pragma unroll
            for (int i = 0; i < D / 8; i++) {
                o[i][2 * half] *= shrink;
                o[i][2 * half + 1] *= shrink;
            }
        }

#pragma unroll
        for (int t = 0; t < S::KEYS / 8; t += 2) {
            const u32 p[4] = {pair_of<T>(s[t][0], s[t][1]), pair_of<T>(s[t][2], s[t][3]),
                              pair_of<T>(s[t + 1][0], s[t + 1][1]), pair_of<T>(s[t + 1][2], s[t + 1][3])};
#pragma unroll
            for (int i = 0; i < D / 8; i += 2) {
                u32 x[4];  // values 8t ... 8t + 15, channels 8i ... 8i + 15
                load_tiles_transposed(x, shared_v + (t * 8 + lane % 16) * S::STRIDE + i * 8 + lane / 16 * 8);
                multiply_add<T>(o[i], p, x);
                multiply_add<T>(o[i + 1], p, x + 2);
            }
        }
    }

#pragma unroll
    for (int half = 0; half < 2; half++) {
        float total = l[half];
        total += __shfl_xor_sync(0xffffffffu, total, 1);
        total += __shfl_xor_sync(0xffffffffu, total, 2);
        const int row = half ? row_b : row_a;
        if (row >= rows) continue;
        const i64 at = (i64)(token0 + row / groups) * num_qo_heads + kv_head * groups + row % groups;
        const float share = total > 0.0f ? 1.0f / total : 0.0f;
        if constexpr (Rule::tree())
            if (item.part >= 0) {  // a token's parts lie one behind the other
                const i64 part = (i64)(item.part + row / groups * item.splits) * num_qo_heads + kv_head * groups + row % groups;
#pragma unroll
                for (int i = 0; i < D / 8; i++)
                    store((float2*)(part_out + part * D + i * 8 + lane % 4 * 2),
                          float2{o[i][2 * half] * share, o[i][2 * half + 1] * share});
                if (lane % 4 == 0) store(part_lse + part, log_sum_exp(m[half], total));
                continue;
            }
#pragma unroll
        for (int i = 0; i < D / 8; i++)
            store((u32*)(out + at * D + i * 8 + lane % 4 * 2), pair_of<T>(o[i][2 * half] * share, o[i][2 * half + 1] * share));
        if (lane % 4 == 0) store(lse + at, log_sum_exp(m[half], total));
    }
}
