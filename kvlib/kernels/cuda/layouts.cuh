// How a block's threads lie over keys and values of D numbers, and how what is stored becomes floats.
#pragma once
#include "codecs.cuh"

static const int THREADS = 128, WARPS = THREADS / 32;
static const int UNROLL = 4;  // keys of a group in flight at a time

__device__ constexpr int lanes_for(int vectors) {
    return vectors > 16 ? 32 : vectors > 8 ? 16 : vectors > 4 ? 8 : vectors > 2 ? 4 : vectors > 1 ? 2 : 1;
}

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

    __device__ __forceinline__ void fetch(const void* stored, const Place& place, int lane, bool active) {
#pragma unroll
        for (int i = 0; i < L::VECTORS_OF_LANE; i++) {
            words[i] = uint4{0u, 0u, 0u, 0u};  // not NaN: 0 · NaN is NaN
            if (place.valid && active)
                words[i] = load((const uint4*)stored + place.entry * L::VECTORS_OF_KEY + i * L::VECTORS + lane);
        }
    }
    __device__ __forceinline__ void unpack(float* x) const {
#pragma unroll
        for (int i = 0; i < L::VECTORS_OF_LANE; i++) L::C::unpack(words[i], x + i * L::C::COUNT);
    }
};
