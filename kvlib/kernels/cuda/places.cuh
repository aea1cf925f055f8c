// Where a request's keys lie: blocks of a pool by way of a block table, or one row of a dense cache.
#pragma once
#include "portable.cuh"

struct Table {
    const int* row;  // of one request
    int block_size, shift, num_kv_heads;

    // Entry ((block · Hkv) + kv head) · block size + position of key j.
    __device__ __forceinline__ i64 entry(int j, int kv_head) const {
        const i64 block = load(row + (j >> shift));
        return (block * num_kv_heads + kv_head) * block_size + (j & (int)((1u << shift) - 1u));
    }
};
