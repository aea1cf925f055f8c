// The small kernels of a compiled decode step: embedding, RoPE with append, and the next token.
//
// A step has one token of each of R requests. What it reads besides weights, an earlier kernel of the step
// or of the step before wrote, so those loads are fresh. A row whose length is 0 has no request.
#include "encode.cuh"
#include "keys.cuh"

static const int THREADS = 256;       // of a block of `embed` and of `choose`
static const int MOST_THREADS = 512;  // of `append`
static const int PARTS = 2;           // vectors of a lane: heads have up to 256 numbers

// Row ids[r] of the table as float32. Grid (vectors of a row / 256, R).
template <typename T>
__global__ void __launch_bounds__(THREADS) embed(
    float* __restrict__ x,        // (R, hidden)
    const T* __restrict__ table,  // (V, hidden)
    const int* __restrict__ ids,  // (R,)
    int hidden)
{
    const int COUNT = Vector<T>::COUNT, vector = blockIdx.x * THREADS + threadIdx.x;
    let_next_start();
    wait_for_previous();
    if (vector * COUNT >= hidden) return;
    const i64 id = load_fresh(ids + blockIdx.y);
    float numbers[COUNT];
    Vector<T>::unpack(load((const uint4*)(table + id * hidden) + vector), numbers);
    float* out = x + (i64)blockIdx.y * hidden + vector * COUNT;
#pragma unroll
    for (int i = 0; i < COUNT; i += 4) Plain<float>::put(out, i / 4, numbers + i, 0.0f);
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}
// NaN if one of them is.
__device__ __forceinline__ float larger(float a, float b) { return b > a || b != b ? b : a; }

// Vector number `at` of a row of numbers that no kernel writes.
__device__ __forceinline__ void fetch(const float* row, int at, float* x) {
    Vector<float>::unpack(load((const uint4*)row + at), x);
}

// A lane's numbers of one head; of rotated ones also `other`, the numbers half a rotation away.
struct Head {
    float x[PARTS][4], other[PARTS][4];

    static __device__ __forceinline__ int vector(int p) { return threadIdx.x % 32 + 32 * p; }
    static __device__ __forceinline__ int other_vector(int p, int turned) {
        const int c = 4 * vector(p);
        return (c < turned / 2 ? c + turned / 2 : c - turned / 2) / 4;
    }
    template <typename F> __device__ __forceinline__ void each(int dim, int turned, F f) {
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            if (4 * vector(p) < dim) f(x[p], vector(p));
            if (4 * vector(p) < turned) f(other[p], other_vector(p, turned));
        }
    }
};

// The heads of qkv (R, Hq + 2 Hkv, D), a warp each: q and k are normalised (RMSNorm, where there are
// weights) and rotated (where there are tables), k and v are written where the newest token is stored.
// Grid (heads / warps of a block, R). The order of the arithmetic is that of kvlib/model/rope.py.
template <typename Codec>
__global__ void __launch_bounds__(MOST_THREADS) append(
    float* __restrict__ q,                                        // (R, Hq, D)
    void* __restrict__ k_codes, float* __restrict__ k_scales,     // (N, Hkv, P, ...); scales or null
    void* __restrict__ v_codes, float* __restrict__ v_scales,
    const float* __restrict__ qkv,
    const float* __restrict__ q_norm, const float* __restrict__ k_norm,  // (D,), or null
    const float* __restrict__ cosines, const float* __restrict__ sines,  // (positions, rotary), or null
    const int* __restrict__ positions,    // (R,)
    const int* __restrict__ lens,         // (R,) with the new token
    const int* __restrict__ block_table,  // (R, table_width)
    int table_width, int block_size, int block_shift, int num_qo_heads, int num_kv_heads, int dim,
    int rotary, float eps)
{
    const int row = blockIdx.y, head = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const int num_heads = num_qo_heads + 2 * num_kv_heads;
    const bool is_q = head < num_qo_heads, is_v = head >= num_qo_heads + num_kv_heads;
    const float* norm = is_v ? nullptr : is_q ? q_norm : k_norm;
    const int turned = is_v || !cosines ? 0 : rotary;
    let_next_start();
    Head h, w;
    if (norm) w.each(dim, turned, [&](float* x, int at) { fetch(norm, at, x); });
    wait_for_previous();
    if (head >= num_heads) return;  // whole warps

    // Every load is on its way before one is used.
    const int len = load_fresh(lens + row), position = load_fresh(positions + row);
    const uint4* source = (const uint4*)(qkv + ((i64)row * num_heads + head) * dim);
    h.each(dim, turned, [&](float* x, int at) { Vector<float>::unpack(load_fresh(source + at), x); });
    if (len == 0) return;
    const int j = len - 1, kv_head = (head - num_qo_heads) % num_kv_heads;
    i64 entry = 0;
    if (!is_q) {
        const i64 block = load_fresh(block_table + (i64)row * table_width + (j >> block_shift));
        entry = (block * num_kv_heads + kv_head) * block_size + (j & (int)((1u << block_shift) - 1u));
    }
    float cosine[PARTS][4], sine[PARTS][4];
#pragma unroll
    for (int p = 0; p < PARTS; p++)
        if (4 * Head::vector(p) < turned) {
            fetch(cosines + (i64)position * rotary, Head::vector(p), cosine[p]);
            fetch(sines + (i64)position * rotary, Head::vector(p), sine[p]);
        }

    if (norm) {
        float squares = 0.0f;
#pragma unroll
        for (int i = 0; i < 4 * PARTS; i++)
            if (4 * Head::vector(i / 4) < dim) squares += times(h.x[i / 4][i % 4], h.x[i / 4][i % 4]);
        const float root = sqrtf(warp_sum(squares) / dim + eps);
#pragma unroll
        for (int p = 0; p < PARTS; p++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (4 * Head::vector(p) < dim) h.x[p][i] = h.x[p][i] / root * w.x[p][i];
                if (4 * Head::vector(p) < turned) h.other[p][i] = h.other[p][i] / root * w.other[p][i];
            }
    }
#pragma unroll
    for (int p = 0; p < PARTS; p++)
        if (4 * Head::vector(p) < turned)
#pragma unroll
            for (int i = 0; i < 4; i++)
                h.x[p][i] = times(h.other[p][i], sine[p][i]) + times(h.x[p][i], cosine[p][i]);

    float scale = 1.0f;
    if constexpr (Codec::SCALED)
        if (!is_q) {
            float top = 0.0f;
#pragma unroll
            for (int i = 0; i < 4 * PARTS; i++)
                if (4 * Head::vector(i / 4) < dim) top = larger(top, fabsf(h.x[i / 4][i % 4]));
#pragma unroll
            for (int offset = 16; offset > 0; offset /= 2)
                top = larger(top, __shfl_xor_sync(0xffffffffu, top, offset));
            scale = Codec::scale_of(top);
            if (threadIdx.x % 32 == 0) store((is_v ? v_scales : k_scales) + entry, scale);
        }
#pragma unroll
    for (int p = 0; p < PARTS; p++)
        if (4 * Head::vector(p) < dim) {
            if (is_q) Plain<float>::put(q, ((i64)row * num_qo_heads + head) * dim / 4 + Head::vector(p), h.x[p], 0.0f);
            else Codec::put(is_v ? v_codes : k_codes, entry * dim / 4 + Head::vector(p), h.x[p], scale);
        }
}

// A logit and its column, as key_of has it, but NaN above +inf: a row with a NaN is found out by its best.
__device__ __forceinline__ u64 best_key(float x, int column) {
    return x != x ? 0xffffffff00000000ull | (u32)~(u32)column : key_of(x, column);
}
__device__ __forceinline__ u64 warp_best(u64 key) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) key = max(key, __shfl_xor_sync(0xffffffffu, key, offset));
    return key;
}

// The likeliest token of each row, and the state of the next step. Grid (parts of a row, R): a block takes
// `each` columns of a row, a multiple of 4, and the last block to finish does the rest. The host reads
// words: step number · 2^32 + whether no logit is finite and largest · 2^30 + token, all in one store.
__global__ void __launch_bounds__(THREADS) choose(
    int* __restrict__ ids, int* __restrict__ positions,  // (R,)
    int* __restrict__ lens,            // (groups, R)
    u64* __restrict__ words,           // (length, R)
    int* __restrict__ counter,         // (1,) steps so far
    u64* __restrict__ tops,            // (R,) zeros: best keys so far
    int* __restrict__ finished,        // (1,) zero: blocks
    const float* __restrict__ logits,  // (R, V)
    int vocabulary, int each, int groups, int length)
{
    DYNAMIC_SHARED(u64, of_warp);  // (8,)
    const int UNROLL = 4, rows = gridDim.y;
    let_next_start();
    wait_for_previous();
    const float* row = logits + (i64)blockIdx.y * vocabulary;
    const int begin = blockIdx.x * each, end = min(vocabulary, begin + each);
    // Vectors begin at multiples of 16 bytes: up to 3 columns before the first one.
    const int lead = (int)(((i64)blockIdx.y * vocabulary) % 4);
    const uint4* source = (const uint4*)(row - lead);
    u64 key = NO_KEY;
    for (int first = (begin + lead) / 4; 4 * first - lead < end; first += UNROLL * THREADS) {
        float x[UNROLL][4];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {  // every load is on its way before one is used
            const int vector = first + u * THREADS + threadIdx.x, column = 4 * vector - lead;
            if (column >= begin && column + 4 <= end) {
                Vector<float>::unpack(load_fresh(source + vector), x[u]);
            } else {
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (column + i >= begin && column + i < end) x[u][i] = load_fresh(row + column + i);
            }
        }
#pragma unroll
        for (int i = 0; i < 4 * UNROLL; i++) {
            const int column = 4 * (first + i / 4 * THREADS + (int)threadIdx.x) - lead + i % 4;
            if (column >= begin && column < end) key = max(key, best_key(x[i / 4][i % 4], column));
        }
    }
    key = warp_best(key);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = key;
    __syncthreads();
    if (threadIdx.x < 32) key = warp_best(threadIdx.x < THREADS / 32 ? of_warp[threadIdx.x] : NO_KEY);
    bool last = false;
    if (threadIdx.x == 0) {
        atomicMax(tops + blockIdx.y, key);
        __threadfence();
        last = atomicAdd(finished, 1) + 1 == (int)gridDim.x * rows;
    }
    if (!__syncthreads_or(last)) return;
    __threadfence();

    const int count = load_fresh(counter), r = threadIdx.x;  // a thread a row
    __syncthreads();
    if (r == 0) store(counter, count + 1), store(finished, 0);
    if (r >= rows) return;
    const u64 top = load_fresh(tops + r);
    const u32 order = (u32)(top >> 32), id = column_of(top);
    // −inf is below every finite number, +inf and NaN are above
    const u32 unfit = order > order_of(infinity()) ? 3 : order == order_of(infinity()) ? 2 : order <= order_of(-infinity());
    store(tops + r, NO_KEY);
    store(words + (i64)(count % length) * rows + r, (u64)(u32)(count + 1) << 32 | unfit << 30 | id);
    if (load_fresh(lens + r) == 0) return;
    store(ids + r, (int)id);
    store(positions + r, load_fresh(positions + r) + 1);
    for (int g = 0; g < groups; g++) store(lens + g * rows + r, load_fresh(lens + g * rows + r) + 1);
}
