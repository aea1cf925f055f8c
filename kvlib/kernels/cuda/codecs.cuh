// How keys and values are written: numbers as they come, int8, fp8, KIVI. (kvlib/codecs is the same
// in NumPy, and says why.)
//
// A codec reads vectors of COUNT numbers in BYTES bytes, and has what turns codes into numbers: what
// a number is multiplied by goes to the score or the weight where one factor serves a whole key
// (`factor`), and to the numbers themselves where it does not (`apply`).
#pragma once
#include "vectors.cuh"

// Blocks of keys (or values) in the device's memory.
struct Stored {
    const void* codes;   // (block, kv head, position, D) in the codec's numbers
    const void* scales;  // what the codec says; null where it has none
    const void* zeros;
    int shift;           // log2 of the tokens (keys) or channels (values) that share a scale: KIVI
};

struct Place {
    i64 entry;   // ((block · Hkv) + kv head) · block size + position
    bool valid;
};

// Vector `i` of BYTES bytes, in the widest load there is for it.
template <int BYTES> __device__ __forceinline__ void load_words(const void* p, i64 i, u32* words) {
    if constexpr (BYTES == 16) {
        const uint4 v = load((const uint4*)p + i);
        words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
    } else if constexpr (BYTES == 8) {
        const uint2 v = load((const uint2*)p + i);
        words[0] = v.x, words[1] = v.y;
    } else if constexpr (BYTES == 4) {
        words[0] = load((const u32*)p + i);
    } else {
        static_assert(BYTES == 2, "vectors of 2, 4, 8 or 16 bytes");
        words[0] = load((const u16*)p + i);
    }
}

// N float16 side by side.
template <int N> __device__ __forceinline__ void load_halves(const void* p, i64 first, float* x) {
    const int STEP = N > 8 ? 8 : N;
#pragma unroll
    for (int n = 0; n < N; n += STEP) {
        u32 words[4];
        load_words<2 * STEP>(p, (first + n) / STEP, words);
#pragma unroll
        for (int i = 0; i < STEP; i++) x[n + i] = half_to_float((u16)(words[i / 2] >> (16 * (i % 2))));
    }
}

// Codes that need no scale; FACTOR corrects an exponent that was read with another bias.
template <typename L, int FACTOR> struct Unscaled {
    __device__ __forceinline__ void fetch(const Stored&, const Place&, int, bool) {}
    __device__ __forceinline__ float factor() const { return (float)FACTOR; }
    __device__ __forceinline__ void apply(float*) const {}
};

// One float32 for each token and head: it never meets the numbers.
template <typename L> struct OneScale {
    float scale;
    __device__ __forceinline__ void fetch(const Stored& stored, const Place& place, int, bool) {
        scale = 1.0f;
        if (place.valid) scale = load((const float*)stored.scales + place.entry);
    }
    __device__ __forceinline__ float factor() const { return scale; }
    __device__ __forceinline__ void apply(float*) const {}
};

// KIVI's keys: float16 scale and zero for each channel and 2^shift tokens in a row. Multiplied into the
// numbers and not into the queries: one product a number serves all rows.
template <typename L> struct ChannelScales {
    float scales[L::PER_LANE], zeros[L::PER_LANE];
    __device__ __forceinline__ void fetch(const Stored& stored, const Place& place, int lane, bool active) {
#pragma unroll
        for (int i = 0; i < L::PER_LANE; i++) scales[i] = zeros[i] = 0.0f;
        if (place.valid && active)
#pragma unroll
            for (int i = 0; i < L::PER_LANE; i += L::STRETCH) {
                // Blocks hold whole groups, so the group's number follows from the entry's.
                const i64 at = (place.entry >> stored.shift) * (L::VECTORS_OF_KEY * L::C::COUNT) + L::channel(lane, i);
                load_halves<L::STRETCH>(stored.scales, at, scales + i);
                load_halves<L::STRETCH>(stored.zeros, at, zeros + i);
            }
    }
    __device__ __forceinline__ float factor() const { return 1.0f; }
    __device__ __forceinline__ void apply(float* x) const {
#pragma unroll
        for (int i = 0; i < L::PER_LANE; i++) x[i] = x[i] * scales[i] + zeros[i];
    }
};

// KIVI's values: float16 scale and zero for each token and 2^shift channels in a row, which hold a
// stretch of channels of one lane whole.
template <typename L> struct StretchScales {
    static const int N = L::PER_LANE / L::STRETCH;
    u16 scales[N], zeros[N];
    __device__ __forceinline__ void fetch(const Stored& stored, const Place& place, int lane, bool active) {
#pragma unroll
        for (int n = 0; n < N; n++) {
            scales[n] = zeros[n] = 0;
            if (place.valid && active) {
                const i64 at = place.entry * ((L::VECTORS_OF_KEY * L::C::COUNT) >> stored.shift) +
                               (L::channel(lane, n * L::STRETCH) >> stored.shift);
                scales[n] = load((const u16*)stored.scales + at);
                zeros[n] = load((const u16*)stored.zeros + at);
            }
        }
    }
    __device__ __forceinline__ float factor() const { return 1.0f; }
    __device__ __forceinline__ void apply(float* x) const {
#pragma unroll
        for (int n = 0; n < N; n++) {
            const float scale = half_to_float(scales[n]), zero = half_to_float(zeros[n]);
#pragma unroll
            for (int i = 0; i < L::STRETCH; i++) x[n * L::STRETCH + i] = x[n * L::STRETCH + i] * scale + zero;
        }
    }
};

// The numbers themselves, as float, Half or BFloat16.
template <typename T> struct Plain {
    static const int COUNT = Vector<T>::COUNT, BYTES = 16, PARTS = 1;
    static const bool SHARED = false;  // whether tokens that follow one another share the scales of keys
    template <typename L> using KeyScale = Unscaled<L, 1>;
    template <typename L> using ValueScale = Unscaled<L, 1>;
    static __device__ __forceinline__ void unpack(const u32* w, float* x) {
        Vector<T>::unpack(uint4{w[0], w[1], w[2], w[3]}, x);
    }
};

// int8 in two's complement. A byte b = code + 128 put under the bits of 2^23 is the float 2^23 + b: a
// permutation and a subtraction, at the full rate of both units. The conversion I2F is another
// unit's, with a quarter to an eighth of that rate.
template <int N> struct Int8 {
    static const int COUNT = N, BYTES = N, PARTS = 1;
    static const bool SHARED = false;
    template <typename L> using KeyScale = OneScale<L>;
    template <typename L> using ValueScale = OneScale<L>;
    static __device__ __forceinline__ void unpack(const u32* w, float* x) {
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = float_of_bits(__byte_perm(w[i / 4] ^ 0x80808080u, 0x4b000000u, 0x7440 + i % 4)) - 8388736.0f;
    }
};

// Bytes 2n and 2n + 1 of a word as the upper halves of two float16.
__device__ __forceinline__ u32 upper_halves(u32 word, int n) {
    return __byte_perm(word, 0u, n ? 0x3424 : 0x1404);
}

// fp8 with 5 bits of exponent: a float16 without its lower byte.
template <int N> struct E5M2 {
    static const int COUNT = N, BYTES = N, PARTS = 1;
    static const bool SHARED = false;
    template <typename L> using KeyScale = Unscaled<L, 1>;
    template <typename L> using ValueScale = Unscaled<L, 1>;
    static __device__ __forceinline__ void unpack(const u32* w, float* x) {
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            const u32 pair = upper_halves(w[i / 4], i / 2 % 2);
            x[i] = half_to_float((u16)pair);
            x[i + 1] = half_to_float((u16)(pair >> 16));
        }
    }
};

// fp8 with 4 bits of exponent: moved down by a bit it is a float16 of a 256th of the number, small ones
// too, because the exponents' biases are 7 and 15. Only NaN (all bits set) has to be looked for.
template <int N> struct E4M3 {
    static const int COUNT = N, BYTES = N, PARTS = 1;
    static const bool SHARED = false;
    template <typename L> using KeyScale = Unscaled<L, 256>;
    template <typename L> using ValueScale = Unscaled<L, 256>;
    static __device__ __forceinline__ void unpack(const u32* w, float* x) {
        u32 nan = 0u;
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            const u32 pair = upper_halves(w[i / 4], i / 2 % 2);
            const u32 moved = (pair & 0x80008000u) | (pair >> 1 & 0x3f803f80u);
            x[i] = half_to_float((u16)moved);
            x[i + 1] = half_to_float((u16)(moved >> 16));
            if (i % 4 == 0) nan |= (w[i / 4] & 0x7f7f7f7fu) + 0x01010101u;
        }
        if (nan & 0x80808080u)  // seldom, so one look serves N numbers
#pragma unroll
            for (int i = 0; i < N; i++)
                if ((w[i / 4] >> (8 * (i % 4)) & 0x7f) == 0x7f) x[i] = float_of_bits(0x7fc00000u);
    }
};

// Codes of BITS bits from 0 up, PARTS to a byte. A code at bit p of a word, put there under the bits of
// 2^23, is the float 2^23 + code · 2^p: one logical operation, then one multiplication with addition
// brings it down. Bits above 15 are moved down first, for the mantissa ends at 23.
template <int BITS, int N> struct Kivi {
    static const int COUNT = N, BYTES = N * BITS / 8, PARTS = 8 / BITS;
    static const bool SHARED = true;
    template <typename L> using KeyScale = ChannelScales<L>;
    template <typename L> using ValueScale = StretchScales<L>;
    static __device__ __forceinline__ void unpack(const u32* w, float* x) {
#pragma unroll
        for (int part = 0; part < PARTS; part++)
#pragma unroll
            for (int byte = 0; byte < BYTES; byte++) {
                const int p = 8 * (byte % 2) + BITS * part;
                const u32 word = byte % 4 < 2 ? w[byte / 4] : w[byte / 4] >> 16;
                const u32 mask = ((1u << BITS) - 1u) << p;
                const float down = 1.0f / (float)(1 << p);
                x[part * BYTES + byte] = float_of_bits((word & mask) | 0x4b000000u) * down - 8388608.0f * down;
            }
    }
};
