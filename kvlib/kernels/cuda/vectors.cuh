// 16 bytes at a time: what one lane loads in one instruction, and the numbers in it.
#pragma once
#include "portable.cuh"

// Numbers of type T in 16 bytes, unpacked into floats.
template <typename T> struct Vector;

template <> struct Vector<float> {
    static const int COUNT = 4;
    static __device__ __forceinline__ void unpack(uint4 raw, float* x) {
        x[0] = float_of_bits(raw.x);
        x[1] = float_of_bits(raw.y);
        x[2] = float_of_bits(raw.z);
        x[3] = float_of_bits(raw.w);
    }
};

template <> struct Vector<Half> {
    static const int COUNT = 8;
    static __device__ __forceinline__ void unpack(uint4 raw, float* x) {
        const u32 words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[2 * i] = half_to_float((u16)words[i]);
            x[2 * i + 1] = half_to_float((u16)(words[i] >> 16));
        }
    }
};

template <> struct Vector<BFloat16> {
    static const int COUNT = 8;
    static __device__ __forceinline__ void unpack(uint4 raw, float* x) {
        const u32 words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            // The lower half moves up, the upper one stays where a float wants it.
            x[2 * i] = float_of_bits(words[i] << 16);
            x[2 * i + 1] = float_of_bits(words[i] & 0xffff0000u);
        }
    }
};
