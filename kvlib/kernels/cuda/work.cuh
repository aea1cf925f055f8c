// What a block of decode works on: one split of the keys of one request (kvlib/kernels/work.py).
#pragma once
#include "portable.cuh"

struct Item {
    int request, split, splits;
    int part;  // where the result waits to be merged; -1: it is the result
};

// Item i of the list. Without one, each request has `even` splits, one after the other.
__device__ __forceinline__ Item item_of(const void* items, int i, int even) {
    if (items) {
        const uint4 x = load((const uint4*)items + i);
        return Item{(int)x.x, (int)x.y, (int)x.z, (int)x.w};
    }
    return Item{i / even, i % even, even, even > 1 ? i : -1};
}
