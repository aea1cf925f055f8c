// A logit's weight exp((x − maximum) / temperature) as an integer, 2^40 for the maximum.
//
// Integers are summed exactly in any order, so which token a random number falls on does not depend
// on how many threads add, and NumPy finds the same token. Weights are good to about 1e-9 and end at 2^-40.
#pragma once
#include "portable.cuh"

static const int WEIGHT_BITS = 40;

// 2^f − 1 for f in [0, 1), both in units of 2^-32: the series of exp(f · ln 2) by Horner's rule.
__device__ __forceinline__ u32 exp2_fraction(u32 f) {
    u32 r = 0x0000001eu;               // (ln 2)^i / i! in units of 2^-32, i = 10
    r = 0x000001b5u + __umulhi(r, f);
    r = 0x0000162cu + __umulhi(r, f);
    r = 0x0000ffe6u + __umulhi(r, f);
    r = 0x000a1849u + __umulhi(r, f);
    r = 0x00576200u + __umulhi(r, f);
    r = 0x0276556eu + __umulhi(r, f);
    r = 0x0e35846cu + __umulhi(r, f);
    r = 0x3d7f7bffu + __umulhi(r, f);
    r = 0xb17217f7u + __umulhi(r, f);  // 1, rounded down: the sum must stay below 1
    return __umulhi(r, f);
}

// scale: log2 e / temperature. A difference times a factor: nothing a compiler could fuse.
__device__ __forceinline__ u64 weight_of(float x, float maximum, float scale) {
    const float t = (x - maximum) * scale;
    if (!(t > -(float)WEIGHT_BITS)) return 0;
    const i64 fixed = (i64)(t * 4294967296.0f);  // t <= 0, in units of 2^-32
    const u64 whole = (1ull << 32 | exp2_fraction((u32)fixed)) << (WEIGHT_BITS - 32);
    return whole >> -(fixed >> 32);
}
