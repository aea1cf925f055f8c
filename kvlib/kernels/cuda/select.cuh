// The best k of a block's buffer of keys: bisection on the key, then a rank for each of the few left.
#pragma once
#include "keys.cuh"

static const int THREADS = 256, WARPS = THREADS / 32;
static const int MOST_K = THREADS;   // one thread ranks one key
static const int ITEMS = 16;         // logits of a thread and tile
static const int TILE = THREADS * ITEMS;
static const int SPARE = 1024;       // keys the buffer may hold when a tile begins
static const int ROOM = TILE + SPARE;

struct Buffer {
    u64* keys;    // (ROOM,)
    u64* kept;    // (MOST_K,)
    int* count;   // keys in the buffer
    int* found;   // (1,) for merge
    int* votes;   // (3,) for kth

    __device__ __forceinline__ explicit Buffer(u64* shared) {
        keys = shared;
        kept = keys + ROOM;
        count = (int*)(kept + MOST_K);
        found = count + 1;
        votes = count + 2;
    }
    // Gives the place written to.
    __device__ __forceinline__ int push(u64 key) const {
        const int at = atomicAdd(count, 1);
        keys[at] = key;
        return at;
    }
};
static const int BUFFER_WORDS = ROOM + MOST_K + 4;  // of 8 bytes

// A floor that exactly k of n > k different keys reach, not below `low`, which at least k reach.
// Every step halves the range of keys and costs one barrier; most end before the range is one key.
__device__ inline u64 kth(const Buffer& b, int n, int k, u64 low) {
    if (threadIdx.x < 3) b.votes[threadIdx.x] = 0;
    __syncthreads();
    u64 high = ABOVE_ALL;
    for (int turn = 0; high - low > 1; turn = turn == 2 ? 0 : turn + 1) {
        const u64 middle = low + (high - low) / 2;
        int mine = 0;  // of this warp
        for (int i = threadIdx.x; i - (int)threadIdx.x < n; i += THREADS)
            mine += __popc(__ballot_sync(0xffffffffu, i < n && b.keys[i] >= middle));
        if (threadIdx.x % 32 == 0) atomicAdd(b.votes + turn, mine);
        __syncthreads();
        const int reach = b.votes[turn];
        // Everybody has read the votes of the turn before; they are next but one.
        if (threadIdx.x == 0) b.votes[turn == 0 ? 2 : turn - 1] = 0;
        if (reach == k) return middle;
        if (reach > k) low = middle;
        else high = middle;
    }
    return low;
}

// Leaves the best k keys of the buffer at its front, in no order; gives the floor they reach.
__device__ inline u64 merge(const Buffer& b, int k, u64 low) {
    const int n = *b.count;
    if (n <= k) return low;
    if (threadIdx.x == 0) *b.found = 0;
    const u64 floor = kth(b, n, k, low);
    for (int i = threadIdx.x; i < n; i += THREADS)
        if (b.keys[i] >= floor) b.kept[atomicAdd(b.found, 1)] = b.keys[i];
    __syncthreads();
    if (threadIdx.x < k) b.keys[threadIdx.x] = b.kept[threadIdx.x];
    if (threadIdx.x == 0) *b.count = k;
    __syncthreads();
    return floor;
}

// The place of a thread's key among the n <= MOST_K at the buffer's front, best first.
__device__ __forceinline__ int rank_of(const Buffer& b, int n, u64 key) {
    int better = 0;
    for (int i = 0; i < n; i++) better += b.keys[i] > key;
    return better;
}
