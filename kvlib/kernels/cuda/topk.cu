// The k largest logits of each row, its maximum and its log-sum-exp, reading every logit once.
//
// Grid (splits, rows); a block takes one range of columns of one row, TILE logits at a time. Each thread
// keeps a maximum and a sum of its own (online softmax, arXiv:1805.02867). Against the k best there is
// one number to compare with, the floor: a logit below it can be dropped, and nearly all are. What
// passes goes into a buffer in shared memory, and only when that may overflow are the best k of it
// selected and the floor raised. The first floor is free of charge: the k-th largest of the threads'
// own maxima over the first tile cannot lie above the k-th largest logit.
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
};

__device__ __forceinline__ Total total_of_block(Total t, float* shared, float scale) {
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        const float m = __shfl_xor_sync(0xffffffffu, t.m, offset);
        const float sum = __shfl_xor_sync(0xffffffffu, t.sum, offset);
        t.merge(m, sum, scale);
    }
    if (threadIdx.x % 32 == 0) {
        shared[threadIdx.x / 32] = t.m;
        shared[WARPS + threadIdx.x / 32] = t.sum;
    }
    __syncthreads();
    t.m = shared[0];
    t.sum = shared[WARPS];
    for (int w = 1; w < WARPS; w++) t.merge(shared[w], shared[WARPS + w], scale);
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

template <typename T>
__global__ void __launch_bounds__(THREADS, 4) topk(
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
    static const int COUNT = Vector<T>::COUNT, VECTORS = ITEMS / COUNT;
    DYNAMIC_SHARED(u64, shared);
    const Buffer b(shared);
    float* warps = (float*)(shared + BUFFER_WORDS);
    const i64 rows = gridDim.y, row = blockIdx.y;
    const Range<T> range(logits, row, vocabulary, blockIdx.x * each, each);

    if (threadIdx.x == 0) *b.count = 0;
    __syncthreads();
    u64 floor = NO_KEY;
    float bar = -infinity();  // the floor's logit: the one number that most logits are compared with
    Total t = {-infinity(), 0.0f};

    for (int first = 0; first < range.vectors; first += THREADS * VECTORS) {
        uint4 raw[VECTORS];
        float x[ITEMS];
        if (range.inside(first, THREADS * VECTORS)) {
#pragma unroll
            for (int v = 0; v < VECTORS; v++) raw[v] = load(range.source + first + v * THREADS + threadIdx.x);
#pragma unroll
            for (int v = 0; v < VECTORS; v++) Vector<T>::unpack(raw[v], x + v * COUNT);
        } else {
#pragma unroll
            for (int v = 0; v < VECTORS; v++) raw[v] = range.fetch(first + v * THREADS + threadIdx.x);
#pragma unroll
            for (int v = 0; v < VECTORS; v++)
                range.unpack(raw[v], first + v * THREADS + threadIdx.x, x + v * COUNT);
        }
        float top = x[0];
#pragma unroll
        for (int i = 1; i < ITEMS; i++) top = fmaxf(top, x[i]);  // passes over NaN
        if (top > t.m) {
            t.sum *= exp2_fast((t.m - top) * scale);
            t.m = top;
        }
        const float safe = t.m == -infinity() ? 0.0f : t.m;  // −inf − −inf would be NaN
#pragma unroll
        for (int i = 0; i < ITEMS; i++) t.sum += exp2_fast((x[i] - safe) * scale);

        if (first == 0) {  // the first floor, from each thread's best
            u64 best = NO_KEY;
#pragma unroll
            for (int i = 0; i < ITEMS; i++) {
                const int column = range.column(i / COUNT * THREADS + threadIdx.x) + i % COUNT;
                if (range.holds(column)) best = max(best, key_of(x[i], column));
            }
            b.keys[threadIdx.x] = best;
            __syncthreads();
            floor = kth(b, THREADS, k, NO_KEY);
            bar = floor >> 32 ? value_of(floor) : -infinity();
            __syncthreads();
        }
        bool full = false;
        if (!(top < bar))  // also where all are NaN
#pragma unroll
            for (int i = 0; i < ITEMS; i++) {
                if (x[i] < bar) continue;  // a comparison, where a key is a dozen instructions
                const int column = range.column(first + i / COUNT * THREADS + threadIdx.x) + i % COUNT;
                if (!range.holds(column)) continue;
                const u64 key = key_of(x[i], column);
                if (key >= floor && b.push(key) >= SPARE) full = true;
            }
        if (__syncthreads_or(full)) {
            floor = merge(b, k, floor);
            bar = floor >> 32 ? value_of(floor) : -infinity();
        }
    }
    merge(b, k, floor);
    t = total_of_block(t, warps, scale);
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
    if (threadIdx.x == 0) *b.count = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < splits * k; i += THREADS) {
        const u64 key = load(part_keys + ((i64)(i / k) * rows + row) * k + i % k);
        if (key != NO_KEY) b.push(key);
    }
    __syncthreads();
    merge(b, k, NO_KEY);
    Total t = {-infinity(), 0.0f};
    for (int s = 0; s < splits; s++)
        t.merge(load(part_totals + (i64)s * 2 * rows + row), load(part_totals + ((i64)s * 2 + 1) * rows + row), scale);
    write_row(b, k, row, t, scale, values, columns, totals, rows);
}
