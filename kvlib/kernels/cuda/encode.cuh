// How four numbers of a head are written into a cache, to the bit as kvlib/codecs does it in NumPy.
// (pair_codecs.cuh and layouts.cuh read them.)
#pragma once
#include "vectors.cuh"

// a · b, rounded before anything is added to it: the compiler would make one instruction of both, which
// rounds once, and NumPy rounds twice.
#ifndef KVLIB_ON_PROCESSOR
__device__ __forceinline__ float times(float a, float b) { return __fmul_rn(a, b); }
#else
inline float times(float a, float b) {
    volatile float product = a * b;
    return product;
}
#endif

// Numbers as they are, in the type of the cache.
template <typename T> struct Plain {
    static const bool SCALED = false;
    static __device__ __forceinline__ void put(void* codes, i64 vector, const float* x, float) {
        u32 words[2];
#pragma unroll
        for (int i = 0; i < 2; i++)
            words[i] = (u32)From<T>::of(x[2 * i]).bits | (u32)From<T>::of(x[2 * i + 1]).bits << 16;
        store((uint2*)codes + vector, uint2{words[0], words[1]});
    }
};
template <> struct Plain<float> {
    static const bool SCALED = false;
    static __device__ __forceinline__ void put(void* codes, i64 vector, const float* x, float) {
        store((uint4*)codes + vector, uint4{bits_of_float(x[0]), bits_of_float(x[1]),
                                            bits_of_float(x[2]), bits_of_float(x[3])});
    }
};

// Four codes of a byte each.
template <typename C> struct Coded {
    static __device__ __forceinline__ void put(void* codes, i64 vector, const float* x, float scale) {
        u32 word = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) word |= C::code(x[i], scale) << 8 * i;
        store((u32*)codes + vector, word);
    }
};

struct Int8 : Coded<Int8> {
    static const bool SCALED = true;  // by the largest size in the head
    // The smallest normal number at least; NaN stays NaN.
    static __device__ __forceinline__ float scale_of(float top) {
        const float scale = top / 127.0f, least = float_of_bits(0x00800000u);
        return scale < least ? least : scale;
    }
    static __device__ __forceinline__ u32 code(float x, float scale) { return (u32)(int)rintf(x / scale) & 0xffu; }
};

// fp8 with MANTISSA bits of fraction, LEAST the exponent of its smallest normal number, LARGEST and NAN_
// codes. What is beyond the largest number becomes the largest number.
template <int MANTISSA, int LEAST, u32 LARGEST, u32 NAN_>
struct Fp8 : Coded<Fp8<MANTISSA, LEAST, LARGEST, NAN_>> {
    static const bool SCALED = false;
    static __device__ __forceinline__ u32 code(float x, float) {
        const u32 bits = bits_of_float(x), sign = bits >> 24 & 0x80u, size = bits & 0x7fffffffu;
        const int shift = 23 - MANTISSA;
        const u32 bias = (u32)(127 + LEAST - 1) << MANTISSA;  // of a float's exponent, over the code's
        if (size > 0x7f800000u) return sign | NAN_;
        // Below 2^LEAST, codes count steps of the same size. Above, a carry of rounding is the next exponent.
        if (size < (u32)(127 + LEAST) << 23)
            return sign | (u32)(int)rintf(float_of_bits(size) * float_of_bits((u32)(127 + MANTISSA - LEAST) << 23));
        const u32 rounded = (size + (1u << (shift - 1)) - 1u + (size >> shift & 1u)) >> shift;
        return sign | min(rounded - bias, LARGEST);
    }
};
typedef Fp8<3, -6, 0x7eu, 0x7fu> E4M3;
typedef Fp8<2, -14, 0x7bu, 0x7fu> E5M2;
