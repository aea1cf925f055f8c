// A block of attention of many query tokens in float32: prefill_tiles.cuh without tensor cores, which
// have no float32.
//
// The same tiles and the same grid; four lanes have a row. Lane c of a row scores keys c, c + 4, ... of
// a tile, the weights meet in shared memory, and then it sums a quarter of the channels.
#pragma once
#include "places.cuh"
#include "rules.cuh"
#include "state.cuh"

static const int THREADS = 128, ROWS = THREADS / 4;

template <int D, typename Rule>
__device__ __forceinline__ void attend_float_tile(
    float* __restrict__ out, float* __restrict__ lse, float* __restrict__ part_out, float* __restrict__ part_lse,
    const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v,
    const int* __restrict__ block_table, const int* __restrict__ seq_lens, const int* __restrict__ qo_indptr,
    int table_width, int block_size, int block_shift, int num_kv_heads, int groups, int window,
    float scale, float softcap, Rule rule)
{
    const int KEYS = D > 128 ? 16 : 32;
    const int STRIDE = D + 4;  // 16 bytes more, and lanes that read rows side by side meet no bank twice
    const Item item = rule.item();
    const int b = item.request, kv_head = blockIdx.y;
    const int token0 = load(qo_indptr + b), n = load(qo_indptr + b + 1) - token0;
    const int rows = n * groups, first_row = blockIdx.x * ROWS;
    if (first_row >= rows) return;
    const int count = rule.count(b, n), skip = count - n;
    const int len = load(seq_lens + b), start = len - count;
    const Table table = {block_table + (i64)b * table_width, block_size, block_shift, num_kv_heads};
    const int r = threadIdx.x / 4, c = threadIdx.x % 4, row = first_row + r;
    const i64 at = (i64)(token0 + row / groups) * num_kv_heads * groups + kv_head * groups + row % groups;

    DYNAMIC_SHARED(float, shared);
    float* shared_k = shared;
    float* shared_v = shared_k + KEYS * STRIDE;
    float* shared_q = shared_v + KEYS * STRIDE;
    float* shared_p = shared_q + ROWS * STRIDE;
    for (int i = c; i < D / 4; i += 4) {
        float4 x = {0.0f, 0.0f, 0.0f, 0.0f};
        if (row < rows) x = load((const float4*)(q + at * D) + i);
        *(float4*)(shared_q + r * STRIDE + i * 4) = x;
    }

    const int token = rule.token(row / groups, skip, n), oldest = start + rule.oldest(skip + first_row / groups);
    int last = start + skip + (min(rows, first_row + ROWS) - 1) / groups;
    const int low = window > 0 ? max(0, oldest - window + 1) : 0;
    int begin = low / KEYS * KEYS;
    if constexpr (Rule::tree()) {  // this split's tiles of keys
        const int tiles = last / KEYS + 1 - begin / KEYS, each = (tiles + item.splits - 1) / item.splits;
        begin += item.split * each * KEYS;
        last = min(last, begin + each * KEYS - 1);
    }
    float m = -infinity(), l = 0.0f, o[D / 4];
#pragma unroll
    for (int i = 0; i < D / 4; i++) o[i] = 0.0f;

    for (int first = begin; first <= last; first += KEYS) {
        __syncthreads();
        for (int i = threadIdx.x; i < KEYS * (D / 4); i += THREADS) {
            const int j = first + i / (D / 4), d = i % (D / 4);
            float4 key = {0.0f, 0.0f, 0.0f, 0.0f}, value = key;
            if (j >= low && j <= last) {
                const i64 from = table.entry(j, kv_head) * (D / 4) + d;
                key = load((const float4*)k + from);
                value = load((const float4*)v + from);
            }
            *(float4*)(shared_k + i / (D / 4) * STRIDE + d * 4) = key;
            *(float4*)(shared_v + i / (D / 4) * STRIDE + d * 4) = value;
        }
        __syncthreads();
        if constexpr (Rule::tree())
            if (first_row + threadIdx.x / 32 * 8 >= rows) continue;  // a warp without rows

        float s[KEYS / 4], top = m;
#pragma unroll
        for (int t = 0; t < KEYS / 4; t++) s[t] = 0.0f;
        for (int d = 0; d < D; d += 4) {
            const float4 x = *(const float4*)(shared_q + r * STRIDE + d);
#pragma unroll
            for (int t = 0; t < KEYS / 4; t++) {
                const float4 y = *(const float4*)(shared_k + (4 * t + c) * STRIDE + d);
                s[t] += x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;
            }
        }
        u32 mask = ~0u;  // of the tile's keys that the row sees, a bit each
        if (first + KEYS - 1 > oldest || window > 0) mask = (u32)rule.seen(token, first, start, window) >> c;
#pragma unroll
        for (int t = 0; t < KEYS / 4; t++) {
            float x = s[t] * scale;
            if (softcap > 0.0f) x = softcap * tanhf(x / softcap);
            s[t] = mask >> 4 * t & 1u ? x : -infinity();
            top = fmaxf(top, s[t]);
        }
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        const float safe = top == -infinity() ? 0.0f : top, shrink = exp2_fast(m - safe);
        m = top;
        l *= shrink;
#pragma unroll
        for (int t = 0; t < KEYS / 4; t++) {
            const float p = exp2_fast(s[t] - safe);
            l += p;
            shared_p[r * (KEYS + 1) + 4 * t + c] = p;
        }
#pragma unroll
        for (int i = 0; i < D / 4; i++) o[i] *= shrink;
        __syncwarp();  // a row's four lanes are in one warp
        for (int j = 0; j < KEYS; j++) {
            const float p = shared_p[r * (KEYS + 1) + j];
#pragma unroll
            for (int i = 0; i < D / 16; i++) {
                const float4 y = *(const float4*)(shared_v + j * STRIDE + (4 * i + c) * 4);
                o[4 * i] += p * y.x;
                o[4 * i + 1] += p * y.y;
                o[4 * i + 2] += p * y.z;
                o[4 * i + 3] += p * y.w;
            }
        }
    }

    l += __shfl_xor_sync(0xffffffffu, l, 1);
    l += __shfl_xor_sync(0xffffffffu, l, 2);
    if (row >= rows) return;
    const float share = l > 0.0f ? 1.0f / l : 0.0f;
    if constexpr (Rule::tree())
        if (item.part >= 0) {  // a token's parts lie one behind the other
            const i64 part = (i64)(item.part + row / groups * item.splits) * num_kv_heads * groups + kv_head * groups + row % groups;
#pragma unroll
            for (int i = 0; i < D / 16; i++)
                store((float4*)(part_out + part * D + (4 * i + c) * 4),
                      float4{o[4 * i] * share, o[4 * i + 1] * share, o[4 * i + 2] * share, o[4 * i + 3] * share});
            if (c == 0) store(part_lse + part, log_sum_exp(m, l));
            return;
        }
#pragma unroll
    for (int i = 0; i < D / 16; i++)
        store((float4*)(out + at * D + (4 * i + c) * 4),
              float4{o[4 * i] * share, o[4 * i + 1] * share, o[4 * i + 2] * share, o[4 * i + 3] * share});
    if (c == 0) store(lse + at, log_sum_exp(m, l));
}
