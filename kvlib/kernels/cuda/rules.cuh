// Which keys a row of prefill_tiles.cuh and prefill_float_tiles.cuh sees, and which of them a block reads.
#pragma once
#include "work.cuh"

// The lowest n bits.
__device__ __forceinline__ u64 below(int n) { return n <= 0 ? 0ull : n >= 64 ? ~0ull : (1ull << n) - 1ull; }

// Of the 64 keys from `first` on those that a token at a position sees among all tokens up to its own.
__device__ __forceinline__ u64 up_to(int position, int first, int window) {
    return below(position + 1 - first) & ~below(window > 0 ? position - window + 1 - first : 0);
}

// New tokens of a request one after the other: each sees itself and every token before it. A block
// reads all keys that its rows see.
struct Chain {
    static __device__ constexpr bool tree() { return false; }
    __device__ __forceinline__ Item item() const { return Item{(int)blockIdx.z, 0, 1, -1}; }
    __device__ __forceinline__ int count(int, int n) { return n; }
    __device__ __forceinline__ int token(int c, int, int) const { return c; }
    __device__ __forceinline__ int oldest(int c) const { return c; }
    __device__ __forceinline__ u64 seen(int c, int from, int start, int window) const { return up_to(start + c, from, window); }
};

// New tokens of a request as a tree: token c follows its parent, is `depth` positions after the first
// new token, which follows the `start` older ones, and sees those, itself and its ancestors. Parents come
// before children. Requests without a tree are chains. A work item is one split of the keys of a request
// (kvlib/kernels/plans.py).
struct Tree {
    static __device__ constexpr bool tree() { return true; }
    const u32* bits;     // (N, words): bit i of token c's row says whether c sees new token i
    const int* depths;   // (N,)
    const int* trees;    // (B, 2): the row of a request's first new token, −1 for a chain; its new tokens. Or null
    const void* items;   // (items, 4)
    int words;
    int first;           // of this block's request

    __device__ __forceinline__ Item item() const { return item_of(items, blockIdx.z, 1); }
    // New tokens of the request. Its n rows are the last n of them.
    __device__ __forceinline__ int count(int b, int n) {
        first = -1;
        if (!trees) return n;
        first = load(trees + 2 * b);
        const int nodes = load(trees + 2 * b + 1);  // not after a branch, which would wait for `first`
        return first < 0 ? n : nodes;
    }
    // The new token of row token c of n; one of the last's where there is none.
    __device__ __forceinline__ int token(int c, int skip, int n) const { return skip + min(c, n - 1); }
    // The least depth of the tokens from c on: a later one may follow the older tokens as well.
    __device__ __forceinline__ int oldest(int c) const { return first < 0 ? c : 0; }
    // Of the 64 keys from `from` on those that token c sees, a bit each. A window counts positions, not slots.
    __device__ u64 seen(int c, int from, int start, int window) const {
        if (first < 0) return up_to(start + c, from, window);
        const int new0 = from - start, own = load(depths + first + c), shift = new0 & 31;
        u32 row[3];  // bits of these keys; older tokens and those after c have none
        for (int i = 0; i < 3; i++) {
            const int word = (new0 >> 5) + i;
            row[i] = word >= 0 && word <= c / 32 ? load(bits + (i64)(first + c) * words + word) : 0u;
        }
        u64 found = ((u64)row[1] << 32 | row[0]) >> shift | (shift ? (u64)row[2] << (64 - shift) : 0ull);
        if (window > 0 && own >= window)  // some ancestors are too far away
            for (int i = max(0, -new0); i < 64 && new0 + i <= c; i++)
                if (own - load(depths + first + new0 + i) >= window) found &= ~(1ull << i);
        return found | (below(-new0) & ~below(window > 0 ? own - window + 1 - new0 : 0));
    }
};
