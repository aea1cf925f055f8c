// How a block's threads lie over keys and values of D numbers, and how stored numbers become floats.
#pragma once
#include "vectors.cuh"

static const int THREADS = 128, WARPS = THREADS / 32;
static const int UNROLL = 4;  // keys of a group in flight at a time

// Blocks of keys (or values) in the device's memory.
struct Stored {
    const void* codes;   // (block, kv head, position, D) in the codec's numbers
    const void* scales;  // what the codec says; null where it has none
    const void* zeros;
};

struct Place {
    i64 entry;   // ((block · Hkv) + kv head) · block size + position
    bool valid;
};

__device__ constexpr int lanes_for(int vectors) {
    return vectors > 16 ? 32 : vectors > 8 ? 16 : vectors > 4 ? 8 : vectors > 2 ? 4 : vectors > 1 ? 2 : 1;
}

// The numbers themselves, as float, Half or BFloat16.
template <typename T> struct Plain {
    static const int COUNT = Vector<T>::COUNT;  // numbers in a vector of 16 bytes
    typedef Vector<T> Numbers;
    static const bool SCALED = false;
};

template <typename Codec, int D> struct Layout {
    typedef Codec C;
    static const int VECTORS_OF_KEY = D / Codec::COUNT;             // 16 bytes each
    static const int LANES = lanes_for(VECTORS_OF_KEY);             // that hold one key between them
    static const int VECTORS_OF_LANE = (VECTORS_OF_KEY + LANES - 1) / LANES;
    static const int VECTORS = VECTORS_OF_KEY / VECTORS_OF_LANE;    // lanes with something to hold
    static const int PER_LANE = VECTORS_OF_LANE * Codec::COUNT;
    static const int GROUPS = THREADS / LANES;
    static_assert(D % Codec::COUNT == 0 && VECTORS_OF_KEY % VECTORS_OF_LANE == 0, "whole vectors");

    // The channel of number i of a lane: neighbours in a vector, vectors LANES apart.
    static __device__ __forceinline__ int channel(int lane, int i) {
        return (i / Codec::COUNT * VECTORS + lane) * Codec::COUNT + i % Codec::COUNT;
    }
};

// One lane's share of one key, on its way from memory.
template <typename L> struct Raw {
    uint4 words[L::VECTORS_OF_LANE];
    float scale;

    __device__ __forceinline__ void fetch(const Stored& stored, const Place& place, int lane, bool active) {
        typedef typename L::C Codec;
        const uint4* at = (const uint4*)stored.codes + place.entry * L::VECTORS_OF_KEY;
#pragma unroll
        for (int i = 0; i < L::VECTORS_OF_LANE; i++) {
            words[i] = uint4{0u, 0u, 0u, 0u};  // what is not there must not be NaN: 0 · NaN is NaN
            if (place.valid && active) words[i] = load(at + i * L::VECTORS + lane);
        }
        scale = 1.0f;
        if (Codec::SCALED && place.valid) scale = load((const float*)stored.scales + place.entry);
    }
    __device__ __forceinline__ void decode(float* x) const {
#pragma unroll
        for (int i = 0; i < L::VECTORS_OF_LANE; i++) L::C::Numbers::unpack(words[i], x + i * L::C::COUNT);
    }
    __device__ __forceinline__ float factor() const { return scale; }
};
