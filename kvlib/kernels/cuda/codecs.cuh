// Plain numbers for the kernel that multiplies without tensor cores (decode.cu): how a lane loads its part
// of a key. Codes are unpacked for tensor cores (pair_codecs.cuh).
#pragma once
#include "vectors.cuh"

struct Place {
    i64 entry;   // ((block · Hkv) + kv head) · block size + position
    bool valid;
};

// Vectors of COUNT numbers in 16 bytes: float, Half or BFloat16.
template <typename T> struct Plain {
    static const int COUNT = Vector<T>::COUNT;
    static __device__ __forceinline__ void unpack(uint4 raw, float* x) { Vector<T>::unpack(raw, x); }
};
