// From logits to a token. Random bits are a function of (seed, stream, step), weights are integers
// (weights.cuh): a draw is decided by them alone, here and in NumPy.
//
// `draw` takes the candidates that topk.cu left. Where every token may be drawn (no top-k, no top-p),
// `masses` adds up weights, a chunk of columns a block, and `pick` finds the chunk and then the token.
#include "philox.cuh"
#include "rows.cuh"
#include "weights.cuh"

static const int THREADS = 256, WARPS = THREADS / 32;
static const int CHUNK = 16 * THREADS;  // columns a block of `masses`
static const int REFUSED = -1;          // the row's largest logit is no finite number, or one is NaN
static const int TOO_WIDE = -2;         // the nucleus reaches beyond the candidates

// The sum of x over the threads before this one; *total that of all. shared: WARPS words.
__device__ inline u64 sum_before(u64 x, u64* shared, u64* total) {
    u64 sum = x;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        const u64 below = __shfl_up_sync(0xffffffffu, sum, offset);
        if ((int)threadIdx.x % 32 >= offset) sum += below;
    }
    if (threadIdx.x % 32 == 31) shared[threadIdx.x / 32] = sum;
    __syncthreads();
    u64 before = 0;
    *total = 0;
    for (int w = 0; w < WARPS; w++) {
        if (w < (int)threadIdx.x / 32) before += shared[w];
        *total += shared[w];
    }
    __syncthreads();
    return before + sum - x;
}

// The bits that decide a row's draw: of the generator, or where there are no streams, as handed over.
__device__ __forceinline__ u64 bits_of_row(const u64* seeds, const u32* streams, u32 step, i64 row) {
    return streams ? random_bits(load(seeds + row), load(streams + row), step) : load(seeds + row);
}

__device__ __forceinline__ bool is_finite(float x) { return x - x == 0.0f; }

__global__ void __launch_bounds__(THREADS) draw(
    int* __restrict__ tokens,            // (rows,)
    const float* __restrict__ values,    // (rows, k) largest first
    const int* __restrict__ columns,     // (rows, k)
    const float* __restrict__ totals,    // (3, rows) of topk
    const u64* __restrict__ seeds,       // (rows,) or bits, where streams is null
    const u32* __restrict__ streams, u32 step,
    int k, float scale,
    u64 nucleus,                         // top_p in units of 2^-64; 0: none
    int whole)                           // the candidates are all there is, top_p is a share of them
{
    DYNAMIC_SHARED(u64, shared);
    const i64 row = blockIdx.x, rows = gridDim.x;
    const float maximum = load(totals + row), sum = load(totals + rows + row);
    if (!is_finite(maximum) || !is_finite(sum)) {  // the same for all threads
        if (threadIdx.x == 0) store(tokens + row, REFUSED);
        return;
    }
    u64* all = shared + WARPS;           // (THREADS,) weights
    int* places = (int*)(all + THREADS); // (THREADS,) their columns
    u64 weight = 0, total;
    const int column = threadIdx.x < k ? load(columns + row * k + threadIdx.x) : 0x7fffffff;
    if (threadIdx.x < k) weight = weight_of(load(values + row * k + threadIdx.x), maximum, scale);
    const u64 better = sum_before(weight, shared, &total);
    if (nucleus) {
        const u64 mass = whole ? total : (u64)(sum * (float)(1ull << WEIGHT_BITS));
        const u64 limit = __umul64hi(mass, nucleus);
        if (!whole && total < limit) {
            if (threadIdx.x == 0) store(tokens + row, TOO_WIDE);
            return;
        }
        // A token is kept where those before it have not reached the limit; the first always is.
        if (threadIdx.x > 0 && better >= limit) weight = 0;
        sum_before(weight, shared, &total);
    }
    all[threadIdx.x] = weight;
    places[threadIdx.x] = column;
    __syncthreads();
    // The draw runs through the tokens in order of their ids, as kvlib.sample does: the same bits give
    // the same token there.
    u64 before = 0;
    for (int i = 0; i < k; i++)
        if (places[i] < column) before += all[i];
    const u64 at = __umul64hi(bits_of_row(seeds, streams, step, row), total);
    if (before <= at && at < before + weight) store(tokens + row, column);
}

// Grid (chunks, rows): weights of CHUNK columns.
template <typename T>
__global__ void __launch_bounds__(THREADS) masses(
    u64* __restrict__ sums,              // (rows, chunks)
    const T* __restrict__ logits,        // (rows, vocabulary)
    const float* __restrict__ totals, int vocabulary, float scale)
{
    DYNAMIC_SHARED(u64, shared);
    const i64 row = blockIdx.y;
    const float maximum = load(totals + row);
    const Range<T> range(logits, row, vocabulary, blockIdx.x * CHUNK, CHUNK);
    u64 sum = 0, total;
    for (int at = threadIdx.x; at < range.vectors; at += THREADS) {
        float x[Range<T>::COUNT];
        Vector<T>::unpack(range.fetch(at), x);
#pragma unroll
        for (int i = 0; i < Range<T>::COUNT; i++) sum += weight_of(x[i], maximum, scale);
    }
    sum_before(sum, shared, &total);
    if (threadIdx.x == 0) store(sums + row * gridDim.x + blockIdx.x, total);
}

// Grid (rows): the chunk, the thread's columns of it, the token. At most THREADS chunks.
template <typename T>
__global__ void __launch_bounds__(THREADS) pick(
    int* __restrict__ tokens, const u64* __restrict__ sums, const T* __restrict__ logits,
    const float* __restrict__ totals, const u64* __restrict__ seeds, const u32* __restrict__ streams,
    u32 step, int vocabulary, int chunks, float scale)
{
    DYNAMIC_SHARED(u64, shared);
    const i64 row = blockIdx.x, rows = gridDim.x;
    const float maximum = load(totals + row);
    if (!is_finite(maximum) || !is_finite(load(totals + rows + row))) {
        if (threadIdx.x == 0) store(tokens + row, REFUSED);
        return;
    }
    u64 total;
    const u64 mass = threadIdx.x < chunks ? load(sums + row * chunks + threadIdx.x) : 0;
    u64 before = sum_before(mass, shared, &total);
    const u64 at = __umul64hi(bits_of_row(seeds, streams, step, row), total);
    if (before <= at && at < before + mass) {  // one thread
        shared[WARPS] = threadIdx.x;
        shared[WARPS + 1] = at - before;
    }
    __syncthreads();
    const int first = (int)shared[WARPS] * CHUNK + threadIdx.x * (CHUNK / THREADS);
    const u64 rest = shared[WARPS + 1];
    const T* source = logits + row * vocabulary;
    u64 sum = 0;
    for (int c = first; c < min(vocabulary, first + CHUNK / THREADS); c++)
        sum += weight_of(load_float(source + c), maximum, scale);
    before = sum_before(sum, shared, &total);
    if (before > rest || rest >= before + sum) return;
    for (int c = first; c < min(vocabulary, first + CHUNK / THREADS); c++) {
        before += weight_of(load_float(source + c), maximum, scale);
        if (rest < before) {
            store(tokens + row, c);
            return;
        }
    }
}

// The generator alone, for its known answers: (n, 4) counters, (n, 2) keys.
__global__ void __launch_bounds__(THREADS) philox_words(
    u32* __restrict__ out, const u32* __restrict__ counters, const u32* __restrict__ keys, int n)
{
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= n) return;
    const uint4 words = philox(uint4{load(counters + 4 * i), load(counters + 4 * i + 1),
                                     load(counters + 4 * i + 2), load(counters + 4 * i + 3)},
                               load(keys + 2 * i), load(keys + 2 * i + 1));
    store(out + 4 * i, words.x);
    store(out + 4 * i + 1, words.y);
    store(out + 4 * i + 2, words.z);
    store(out + 4 * i + 3, words.w);
}
