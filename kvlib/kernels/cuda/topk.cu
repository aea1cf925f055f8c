// The k largest logits of each row, its maximum and its log-sum-exp.
//
// Grid (splits, rows); a block takes one range of columns of one row, a tile at a time. Each thread has
// a maximum and a sum of its own (online softmax, arXiv:1805.02867). A vector of 16 bytes is dropped if
// its largest logit isn't above the bar, and nearly all are. The numbers of the others wait in shared
// memory. When many wait, the vectors are read again, the best k of their logits are found, and the
// worst of those is the new bar. The first bar is the k-th best of the maxima of the first tile's vectors.
//
// Instructions per logit decide the speed. A float takes five: the maximum, minus, times, exponential,
// plus. A 16-bit number takes one more to unpack, and half of one for the maximum, in pairs. The
// exponential of a pair of 16-bit numbers would be one instruction, but is good to 2^-9 at best, and the
// sum of a row in which two or three logits decide would be as wrong.
#include "rows.cuh"
#include "select.cuh"

// A row's maximum m and its sum of exp2((x − m) · scale).
struct Total {
    float m, sum;

    __device__ __forceinline__ void merge(float other_m, float other_sum, float scale) {
        const float top = fmaxf(m, other_m), safe = top == -infinity() ? 0.0f : top;
        sum = sum * exp2_fast((m - safe) * scale) + other_sum * exp2_fast((other_m - safe) * scale);
        m = top;
    }
    // The lanes of a warp become one, neighbours first.
    __device__ __forceinline__ void over_lanes(float scale) {
#pragma unroll
        for (int offset = 1; offset < 32; offset *= 2) {
            const float other_m = __shfl_xor_sync(0xffffffffu, m, offset);
            merge(other_m, __shfl_xor_sync(0xffffffffu, sum, offset), scale);
        }
    }
};

// The total of the block, in its first warp.
__device__ __forceinline__ Total total_of_block(Total t, float2* shared, float scale) {
    t.over_lanes(scale);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = float2{t.m, t.sum};
    __syncthreads();
    if (threadIdx.x < 32) {
        const float2 of_warp = threadIdx.x < WARPS ? shared[threadIdx.x] : float2{-infinity(), 0.0f};
        t = {of_warp.x, of_warp.y};
        t.over_lanes(scale);
    }
    return t;
}

// n <= k keys at the buffer's front go out sorted; what is missing is (−inf, −1).
__device__ inline void write_row(
    const Buffer& b, int k, i64 row, const Total& t, float scale, float* __restrict__ values,
    int* __restrict__ columns, float* __restrict__ totals, i64 rows)
{
    const int n = *b.count;
    if (threadIdx.x < n) {
        const u64 key = b.keys[threadIdx.x];
        const int rank = rank_of(b, n, key);
        store(values + row * k + rank, value_of(key));
        store(columns + row * k + rank, column_of(key));
    }
    if (threadIdx.x == 0) {
        store(totals + row, t.m);
        store(totals + rows + row, t.sum);
        // scale · ln 2 is one over the temperature
        store(totals + 2 * rows + row, (t.m * scale + log2_fast(t.sum)) * 0.6931471805599453f);
    }
}

// The logits of the vectors that wait become keys, and those are cut down to between k and `most`.
// Returns the floor.
template <typename T>
__device__ inline u64 taken(const Buffer& b, const Range<T>& range, int k, int most, u64 floor) {
    const int n = min(WAITING, *b.waiting);
    if (threadIdx.x < n) {
        float x[Range<T>::COUNT];
        Vector<T>::unpack(range.fetch(b.numbers[threadIdx.x]), x);
        const int first = range.column(b.numbers[threadIdx.x]);
#pragma unroll
        for (int i = 0; i < Range<T>::COUNT; i++) {
            const u64 key = key_of(x[i], first + i);
            if (range.holds(first + i) && key >= floor) b.push(key);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) *b.waiting = 0;
    return cut(b, k, most, floor);
}

// VECTORS: 16 bytes each, of a thread and tile. BLOCKS: of a multiprocessor. The next tile is loaded into
// the registers of this one when its logits are summed.
template <typename T, int VECTORS, int BLOCKS>
__global__ void __launch_bounds__(THREADS, BLOCKS) topk(
    float* __restrict__ values,      // (rows, k), where splits == 1
    int* __restrict__ columns,       // (rows, k)
    float* __restrict__ totals,      // (3, rows): maximum, sum, log-sum-exp
    u64* __restrict__ part_keys,     // (splits, rows, k), else
    float* __restrict__ part_totals, // (splits, 2, rows)
    const T* __restrict__ logits,    // (rows, vocabulary), 16-byte aligned
    int vocabulary, int each,        // columns a split
    int k,
    float scale)                     // log2 e / temperature
{
    typedef Largest<T> L;
    static const int COUNT = Vector<T>::COUNT, STEP = THREADS * VECTORS;
    DYNAMIC_SHARED(u64, shared);
    const Buffer b(shared);
    const i64 rows = gridDim.y, row = blockIdx.y;
    const Range<T> range(logits, row, vocabulary, blockIdx.x * each, each);
    uint4 raw[VECTORS];
    const auto fetch = [&](int first) {
        if (range.inside(first, STEP)) {
#pragma unroll
            for (int v = 0; v < VECTORS; v++) raw[v] = load(range.source + first + v * THREADS + threadIdx.x);
        } else {
#pragma unroll
            for (int v = 0; v < VECTORS; v++) raw[v] = range.fetch(first + v * THREADS + threadIdx.x);
        }
    };
    fetch(0);
    u64 floor = NO_KEY;
    float bar = value_of(floor);  // NaN, which nothing is compared with
    Total t = {-infinity(), 0.0f};
    b.clear();
    const int most = k + k / 8 + 8;  // keys that are left by a cut
    for (int first = 0; first < range.vectors; first += STEP) {
        typename L::Most tops[VECTORS];
#pragma unroll
        for (int v = 0; v < VECTORS; v++) tops[v] = L::of(raw[v]);
        typename L::Most best = tops[0];
#pragma unroll
        for (int v = 1; v < VECTORS; v++) best = L::larger(best, tops[v]);
        const float top = L::value(best);  // NaN where all are
        if (top > t.m) {
            t.sum *= exp2_fast((t.m - top) * scale);
            t.m = top;
        }
        const float safe = t.m == -infinity() ? 0.0f : t.m;  // −inf − −inf would be NaN
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            float x[COUNT];
            Vector<T>::unpack(raw[v], x);
#pragma unroll
            for (int i = 0; i < COUNT; i++) t.sum += exp2_fast((x[i] - safe) * scale);
        }
        if (first + STEP < range.vectors) fetch(first + STEP);

        // Vectors with a logit that may be of the best k. In later tiles, what's equal to the bar isn't:
        // it has a later column than the k logits that aren't below the bar.
        u32 passing = 0;
        const auto may_pass = [&](u32 of) {  // not below the bar
            u32 found = 0;
#pragma unroll
            for (int v = 0; v < VECTORS; v++)
                if ((of >> v & 1) && !(L::value(tops[v]) < bar)) found |= 1u << v;
            return found;
        };
        if (first > 0) {
            if (!(top <= bar))
#pragma unroll
                for (int v = 0; v < VECTORS; v++)
                    if (!(L::value(tops[v]) <= bar)) passing |= 1u << v;
        } else {
#pragma unroll
            for (int v = 0; v < VECTORS; v++) b.keys[v * THREADS + threadIdx.x] = key_of(L::value(tops[v]), -1);
            __syncthreads();
            floor = raised(b, STEP, k, most, NO_KEY) >> 32 << 32;
            bar = value_of(floor);
            if (!(bar > -infinity())) bar = value_of(floor = NO_KEY);  // −inf beyond the range is nobody's
            passing = may_pass((1u << VECTORS) - 1);
        }
        for (;;) {
            const int wait = __popc(passing);
            int at = wait ? atomicAdd(b.waiting, wait) : 0;
            const bool many = at + wait >= FULL;
#pragma unroll
            for (int v = 0; v < VECTORS; v++)
                if ((passing >> v & 1) && at < WAITING) {  // else after the next cut
                    b.numbers[at++] = first + v * THREADS + threadIdx.x;
                    passing &= ~(1u << v);
                }
            if (!__syncthreads_or(many)) break;
            floor = taken(b, range, k, most, floor);
            bar = value_of(floor);
            passing = may_pass(passing);
        }
    }
    let_next_start();
    taken(b, range, k, k, floor);
    t = total_of_block(t, (float2*)b.bins, scale);
    if (gridDim.x == 1) {
        write_row(b, k, row, t, scale, values, columns, totals, rows);
        return;
    }
    const i64 part = (i64)blockIdx.x * rows + row;
    if (threadIdx.x < k) store(part_keys + part * k + threadIdx.x, (int)threadIdx.x < *b.count ? b.keys[threadIdx.x] : NO_KEY);
    if (threadIdx.x == 0) {
        store(part_totals + (i64)blockIdx.x * 2 * rows + row, t.m);
        store(part_totals + ((i64)blockIdx.x * 2 + 1) * rows + row, t.sum);
    }
}

// The splits of a row to one: grid (rows); splits · k keys fit the buffer.
__global__ void __launch_bounds__(THREADS) topk_merge(
    float* __restrict__ values, int* __restrict__ columns, float* __restrict__ totals,
    const u64* __restrict__ part_keys, const float* __restrict__ part_totals, int splits, int k, float scale)
{
    DYNAMIC_SHARED(u64, shared);
    const Buffer b(shared);
    const i64 rows = gridDim.x, row = blockIdx.x;
    b.clear();
    wait_for_previous();
    for (int i = threadIdx.x; i < splits * k; i += THREADS) {
        const u64 key = load_fresh(part_keys + ((i64)(i / k) * rows + row) * k + i % k);
        if (key != NO_KEY) b.push(key);
    }
    Total t = {-infinity(), 0.0f};
    if (threadIdx.x < 32) {
        for (int s = threadIdx.x; s < splits; s += 32)
            t.merge(load_fresh(part_totals + (i64)s * 2 * rows + row),
                    load_fresh(part_totals + ((i64)s * 2 + 1) * rows + row), scale);
        t.over_lanes(scale);
    }
    __syncthreads();
    cut(b, k, k, NO_KEY);
    write_row(b, k, row, t, scale, values, columns, totals, rows);
}
