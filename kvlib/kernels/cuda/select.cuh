// The best k of a row so far, in shared memory: numbers of vectors wait there until there are so many that
// cutting their keys down to the best k is worth the barriers.
#pragma once
#include "keys.cuh"

static const int THREADS = 256, WARPS = THREADS / 32;
static const int MOST_K = THREADS;        // one thread ranks one key
static const int WAITING = THREADS;       // vectors that may wait: one a thread
static const int FULL = 200;              // so many raise the bar
static const int KEPT = 2 * MOST_K;       // keys that may be left
static const int BINS = 256;              // of a histogram; eight a lane
static const int KEYS = KEPT + 8 * WAITING;

struct Buffer {
    u64* keys;       // (KEYS,)
    u64* spare;      // (KEPT,) for cut
    u32* bins;       // (3, BINS) for raised
    u32* tops;       // (WARPS,) for raised
    int* numbers;    // (WAITING,) of the vectors that wait
    int* waiting;    // of those
    int* count;      // keys
    int* found;      // for cut

    __device__ __forceinline__ explicit Buffer(u64* shared) {
        keys = shared;
        spare = keys + KEYS;
        bins = (u32*)(spare + KEPT);
        tops = bins + 3 * BINS;
        numbers = (int*)(tops + WARPS);
        waiting = numbers + WAITING;
        count = waiting + 1;
        found = waiting + 2;
    }
    __device__ __forceinline__ void clear() const {
        if (threadIdx.x == 0) *waiting = *count = *found = 0;
        __syncthreads();
    }
    __device__ __forceinline__ void push(u64 key) const { keys[atomicAdd(count, 1)] = key; }
};
static const int BUFFER_WORDS = KEYS + KEPT + (3 * BINS + WARPS + WAITING + 4) / 2;  // of 8 bytes

// A floor that at least k of the n >= k keys reach and at most `most`; all keys reach `low`.
// The keys between the lowest and the largest are counted in 256 bins, then those of the bin that the
// k-th largest is in, and so on: one barrier a turn. Two turns do for most logits, ten for any.
__device__ inline u64 raised(const Buffer& b, int n, int k, int most, u64 low) {
    const int lane = threadIdx.x % 32;
    u32 top = 0;
    for (int i = threadIdx.x; i < n; i += THREADS) top = max(top, (u32)(b.keys[i] >> 32));
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) top = max(top, __shfl_xor_sync(0xffffffffu, top, offset));
    if (lane == 0) b.tops[threadIdx.x / 32] = top;
    b.bins[threadIdx.x] = b.bins[BINS + threadIdx.x] = 0;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < WARPS; w++) top = max(top, b.tops[w]);
    u64 width = ((u64)top << 32 | 0xffffffffu) - low;  // of the range, less one
    int above = 0;                                     // keys that are beyond it
    for (int turn = 0;; turn = turn == 2 ? 0 : turn + 1) {
        const u32 upper = (u32)(width >> 32);
        const int bits = upper ? 64 - __clz(upper) : 32 - __clz((u32)width), shift = max(0, bits - 8);
        u32* bins = b.bins + turn * BINS;
        for (int i = threadIdx.x; i < n; i += THREADS) {
            const u64 at = b.keys[i] - low;
            if (at <= width) atomicAdd(bins + (at >> shift), 1u);
        }
        __syncthreads();
        // Everybody has read the bins of the turn before; they are next but one.
        b.bins[(turn == 0 ? 2 : turn - 1) * BINS + threadIdx.x] = 0;
        const uint4 less = ((const uint4*)bins)[2 * (31 - lane)], more = ((const uint4*)bins)[2 * (31 - lane) + 1];
        const u32 counts[8] = {more.w, more.z, more.y, more.x, less.w, less.z, less.y, less.x};
        int sum = 0, before = 0;
#pragma unroll
        for (int j = 0; j < 8; j++) sum += counts[j];
        int upto = sum;  // keys in the bins of this lane and of those before it, which have larger ones
#pragma unroll
        for (int offset = 1; offset < 32; offset *= 2) {
            const int below = __shfl_up_sync(0xffffffffu, upto, offset);
            if (lane >= offset) upto += below;
        }
        before = above + upto - sum;
        const int chosen = __ffs(__ballot_sync(0xffffffffu, above + upto >= k)) - 1;
        int bin = 8 * (31 - lane) + 7, size = 0;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            size = (int)counts[j];
            if (before + size >= k) break;
            before += size;
            bin--;
        }
        above = __shfl_sync(0xffffffffu, before, chosen);
        size = __shfl_sync(0xffffffffu, size, chosen);
        low += (u64)__shfl_sync(0xffffffffu, bin, chosen) << shift;
        width = (1ull << shift) - 1;
        if (above + size <= most || shift == 0) return low;
    }
}

// Leave the keys that reach a floor at the front, in no order: at least k of them and at most `most`,
// all if there are fewer than k. Returns the floor.
__device__ inline u64 cut(const Buffer& b, int k, int most, u64 low) {
    const int n = *b.count;
    if (n <= most) {
        __syncthreads();  // everybody has read how many, and where vectors wait there is room again
        return low;
    }
    const u64 floor = raised(b, n, k, most, low);
    for (int i = threadIdx.x; i < n; i += THREADS)
        if (b.keys[i] >= floor) b.spare[atomicAdd(b.found, 1)] = b.keys[i];
    __syncthreads();
    const int left = *b.found;
    for (int i = threadIdx.x; i < left; i += THREADS) b.keys[i] = b.spare[i];
    __syncthreads();
    if (threadIdx.x == 0) {
        *b.count = left;
        *b.found = 0;
    }
    __syncthreads();
    return floor;
}

// The position of a thread's key among the n <= MOST_K at the buffer's front, best first.
__device__ __forceinline__ int rank_of(const Buffer& b, int n, u64 key) {
    int better = 0;
    for (int i = 0; i < n; i++) better += b.keys[i] > key;
    return better;
}
