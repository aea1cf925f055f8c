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
    static const int VECTORS_OF_KEY = D / Codec::COUNT;             // Codec::BYTES bytes each
    static const int LANES = lanes_for(VECTORS_OF_KEY);             // that hold one key between them
    static const int VECTORS_OF_LANE = (VECTORS_OF_KEY + LANES - 1) / LANES;
    static const int VECTORS = VECTORS_OF_KEY / VECTORS_OF_LANE;    // lanes with something to hold
    static const int PER_LANE = VECTORS_OF_LANE * Codec::COUNT;
    static const int GROUPS = THREADS / LANES;
    static const int STRETCH = Codec::COUNT / Codec::PARTS;         // channels of a vector in a row
    static const int WORDS = Codec::BYTES < 4 ? 1 : Codec::BYTES / 4;
    static_assert(D % Codec::COUNT == 0 && VECTORS_OF_KEY % VECTORS_OF_LANE == 0, "whole vectors");
    static_assert(Codec::PARTS == 1 || VECTORS_OF_LANE == 1, "packed codes: one vector a lane");

    // The channel of number i of a lane: neighbours in a vector, vectors LANES apart; where a byte
    // holds PARTS codes, these are D / PARTS channels apart (kvlib/codecs/packing.py).
    static __device__ __forceinline__ int channel(int lane, int i) {
        return i % Codec::COUNT / STRETCH * (D / Codec::PARTS) +
               (i / Codec::COUNT * VECTORS + lane) * STRETCH + i % STRETCH;
    }

    // Which of a step's GROUPS · UNROLL keys is the u-th of a group of lanes. Groups take turns; but
    // where keys that follow one another share their scales, a group takes such keys.
    static __device__ __forceinline__ int key(int u, int group) {
        return Codec::SHARED ? group * UNROLL + u : u * GROUPS + group;
    }
};

// One lane's share of one key, on its way from memory.
template <typename L> struct Raw {
    u32 words[L::VECTORS_OF_LANE][L::WORDS];

    __device__ __forceinline__ void fetch(const Stored& stored, const Place& place, int lane, bool active) {
#pragma unroll
        for (int i = 0; i < L::VECTORS_OF_LANE; i++) {
#pragma unroll
            for (int w = 0; w < L::WORDS; w++) words[i][w] = 0u;  // not NaN: 0 · NaN is NaN
            if (place.valid && active)
                load_words<L::C::BYTES>(stored.codes, place.entry * L::VECTORS_OF_KEY + i * L::VECTORS + lane, words[i]);
        }
    }
    __device__ __forceinline__ void unpack(float* x) const {
#pragma unroll
        for (int i = 0; i < L::VECTORS_OF_LANE; i++) L::C::unpack(words[i], x + i * L::C::COUNT);
    }
};
