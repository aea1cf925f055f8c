// One range of columns of a row of logits, 16 bytes a load wherever they are all in the range.
#pragma once
#include "vectors.cuh"

// The largest of the numbers in 16 bytes, NaN passed over. Two 16-bit numbers are compared at once,
// before they are unpacked: eight cost three instructions, and one more joins two vectors.
template <typename T> struct Largest;

template <> struct Largest<float> {
    typedef float Most;
    static const u32 LEAST = 0xff800000u;  // −inf
    static __device__ __forceinline__ float larger(float a, float b) { return fmaxf(a, b); }
    static __device__ __forceinline__ float of(uint4 raw) {
        return fmaxf(fmaxf(float_of_bits(raw.x), float_of_bits(raw.y)), fmaxf(float_of_bits(raw.z), float_of_bits(raw.w)));
    }
    static __device__ __forceinline__ float value(float most) { return most; }
};

#ifndef KVLIB_ON_PROCESSOR
template <typename T> __device__ __forceinline__ u32 larger_pair(u32 a, u32 b);
template <> __device__ __forceinline__ u32 larger_pair<Half>(u32 a, u32 b) {
    u32 x;
    asm("max.f16x2 %0, %1, %2;" : "=r"(x) : "r"(a), "r"(b));
    return x;
}
template <> __device__ __forceinline__ u32 larger_pair<BFloat16>(u32 a, u32 b) {
    u32 x;
    asm("max.bf16x2 %0, %1, %2;" : "=r"(x) : "r"(a), "r"(b));
    return x;
}
#else
template <typename T> inline u32 larger_pair(u32 a, u32 b) {
    u32 pair = 0;
    for (int shift = 0; shift < 32; shift += 16) {
        const u16 left = (u16)(a >> shift), right = (u16)(b >> shift);
        const float x = to_float(T{left}), y = to_float(T{right});
        pair |= (u32)(x > y || y != y ? left : right) << shift;
    }
    return pair;
}
#endif

template <typename T, u32 PAIR> struct LargestPair {
    typedef u32 Most;
    static const u32 LEAST = PAIR;
    static __device__ __forceinline__ u32 larger(u32 a, u32 b) { return larger_pair<T>(a, b); }
    static __device__ __forceinline__ u32 of(uint4 raw) {
        return larger(larger(raw.x, raw.y), larger(raw.z, raw.w));
    }
    static __device__ __forceinline__ float value(u32 most) {
        return fmaxf(to_float(T{(u16)most}), to_float(T{(u16)(most >> 16)}));
    }
};
template <> struct Largest<Half> : LargestPair<Half, 0xfc00fc00u> {};
template <> struct Largest<BFloat16> : LargestPair<BFloat16, 0xff80ff80u> {};

__device__ __forceinline__ u32 load_bits(const float* p) { return bits_of_float(load(p)); }
__device__ __forceinline__ u32 load_bits(const Half* p) { return load((const u16*)p); }
__device__ __forceinline__ u32 load_bits(const BFloat16* p) { return load((const u16*)p); }

template <typename T> struct Range {
    static const int COUNT = Vector<T>::COUNT;
    int begin, end, lead;  // lead: columns from the multiple of 16 bytes at or before `begin`
    int vectors;
    const T* row;
    const uint4* source;

    __device__ __forceinline__ Range(const T* logits, i64 row_number, int vocabulary, int first, int columns) {
        begin = min(vocabulary, first);
        end = min(vocabulary, begin + columns);
        row = logits + row_number * vocabulary;
        const i64 start = row_number * vocabulary + begin;
        lead = (int)(start % COUNT);
        vectors = (end - begin + lead + COUNT - 1) / COUNT;
        source = (const uint4*)(logits + (start - lead));
    }
    __device__ __forceinline__ int column(int vector) const { return begin - lead + vector * COUNT; }
    __device__ __forceinline__ bool holds(int column) const { return column >= begin && column < end; }
    // Whether `count` vectors from `first` on are all in the range.
    __device__ __forceinline__ bool inside(int first, int count) const {
        return column(first) >= begin && column(first + count) <= end;
    }
    // A vector's 16 bytes, −inf where it reaches beyond the range.
    __device__ __forceinline__ uint4 fetch(int vector) const {
        if (inside(vector, 1)) return load(source + vector);
        const int BITS = 128 / COUNT;
        const u32 least = Largest<T>::LEAST;
        u32 words[4] = {least, least, least, least};
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const int at = column(vector) + i, shift = i * BITS % 32;
            if (holds(at)) words[i * BITS / 32] ^= (least << (32 - BITS) >> (32 - BITS) ^ load_bits(row + at)) << shift;
        }
        return uint4{words[0], words[1], words[2], words[3]};
    }
};
