// Which keys a row of prefill_tiles.cuh and prefill_float_tiles.cuh sees, and which of them a block reads.
#pragma once
#include "work.cuh"

// New tokens of a request one after the other: each sees itself and every token before it. A block
// reads all keys that its rows see. Nothing of this is left in the machine code.
struct Chain {
    static __device__ constexpr bool tree() { return false; }
    __device__ __forceinline__ Item item() const { return Item{(int)blockIdx.z, 0, 1, -1}; }
    __device__ __forceinline__ int count(int, int n) { return n; }
    __device__ __forceinline__ int token(int c, int, int) const { return c; }
    __device__ __forceinline__ int depth(int c) const { return c; }
    __device__ __forceinline__ int oldest(int c) const { return c; }
    __device__ __forceinline__ bool sees(int, int, int, int, int) const { return true; }
};

// New tokens of a request as a tree: token c follows its parent, stands `depth` tokens behind the
// `start` older ones, and sees those, itself and its ancestors. Parents come before children. Requests
// without a tree are chains. A work item is one split of the keys of a request (kvlib/kernels/work.py).
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
        first = trees ? load(trees + 2 * b) : -1;
        return first < 0 ? n : load(trees + 2 * b + 1);
    }
    // The new token of row token c of n; one of the last's where there is none.
    __device__ __forceinline__ int token(int c, int skip, int n) const { return skip + min(c, n - 1); }
    __device__ __forceinline__ int depth(int c) const { return first < 0 ? c : load(depths + first + c); }
    // The least depth of the tokens from c on: a later one may follow the older tokens as well.
    __device__ __forceinline__ int oldest(int c) const { return first < 0 ? c : 0; }
    // Whether token c at depth `own` sees key j. A window counts positions, not slots.
    __device__ __forceinline__ bool sees(int c, int own, int j, int start, int window) const {
        const int other = j - start;
        if (other > c) return false;
        if (other < 0 || first < 0) return window == 0 || own - other < window;
        if ((load(bits + (i64)(first + c) * words + other / 32) >> other % 32 & 1u) == 0u) return false;
        return window == 0 || own - load(depths + first + other) < window;
    }
};
