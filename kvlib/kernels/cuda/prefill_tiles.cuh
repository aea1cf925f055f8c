// A block of attention of many query tokens, on tensor cores (FlashAttention-2, arXiv:2307.08691).
//
// The rows of a kv head are its query heads of all tokens, token by token, so that keys are read once
// for all of them. Grid (tiles of ROWS rows, kv heads, requests or work items). A warp has BANDS bands of
// 16 rows, and walks with the others over tiles of KEYS keys, which all warps share. While they multiply
// one tile, the next STAGES − 1 are copied. Scores never leave registers: what the first product sums in
// is what the second takes in.
#pragma once
#include "pairs.cuh"
#include "rules.cuh"
#include "state.cuh"

template <int D, int BANDS, int WARPS, int KEYS, int STAGES> struct Tiles {
    static const int THREADS = 32 * WARPS, ROWS = 16 * BANDS * WARPS;
    static const int ROW = 2 * D, SIZE = KEYS * ROW;       // bytes of a row, and of a tile of keys
    static const int CHUNKS = D / 8;                       // of 16 bytes, in a row
    static const int LANES = D > 128 ? 32 : D > 64 ? 16 : 8;  // that copy a row
    static const bool IN_REGISTERS = BANDS == 1 && D <= 128;  // the queries, if there is room
    static const int BLOCKS = WARPS > 4 ? 1 : D <= 128 && BANDS == 1 ? 3 : 2;  // that should fit a multiprocessor
    static_assert(KEYS <= 64, "a bit of 64 for each key");
    static_assert(!IN_REGISTERS || ROWS <= 2 * KEYS, "queries pass through the last stage");

    // The byte at which 16 bytes of a row are in shared memory: CLASS neighbouring chunks change places by
    // the row, so that the same chunk of eight rows is in eight places that differ in banks.
    static const int CLASS = CHUNKS % 8 ? 4 : 8;
    static __device__ __forceinline__ int place(int row, int chunk) {
        const int turn = CHUNKS % 8 ? row / 2 : row;
        return row * ROW + chunk / CLASS * CLASS * 16 + (chunk ^ turn) % CLASS * 16;
    }
};

// A row's maximum follows its scores only where they exceed it by more than this: its weights are then
// at most 2^8, and sums are seldom rescaled.
static const float SLACK = 8.0f;

// The arguments are those of prefill.cu; part_out and part_lse hold what is to be merged, if anything.
template <typename T, int D, int BANDS, int WARPS, int KEYS, int STAGES, typename Rule>
__device__ __forceinline__ void attend_tile(
    T* __restrict__ out, float* __restrict__ lse, float* __restrict__ part_out, float* __restrict__ part_lse,
    const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
    const int* __restrict__ block_table, const int* __restrict__ seq_lens, const int* __restrict__ qo_indptr,
    int table_width, int block_size, int block_shift, int num_kv_heads, int groups, int window,
    float scale, float softcap, Rule rule)
{
    typedef Tiles<D, BANDS, WARPS, KEYS, STAGES> S;
    const Item item = rule.item();
    const int b = item.request, kv_head = blockIdx.y;
    const int token0 = load(qo_indptr + b), n = load(qo_indptr + b + 1) - token0, len = load(seq_lens + b);
    const int rows = n * groups, count = rule.count(b, n), skip = count - n;  // new tokens; those before the first row
    const int start = len - count;
    const int first_row = (gridDim.x - 1 - blockIdx.x) * S::ROWS;  // the last rows see most keys: they start first
    if (first_row >= rows) return;  // the grid is as wide as the longest request
    const int num_qo_heads = num_kv_heads * groups;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int own_row = first_row + warp * 16 * BANDS;  // this warp's first

    DYNAMIC_SHARED(char, shared);  // stages of keys and values, then the queries
    char* shared_q = shared + 2 * S::SIZE * (S::IN_REGISTERS ? STAGES - 1 : STAGES);
    const u32 chunk = threadIdx.x % S::LANES, turn = threadIdx.x / S::LANES;  // what this thread copies
    const int TURNS = S::THREADS / S::LANES;

    // Row r of the request: token r / groups, query head r % groups of this kv head.
    for (int r = turn; r < S::ROWS && chunk < S::CHUNKS; r += TURNS) {
        const int row = min(first_row + r, rows - 1);
        const i64 at = (i64)(token0 + row / groups) * num_qo_heads + kv_head * groups + row % groups;
        copy_async(shared_q + S::place(r, chunk), q + at * D + chunk * 8, first_row + r < rows);
    }
    commit_copies();

    // The keys that some row of the block sees.
    int last = start + skip + (min(rows, first_row + S::ROWS) - 1) / groups;
    const int oldest = start + rule.oldest(skip + first_row / groups);
    const int low = window > 0 ? max(0, oldest - window + 1) : 0;
    int begin = low / KEYS * KEYS;
    if constexpr (Rule::tree()) {  // this split's tiles of keys
        const int tiles = last / KEYS + 1 - begin / KEYS, each = (tiles + item.splits - 1) / item.splits;
        begin += item.split * each * KEYS;
        last = min(last, begin + each * KEYS - 1);
    }

    // Start to copy the tile from key `first` on; keys that nobody sees are zeros, for 0 · NaN is NaN. An
    // entry, D numbers, is counted in 32 bits.
    const int* table = block_table + (i64)b * table_width;
    const u32 stride = num_kv_heads * block_size, head = kv_head * block_size, slots = (1u << block_shift) - 1u;
    const T* own_k = k + chunk * 8;
    const T* own_v = v + chunk * 8;
    const auto entry = [&](u32 key) { return load(table + (key >> block_shift)) * stride + head + (key & slots); };
    const auto fetch = [&](int first, int stage) {
        const auto copy = [&](int r, u64 from, bool seen) {
            char* to = shared + stage + S::place(turn + r % 8, chunk) + r / 8 * 8 * S::ROW;
            copy_async(to, own_k + from, seen);
            copy_async(to + S::SIZE, own_v + from, seen);
        };
        if (first > last || chunk >= S::CHUNKS) {
        } else if (first >= low && first + KEYS <= last + 1 && (first & slots) + KEYS <= (u32)block_size) {
            const u64 from = (u64)(entry(first) + turn) * D;  // all keys are in one block, and each is seen
#pragma unroll
            for (int r = 0; r < KEYS; r += TURNS) copy(r, from + r * D, true);
        } else {
#pragma unroll
            for (int r = 0; r < KEYS; r += TURNS) {
                const bool seen = (u32)(first + turn + r - low) <= (u32)(last - low);
                copy(r, (u64)entry(seen ? first + turn + r : low) * D, seen);
            }
        }
        commit_copies();  // an empty group counts as well
    };
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) fetch(begin + i * KEYS, i * 2 * S::SIZE);

    // Where a lane finds its part of 16x16 numbers: the chunks of a class differ by an exclusive or, the rest
    // is added.
    const int PAIRS = S::CLASS / 2;
    int down[PAIRS], across[PAIRS];  // of keys; of queries and values
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        down[i] = S::place(lane % 8 + lane / 16 * 8, 2 * i + lane / 8 % 2);
        across[i] = S::place(lane % 16, 2 * i + lane / 16);
    }
    const char* own_q = shared_q + warp * 16 * BANDS * S::ROW;

    u32 queries[S::IN_REGISTERS ? D / 16 : 1][4];
    if constexpr (S::IN_REGISTERS) {
        wait_for_copies<STAGES - 1>();
        __syncthreads();
#pragma unroll
        for (int c = 0; c < D / 16; c++)
            load_tiles(queries[c], own_q + across[c % PAIRS] + c / PAIRS * S::CLASS * 16);
    }

    float m[BANDS][2], l[BANDS][2], o[BANDS][D / 8][4];
#pragma unroll
    for (int a = 0; a < BANDS; a++) {
        m[a][0] = m[a][1] = -infinity();
        l[a][0] = l[a][1] = 0.0f;
#pragma unroll
        for (int i = 0; i < D / 8; i++) o[a][i][0] = o[a][i][1] = o[a][i][2] = o[a][i][3] = 0.0f;
    }
    const float factor = softcap > 0.0f ? 1.0f : scale;  // of a score on its way to the exponential

    int stage = 0;
    for (int first = begin; first <= last; first += KEYS) {
        wait_for_copies<STAGES - 2>();
        __syncthreads();  // the tile is there for all warps, and the one before it is read
        const char* keys = shared + stage;
        const char* values = keys + S::SIZE;
        const int newest = (STAGES - 1) * 2 * S::SIZE;
        fetch(first + (STAGES - 1) * KEYS, stage ? stage - 2 * S::SIZE : newest);
        stage = stage == newest ? 0 : stage + 2 * S::SIZE;
        if (own_row >= rows) continue;  // a small tree leaves warps without rows

        float s[BANDS][KEYS / 8][4];
#pragma unroll
        for (int a = 0; a < BANDS; a++)
#pragma unroll
            for (int t = 0; t < KEYS / 8; t++) s[a][t][0] = s[a][t][1] = s[a][t][2] = s[a][t][3] = 0.0f;
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
            u32 own[BANDS][4];
#pragma unroll
            for (int a = 0; a < BANDS; a++)
                if constexpr (S::IN_REGISTERS)
                    for (int i = 0; i < 4; i++) own[a][i] = queries[c][i];
                else
                    load_tiles(own[a], own_q + a * 16 * S::ROW + across[c % PAIRS] + c / PAIRS * S::CLASS * 16);
#pragma unroll
            for (int t = 0; t < KEYS / 16; t++) {
                u32 x[4];  // keys 16t ... 16t + 15, channels 16c ... 16c + 15
                load_tiles(x, keys + t * 16 * S::ROW + down[c % PAIRS] + c / PAIRS * S::CLASS * 16);
#pragma unroll
                for (int a = 0; a < BANDS; a++) {
                    multiply_add<T>(s[a][2 * t], own[a], x);
                    multiply_add<T>(s[a][2 * t + 1], own[a], x + 2);
                }
            }
        }

        if (softcap > 0.0f)
#pragma unroll
            for (int a = 0; a < BANDS; a++)
#pragma unroll
                for (int t = 0; t < KEYS / 8; t++)
#pragma unroll
                    for (int i = 0; i < 4; i++) s[a][t][i] = softcap * tanhf(s[a][t][i] * scale / softcap);
        const bool whole = first + KEYS - 1 <= oldest && first >= low && (window == 0 || last - first < window);
        if (!whole)  // hide what a row may not see: bit j of its mask is key first + j
#pragma unroll
            for (int a = 0; a < BANDS; a++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int row = own_row + a * 16 + half * 8 + lane / 4;
                    const u64 mask = rule.seen(rule.token(row / groups, skip, n), first, start, window) >> lane % 4 * 2;
#pragma unroll
                    for (int t = 0; t < KEYS / 8; t++)
#pragma unroll
                        for (int i = 0; i < 2; i++)
                            if (!(mask >> (t * 8 + i) & 1u)) s[a][t][2 * half + i] = -infinity();
                }

        // The online softmax of two rows a lane and band, in units of log2.
        float shrink[BANDS][2], offset[BANDS][2];
        bool moved = false;
#pragma unroll
        for (int a = 0; a < BANDS; a++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float top = -infinity();
#pragma unroll
                for (int t = 0; t < KEYS / 8; t++) top = fmaxf(top, fmaxf(s[a][t][2 * half], s[a][t][2 * half + 1]));
                top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));  // four lanes have a row
                top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2)) * factor;
                const float before = m[a][half];
                m[a][half] = top > before + SLACK ? top : before;
                moved |= m[a][half] != before;
                offset[a][half] = m[a][half] == -infinity() ? 0.0f : -m[a][half];
                shrink[a][half] = exp2_fast(before + offset[a][half]);
            }
        if (__any_sync(0xffffffffu, moved))
#pragma unroll
            for (int a = 0; a < BANDS; a++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    l[a][half] *= shrink[a][half];  // this lane's share: lanes add up at the end
#pragma unroll
                    for (int i = 0; i < D / 8; i++) {
                        o[a][i][2 * half] *= shrink[a][half];
                        o[a][i][2 * half + 1] *= shrink[a][half];
                    }
                }

#pragma unroll
        for (int t = 0; t < KEYS / 16; t++) {
            u32 p[BANDS][4];
#pragma unroll
            for (int a = 0; a < BANDS; a++)
#pragma unroll
                for (int i = 0; i < 4; i++) {  // keys 16t + 8 · (i / 2) ..., row half i % 2
                    const float* x = s[a][2 * t + i / 2] + i % 2 * 2;
                    const float w0 = exp2_fast(x[0] * factor + offset[a][i % 2]), w1 = exp2_fast(x[1] * factor + offset[a][i % 2]);
                    l[a][i % 2] += w0 + w1;
                    p[a][i] = rounded_pair<T>(w0, w1);
                }
#pragma unroll
            for (int i = 0; i < D / 16; i++) {
                u32 x[4];  // values 16t ... 16t + 15, channels 16i ... 16i + 15
                load_tiles_transposed(x, values + t * 16 * S::ROW + across[i % PAIRS] + i / PAIRS * S::CLASS * 16);
#pragma unroll
                for (int a = 0; a < BANDS; a++) {
                    multiply_add<T>(o[a][2 * i], p[a], x);
                    multiply_add<T>(o[a][2 * i + 1], p[a], x + 2);
                }
            }
        }
    }
    let_next_start();

#pragma unroll
    for (int a = 0; a < BANDS; a++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float total = l[a][half];
            total += __shfl_xor_sync(0xffffffffu, total, 1);
            total += __shfl_xor_sync(0xffffffffu, total, 2);
            const int row = own_row + a * 16 + half * 8 + lane / 4;
            if (row >= rows) continue;
            const i64 at = (i64)(token0 + row / groups) * num_qo_heads + kv_head * groups + row % groups;
            const float share = total > 0.0f ? 1.0f / total : 0.0f;
            if constexpr (Rule::tree())
                if (item.part >= 0) {  // the parts of a token follow each other
                    const i64 part = (i64)(item.part + row / groups * item.splits) * num_qo_heads + kv_head * groups + row % groups;
#pragma unroll
                    for (int i = 0; i < D / 8; i++)
                        store((float2*)(part_out + part * D + i * 8 + lane % 4 * 2),
                              float2{o[a][i][2 * half] * share, o[a][i][2 * half + 1] * share});
                    if (lane % 4 == 0) store(part_lse + part, log_sum_exp(m[a][half], total));
                    continue;
                }
#pragma unroll
            for (int i = 0; i < D / 8; i++)
                store((u32*)(out + at * D + i * 8 + lane % 4 * 2),
                      rounded_pair<T>(o[a][i][2 * half] * share, o[a][i][2 * half + 1] * share));
            if (lane % 4 == 0) store(lse + at, log_sum_exp(m[a][half], total));
        }
}
