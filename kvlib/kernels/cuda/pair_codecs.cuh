// How keys and values are written, and how they become pairs of 16-bit numbers for tensor cores.
// (kvlib/codecs is the same in NumPy, and says why.)
//
// A codec unpacks chunks of BYTES bytes into pairs of numbers that share a register. Of keys, pairs are
// two channels of one key, in the order that costs the fewest instructions: `byte_of` and `part_of` say
// where number e of a chunk is. Of values, pairs are one channel of two keys: `interleave` mixes two
// chunks so that the same unpacking gives them, pair e being byte `channel_of`, part `channel_part_of`.
// What a number is multiplied by goes to the score or the weight where one factor serves a whole key
// (FACTORS), and to the numbers themselves where it does not (GROUPED: KIVI). A block has
// `warps`, and each takes `tile` keys of a head of `dim` numbers at a time.
// Chunks have up to `widest` bytes of keys, and VALUES of values.
#pragma once
#include "pairs.cuh"

// Chunk i of BYTES bytes, in one load.
template <int BYTES> __device__ __forceinline__ void load_chunk(const void* p, i64 i, u32* words) {
    if constexpr (BYTES == 16) {
        const uint4 v = load((const uint4*)p + i);
        words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
    } else if constexpr (BYTES == 8) {
        const uint2 v = load((const uint2*)p + i);
        words[0] = v.x, words[1] = v.y;
    } else if constexpr (BYTES == 4) {
        words[0] = load((const u32*)p + i);
    } else if constexpr (BYTES == 2) {
        words[0] = load((const u16*)p + i);
    } else {
        static_assert(BYTES == 1, "chunks of 1, 2, 4, 8 or 16 bytes");
        words[0] = load((const u8*)p + i);
    }
}

// Weights are at most 2^(this + 8): float16 ends at 65504, and bfloat16 has room to the other side.
template <typename T> __device__ constexpr float lift_of();
template <> __device__ constexpr float lift_of<Half>() { return 6.0f; }
template <> __device__ constexpr float lift_of<BFloat16>() { return -8.0f; }
static const float LOWEST = -1e30f;

// Keys or values as they come.
template <typename T> struct Numbers {
    typedef T Number;  // what tensor cores are given
    static const int BITS = 16, PARTS = 1, VALUES = 16;
    static __device__ constexpr int widest(int) { return 16; }
    static __device__ constexpr int tile(int, int) { return 16; }
    static __device__ constexpr int warps(int dim, int rows) { return dim <= 128 && rows == 4 ? 8 : 4; }
    static const bool FACTORS = false, GROUPED = false, BY_32 = false;
    static const int LARGEST_QUERY = 0;
    static __device__ constexpr int byte_of(int, int e) { return 2 * e; }
    static __device__ constexpr int part_of(int, int) { return 0; }
    template <int BYTES> __device__ __forceinline__ void unpack(const u32* words, u32* pairs) const {
#pragma unroll
        for (int i = 0; i < BYTES / 4; i++) pairs[i] = words[i];
    }
    static __device__ constexpr int channel_of(int e) { return e; }
    static __device__ constexpr int channel_part_of(int) { return 0; }
    template <int BYTES> static __device__ __forceinline__ void interleave(const u32* a, const u32* b, u32* words) {
#pragma unroll
        for (int i = 0; i < BYTES / 4; i++) {
            words[2 * i] = __byte_perm(a[i], b[i], 0x5410);
            words[2 * i + 1] = __byte_perm(a[i], b[i], 0x7632);
        }
    }
};

// Codes of a byte, in their order.
struct Bytes {
    static const int BITS = 8, PARTS = 1, VALUES = 16;
    static __device__ constexpr int widest(int) { return 16; }
    static __device__ constexpr int tile(int dim, int rows) { return dim > 128 || (rows > 4 && dim > 64) ? 16 : 32; }
    static __device__ constexpr int warps(int, int) { return 4; }
    static const bool GROUPED = false, BY_32 = false;
    static const int LARGEST_QUERY = 0;
    static __device__ constexpr int byte_of(int, int e) { return e; }
    static __device__ constexpr int part_of(int, int) { return 0; }
    static __device__ constexpr int channel_of(int e) { return e; }
    static __device__ constexpr int channel_part_of(int) { return 0; }
    template <int BYTES> static __device__ __forceinline__ void interleave(const u32* a, const u32* b, u32* words) {
#pragma unroll
        for (int i = 0; i < BYTES / 4; i++) {
            words[2 * i] = __byte_perm(a[i], b[i], 0x5140);
            words[2 * i + 1] = __byte_perm(a[i], b[i], 0x7362);
        }
    }
};

// int8 in two's complement. With its sign flipped, a code under the exponent of 1024 in float16 is 1152
// more than its number: a logical operation (and a shift for the odd bytes), and a subtraction.
struct Int8 : Bytes {
    typedef Half Number;
    static const bool FACTORS = true;  // a float32 for each token and head
    static __device__ constexpr int byte_of(int, int e) { return e / 4 * 4 + e % 4 / 2 + e % 2 * 2; }
    u32 one = in_register(0x3c003c00u), less = in_register(0xe480e480u), mask = in_register(0x00ff00ffu);
    template <int BYTES> __device__ __forceinline__ void unpack(const u32* words, u32* pairs) const {
#pragma unroll
        for (int i = 0; i < BYTES / 4; i++)
#pragma unroll
            for (int j = 0; j < 2; j++)
                pairs[2 * i + j] = multiply_add_pair<Half>(((words[i] >> 8 * j) & mask) ^ 0x64806480u, one, less);
    }
    template <int BYTES> static __device__ __forceinline__ void interleave(const u32* a, const u32* b, u32* words) {
#pragma unroll
        for (int i = 0; i < BYTES / 4; i++) {
            words[2 * i] = __byte_perm(a[i], b[i], 0x5410);
            words[2 * i + 1] = __byte_perm(a[i], b[i], 0x7632);
        }
    }
};

struct E4M3 : Bytes {
    typedef Half Number;
    static const bool FACTORS = false;
    template <int BYTES> __device__ __forceinline__ void unpack(const u32* words, u32* pairs) const {
#pragma unroll
        for (int i = 0; i < BYTES / 2; i++) pairs[i] = halves_of_e4m3(words[i / 2] >> (16 * (i % 2)));
    }
};

// fp8 with 5 bits of exponent: a float16 without its lower byte.
struct E5M2 : Bytes {
    typedef Half Number;
    static const bool FACTORS = false;
    template <int BYTES> __device__ __forceinline__ void unpack(const u32* words, u32* pairs) const {
#pragma unroll
        for (int i = 0; i < BYTES / 2; i++) pairs[i] = __byte_perm(words[i / 2], 0u, i % 2 ? 0x3424 : 0x1404);
    }
};

// KIVI's codes of 2, 4 or 8 bits from 0 up, PARTS to a byte, D / PARTS channels apart. A code alone in 16
// bits is a subnormal float16, which tensor cores multiply exactly: code · 2^-24, or 2^p times that if it is
// at bit p. So one logical operation unpacks two. Scales are multiplied into queries and weights.
template <int BITS_, bool BY_32_ = true> struct Kivi {
    typedef Half Number;
    static const int BITS = BITS_, PARTS = 8 / BITS, VALUES = 4;
    static __device__ constexpr int widest(int) { return 16; }
    static __device__ constexpr int tile(int dim, int) { return BY_32_ && (dim == 64 || dim == 128) ? 32 : 16; }
    static __device__ constexpr int warps(int, int) { return 4; }
    static const bool FACTORS = false, GROUPED = true, BY_32 = BY_32_;
    // Queries are below 2^this, and times a scale (at most 131008 / (2^BITS − 1)) below float16's 65504.
    static const int LARGEST_QUERY = BITS == 8 ? 6 : BITS == 4 ? 2 : 0;
    u32 mask[PARTS];

    __device__ __forceinline__ Kivi() {
#pragma unroll
        for (int i = 0; i < PARTS; i++) mask[i] = in_register(0x00010001u * (((1u << BITS) - 1u) << BITS * i));
    }
    // Number e of a chunk of keys: two channels side by side a register, their parts one after the other.
    static __device__ constexpr int byte_of(int, int e) {
        return e / (4 * PARTS) * 4 + e / 2 % (2 * PARTS) / PARTS * 2 + e % 2;
    }
    static __device__ constexpr int part_of(int, int e) { return e / 2 % PARTS; }
    __device__ __forceinline__ void two_bytes(u32 word, u32* pairs) const {  // 16 bits apart
#pragma unroll
        for (int i = 0; i < PARTS; i++) pairs[i] = word & mask[i];
    }
    template <int BYTES> __device__ __forceinline__ void unpack(const u32* words, u32* pairs) const {
        if constexpr (BYTES == 2) {
            two_bytes(words[0], pairs);
        } else {
#pragma unroll
            for (int i = 0; i < BYTES / 4; i++) {
                two_bytes(words[i], pairs + 2 * PARTS * i);
                two_bytes(words[i] >> 8, pairs + 2 * PARTS * i + PARTS);
            }
        }
    }
    template <int BYTES> __device__ __forceinline__ void unpack_keys(const u32* words, u32* pairs) const {
        u32 ordered[BYTES < 4 ? 1 : BYTES / 4];
#pragma unroll
        for (int i = 0; i < (BYTES < 4 ? 1 : BYTES / 4); i++) ordered[i] = __byte_perm(words[i], 0u, BYTES == 2 ? 0x4140 : 0x3120);
        unpack<BYTES>(ordered, pairs);
    }
    static __device__ constexpr int channel_of(int e) { return e / PARTS; }
    static __device__ constexpr int channel_part_of(int e) { return e % PARTS; }
    template <int BYTES> static __device__ __forceinline__ void interleave(const u32* a, const u32* b, u32* words) {
        if constexpr (BYTES < 4) {
            words[0] = __byte_perm(a[0], b[0], BYTES == 1 ? 0x1410 : 0x5410);
        } else {
#pragma unroll
            for (int i = 0; i < BYTES / 4; i++) {
                words[2 * i] = __byte_perm(a[i], b[i], 0x5410);
                words[2 * i + 1] = __byte_perm(a[i], b[i], 0x7632);
            }
        }
    }
};
