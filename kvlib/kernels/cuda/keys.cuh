// A logit and its column as one 64-bit number, the larger the better: of equal logits the lower column
// wins, and no two keys of a row are alike. NaN ranks below −inf, −0 and 0 are equal.
#pragma once
#include "portable.cuh"

__device__ __forceinline__ u32 order_of(float x) {
    if (x != x) return 0u;
    const u32 bits = bits_of_float(x + 0.0f);  // −0 + 0 is 0
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float float_of_order(u32 order) {
    if (order == 0u) return float_of_bits(0x7fc00000u);
    return float_of_bits(order & 0x80000000u ? order & 0x7fffffffu : ~order);
}
__device__ __forceinline__ u64 key_of(float x, int column) {
    return (u64)order_of(x) << 32 | (u32)~(u32)column;
}
__device__ __forceinline__ float value_of(u64 key) { return float_of_order((u32)(key >> 32)); }
__device__ __forceinline__ int column_of(u64 key) { return (int)~(u32)key; }

static const u64 NO_KEY = 0;                            // below every key
static const u64 ABOVE_ALL = 0xff80000100000000ull;     // above +inf in any column
