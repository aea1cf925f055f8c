// Decode attention: one query token a request over all its keys.
//
// Grid (row tiles · kv heads, work items); a block takes one range of one request's keys for one kv
// head, and the query heads that share it. Within the block, LANES lanes hold one key between
// them, a vector each; each such group runs the online softmax (arXiv:2205.14135) over keys of its
// own, and nobody waits for anybody. The partial results merge three times: groups of a warp by
// shuffles, warps of a block in shared memory, splits of a request in `merge` (Flash-Decoding).
//
// Keys lie in blocks (block, kv head, position, D) found by a block table. block_shift is log2 of the
// block size; a dense cache is one block a request, of any size, with a shift of 31. Offsets are 64
// bits wide: 32 would overflow at 4 GiB of bfloat16.
//
// The number type of keys is the template's; that of queries and results is not, for they are touched
// once: `kind` 0 is float, 1 Half, 2 BFloat16. Codes, and most of 16-bit numbers, go to tensor cores
// (decode_tensor.cu), by the same arguments.
#include "layouts.cuh"
#include "parts.cuh"
#include "state.cuh"
#include "work.cuh"

template <typename T, typename L, int G, int D>
__device__ __forceinline__ void load_queries(
    const void* q, i64 row0, int rows, int lane, bool active, float scale, float (&query)[G][L::PER_LANE])
{
#pragma unroll
    for (int g = 0; g < G; g++)
#pragma unroll
        for (int i = 0; i < L::PER_LANE; i++)
            query[g][i] = active && g < rows ? load_float((const T*)q + (row0 + g) * D + L::channel(lane, i)) * scale : 0.0f;
}

template <typename Codec, int D, int G>
__global__ void __launch_bounds__(THREADS) decode(
    void* __restrict__ out,          // (B, Hq, D)
    float* __restrict__ lse,         // (B, Hq)
    float* __restrict__ part_out,    // (parts, Hq, D), what is to be merged; or null
    float* __restrict__ part_lse,    // (parts, Hq)
    int* __restrict__ finished,      // (B, Hkv) zeros: rows of parts that are written; or null
    const void* __restrict__ q,      // (B, Hq, D)
    const void* __restrict__ k_codes, const void* __restrict__ k_scales, const void* __restrict__ k_zeros,
    const void* __restrict__ v_codes, const void* __restrict__ v_scales, const void* __restrict__ v_zeros,
    const int* __restrict__ block_table,  // (B, table_width)
    const int* __restrict__ seq_lens,     // (B,)
    const int* __restrict__ behind,       // (B,) tokens that follow these keys and lie elsewhere, or null
    const void* __restrict__ items,       // (items, 4): request, split, splits, part; or null
    const int* __restrict__ first_part,   // (B + 1,) each request's first part; null: `even` each
    int table_width, int block_size, int block_shift, int num_kv_heads, int groups, int window,
    int k_shift, int v_shift,        // log2 of what shares a scale: decode_tensor.cu
    int kind,                        // of the numbers of q and out
    int even,                        // splits of each request where there is no list of items
    float scale,                     // sm_scale · log2 e
    float softcap)                   // times log2 e; 0: none
{
    let_next_start();
    wait_for_previous();
    typedef Layout<Codec, D> L;
    const Item item = item_of(items, blockIdx.y, even);
    const int b = item.request, split = item.split, splits = item.splits;
    const int tiles = (groups + G - 1) / G;
    const int kv_head = blockIdx.x / tiles, first_row = blockIdx.x % tiles * G;
    const int rows = min(G, groups - first_row);
    const int num_qo_heads = num_kv_heads * groups;
    const int lane = threadIdx.x % L::LANES, group = threadIdx.x / L::LANES;
    const bool active = lane < L::VECTORS;

    // This block's keys.
    const int len = load_fresh(seq_lens + b);
    const int past = window > 0 && behind ? load_fresh(behind + b) : 0;
    const int low = window > 0 ? max(0, len + past - window) : 0;  // beyond len: no keys, begin > end
    const int each = (len - low + splits - 1) / splits;
    const int begin = min(len, low + split * each), end = min(len, begin + each);

    float query[G][L::PER_LANE];
    const i64 row0 = (i64)b * num_qo_heads + kv_head * groups + first_row;
    if (kind == 0) load_queries<float, L, G, D>(q, row0, rows, lane, active, scale, query);
    else if (kind == 1) load_queries<Half, L, G, D>(q, row0, rows, lane, active, scale, query);
    else load_queries<BFloat16, L, G, D>(q, row0, rows, lane, active, scale, query);

    float m[G], l[G], o[G][L::PER_LANE];
#pragma unroll
    for (int g = 0; g < G; g++) {
        m[g] = -infinity();
        l[g] = 0.0f;
#pragma unroll
        for (int i = 0; i < L::PER_LANE; i++) o[g][i] = 0.0f;
    }

    const int* table = block_table + (i64)b * table_width;
    for (int first = begin; first < end; first += L::GROUPS * UNROLL) {
        Raw<L> keys[UNROLL], values[UNROLL];
        Place place[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {  // every load of this step is on its way before one is used
            const int j = first + u * L::GROUPS + group;  // groups of lanes take turns
            place[u].valid = j < end;
            if (place[u].valid) {
                const i64 block = load_fresh(table + (j >> block_shift));
                const int at = j & (int)((1u << block_shift) - 1u);
                place[u].entry = (block * num_kv_heads + kv_head) * block_size + at;
            }
            keys[u].fetch(k_codes, place[u], lane, active);
            values[u].fetch(v_codes, place[u], lane, active);
        }
        float s[UNROLL][G];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            float x[L::PER_LANE];
            keys[u].unpack(x);
#pragma unroll
            for (int g = 0; g < G; g++) {
                float sum = 0.0f;
#pragma unroll
                for (int i = 0; i < L::PER_LANE; i++) sum += query[g][i] * x[i];
#pragma unroll
                for (int offset = L::LANES / 2; offset > 0; offset /= 2)
                    sum += __shfl_xor_sync(0xffffffffu, sum, offset);
                if (softcap > 0.0f) sum = softcap * tanhf(sum / softcap);
                s[u][g] = place[u].valid ? sum : -infinity();
            }
        }
#pragma unroll
        for (int g = 0; g < G; g++) {
            float top = m[g];
#pragma unroll
            for (int u = 0; u < UNROLL; u++) top = fmaxf(top, s[u][g]);
            const float safe = top == -infinity() ? 0.0f : top;
            const float shrink = exp2_fast(m[g] - safe);
            m[g] = top;
            l[g] *= shrink;
#pragma unroll
            for (int i = 0; i < L::PER_LANE; i++) o[g][i] *= shrink;
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                s[u][g] = exp2_fast(s[u][g] - safe);
                l[g] += s[u][g];
            }
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            float x[L::PER_LANE];
            values[u].unpack(x);
#pragma unroll
            for (int g = 0; g < G; g++)
#pragma unroll
                for (int i = 0; i < L::PER_LANE; i++) o[g][i] += s[u][g] * x[i];
        }
    }

    // Groups of one warp.
#pragma unroll
    for (int offset = L::LANES; offset < 32; offset *= 2)
#pragma unroll
        for (int g = 0; g < G; g++) {
            float mine, other;
            const float m_other = __shfl_xor_sync(0xffffffffu, m[g], offset);
            const float l_other = __shfl_xor_sync(0xffffffffu, l[g], offset);
            m[g] = merged_maximum(m[g], m_other, &mine, &other);
            l[g] = l[g] * mine + l_other * other;
#pragma unroll
            for (int i = 0; i < L::PER_LANE; i++)
                o[g][i] = o[g][i] * mine + __shfl_xor_sync(0xffffffffu, o[g][i], offset) * other;
        }

    // Warps of the block: (WARPS, G, D) values, then (WARPS, G) maxima and sums.
    DYNAMIC_SHARED(float, shared);
    float* shared_m = shared + WARPS * G * D;
    float* shared_l = shared_m + WARPS * G;
    const int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 < L::LANES && active)
#pragma unroll
        for (int g = 0; g < G; g++)
#pragma unroll
            for (int i = 0; i < L::PER_LANE; i++)
                shared[(warp * G + g) * D + L::channel(lane, i)] = o[g][i];
    if (threadIdx.x % 32 == 0)
#pragma unroll
        for (int g = 0; g < G; g++) {
            shared_m[warp * G + g] = m[g];
            shared_l[warp * G + g] = l[g];
        }
    __syncthreads();

    for (int i = threadIdx.x; i < rows * D; i += THREADS) {
        const int g = i / D, d = i % D;
        float top = -infinity(), total = 0.0f, sum = 0.0f;
        for (int w = 0; w < WARPS; w++) top = fmaxf(top, shared_m[w * G + g]);
        const float safe = top == -infinity() ? 0.0f : top;
        for (int w = 0; w < WARPS; w++) {
            const float factor = exp2_fast(shared_m[w * G + g] - safe);
            total += shared_l[w * G + g] * factor;
            sum += shared[(w * G + g) * D + d] * factor;
        }
        const float result = total > 0.0f ? sum / total : 0.0f;
        const i64 row = row0 + g;
        if (item.part < 0) {
            store_any(out, row * D + d, result, kind);
            if (d == 0) store(lse + row, log_sum_exp(top, total));
        } else {
            const i64 part = row + (i64)(item.part - b) * num_qo_heads;
            store(part_out + part * D + d, result);
            if (d == 0) store(part_lse + part, log_sum_exp(top, total));
        }
    }
    if (item.part < 0) return;

    const int from = first_part ? load(first_part + b) : b * even;
    const int parts = first_part ? load(first_part + b + 1) - from : even;
    if (!last_to_finish(finished + b * num_kv_heads + kv_head, rows, parts * groups)) return;
    for (int head = kv_head * groups + warp; head < (kv_head + 1) * groups; head += WARPS)
        merge_row<4>(out, lse, part_out, part_lse, (i64)b * num_qo_heads + head, (i64)from * num_qo_heads + head,
                  num_qo_heads, parts, D, kind);
}

// Parts of rows that another kernel has written: grid (rows / WARPS), a warp a row. first (rows' requests
// + 1,): a request's first part, and no parts where its blocks have written the result; null: `even` each.
__global__ void __launch_bounds__(THREADS) merge(
    void* __restrict__ out, float* __restrict__ lse, const float* __restrict__ part_out,
    const float* __restrict__ part_lse, const int* __restrict__ first, int num_rows, int even,
    int num_qo_heads, int dim, int kind)
{
    const int row = blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= num_rows) return;
    const int b = row / num_qo_heads;
    const int begin = first ? load(first + b) : b * even;
    const int parts = first ? load(first + b + 1) - begin : even;
    if (parts > 0)
        merge_row<4>(out, lse, part_out, part_lse, row, (i64)begin * num_qo_heads + row % num_qo_heads, num_qo_heads, parts, dim, kind);
}
