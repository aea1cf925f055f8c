// Two 16-bit numbers in a register, as tensor cores take them: made from codes, and computed with.
#pragma once
#include "tensor.cuh"

#ifndef KVLIB_ON_PROCESSOR

// A constant that stays in a register: the compiler would make it anew for every use, which is an
// instruction each. No grid has 2^31 blocks, but the compiler does not know.
__device__ __forceinline__ u32 in_register(u32 x) { return x + (gridDim.x >> 31); }

// a · b + c of both numbers, rounded once.
template <typename T> __device__ __forceinline__ u32 multiply_add_pair(u32 a, u32 b, u32 c);
template <> __device__ __forceinline__ u32 multiply_add_pair<Half>(u32 a, u32 b, u32 c) {
    u32 x;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(x) : "r"(a), "r"(b), "r"(c));
    return x;
}
template <> __device__ __forceinline__ u32 multiply_add_pair<BFloat16>(u32 a, u32 b, u32 c) {
    u32 x;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(x) : "r"(a), "r"(b), "r"(c));
    return x;
}

// Two floats rounded to 16 bits in one instruction.
template <typename T> __device__ __forceinline__ u32 rounded_pair(float low, float high);
template <> __device__ __forceinline__ u32 rounded_pair<Half>(float low, float high) {
    u32 x;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
    return x;
}
template <> __device__ __forceinline__ u32 rounded_pair<BFloat16>(float low, float high) {
    u32 x;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
    return x;
}

#else

inline u32 in_register(u32 x) { return x; }
template <typename T> inline u32 rounded_pair(float low, float high) { return pair_of<T>(low, high); }
template <typename T> inline u32 multiply_add_pair(u32 a, u32 b, u32 c) {
    float x[2];
    for (int i = 0; i < 2; i++) x[i] = fmaf(number<T>(a, i), number<T>(b, i), number<T>(c, i));
    return pair_of<T>(x[0], x[1]);
}

#endif

template <typename T> __device__ __forceinline__ float low_of(u32 pair) {
    T x;
    x.bits = (u16)pair;
    return to_float(x);
}
template <typename T> __device__ __forceinline__ float high_of(u32 pair) {
    T x;
    x.bits = (u16)(pair >> 16);
    return to_float(x);
}

// Two floats as the sum of two 16-bit numbers each: what rounding takes from the first is the second.
template <typename T> __device__ __forceinline__ void split_pair(float a, float b, u32* first, u32* rest) {
    *first = rounded_pair<T>(a, b);
    *rest = rounded_pair<T>(a - low_of<T>(*first), b - high_of<T>(*first));
}

// A float as the sum of two 16-bit numbers side by side: its upper bits, and what they leave out.
template <typename T> __device__ __forceinline__ u32 halves_of(float x);
template <> __device__ __forceinline__ u32 halves_of<Half>(float x) {
    const float upper = float_of_bits(bits_of_float(x) & 0xffffe000u);
    return rounded_pair<Half>(upper, x - upper);
}
template <> __device__ __forceinline__ u32 halves_of<BFloat16>(float x) {
    const float upper = float_of_bits((bits_of_float(x) + 0x8000u) & 0xffff0000u);
    return rounded_pair<BFloat16>(upper, x - upper);
}

// fp8 with 4 bits of exponent, two bytes side by side in the lower half of `bytes`, as float16.
__device__ __forceinline__ u32 halves_of_e4m3(u32 bytes) {
#if !defined(KVLIB_ON_PROCESSOR) && __CUDA_ARCH__ >= 890
    u32 x;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(x) : "h"((u16)bytes));
    return x;
#else
    // Moved down by a bit, a code is a float16 of a 256th of its number, small ones too, because the
    // exponents' biases are 7 and 15. NaN has all seven bits set.
    const u32 pair = __byte_perm(bytes, 0u, 0x1404);
    const u32 moved = (pair & 0x80008000u) | (pair >> 1 & 0x3f803f80u);
    const u32 nan = ((pair & 0x7f007f00u) + 0x01000100u) >> 15 & 0x00010001u;
    return multiply_add_pair<Half>(moved, 0x5c005c00u, moved & 0x80008000u) | nan * 0x7fffu;
#endif
}
