// Philox 4x32-10, a random number generator without a state: 128 bits of counter and 64 of key give
// 128 random bits (Salmon et al. 2011, doi:10.1145/2063384.2063405).
#pragma once
#include "portable.cuh"

__device__ __forceinline__ uint4 philox(uint4 counter, u32 key0, u32 key1) {
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const u32 high0 = __umulhi(0xd2511f53u, counter.x), low0 = 0xd2511f53u * counter.x;
        const u32 high1 = __umulhi(0xcd9e8d57u, counter.z), low1 = 0xcd9e8d57u * counter.z;
        counter = uint4{high1 ^ counter.y ^ key0, low1, high0 ^ counter.w ^ key1, low0};
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
    return counter;
}

// The 64 bits that decide what row `stream` of a seed draws in a step.
__device__ __forceinline__ u64 random_bits(u64 seed, u32 stream, u32 step) {
    const uint4 words = philox(uint4{0u, stream, step, 0u}, (u32)seed, (u32)(seed >> 32));
    return (u64)words.y << 32 | words.x;
}
