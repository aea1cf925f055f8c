// How keys and values are written, and how they become pairs of 16-bit numbers for tensor cores.
// (kvlib/codecs is the same in NumPy, and says why.)
//
// A codec unpacks chunks of BYTES bytes into pairs of numbers that share a register. Of keys, pairs are
// two channels of one key, in the order that costs the fewest instructions: `byte_of` and `part_of` say
// where number e of a chunk lies. Of values, pairs are one channel of two keys: `interleave` mixes two
// chunks so that the same unpacking gives them, pair e being byte `channel_of`, part `channel_part_of`.
// What a number is multiplied by goes to the score or the weight where one factor serves a whole key
// (FACTORS), and to the numbers themselves where it does not (GROUPED: KIVI). A warp takes `tile` keys of a
// head of `dim` numbers at a time; where registers do not hold them and their values, those come `late`.
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

// Keys or values as they come.
template <typename T> struct Numbers {
    typedef T Number;  // what tensor cores are given
    static const int BITS = 16, PARTS = 1, VALUES = 16;
    static __device__ constexpr int widest(int) { return 16; }
    static __device__ constexpr int tile(int) { return 16; }
    static __device__ constexpr bool late(int dim) { return dim > 128; }
    static const bool FACTORS = false, GROUPED = false;
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
    static __device__ constexpr int tile(int) { return 16; }
    static __device__ constexpr bool late(int) { return false; }
    static const bool GROUPED = false;
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

// int8 in two's complement, which bfloat16 holds exactly: the lower seven bits under the exponent of 128
// are 128 + x, and the sign's bit makes a 128 that is taken away a 256.
struct Int8 : Bytes {
    typedef BFloat16 Number;
    static const bool FACTORS = true;  // a float32 for each token and head
    const u32 plus = in_register(0x43434343u), minus = in_register(0xc3c3c3c3u);
    template <int BYTES> __device__ __forceinline__ void unpack(const u32* words, u32* pairs) const {
#pragma unroll
        for (int i = 0; i < BYTES / 4; i++) {
            const u32 size = words[i] & 0x7f7f7f7fu, sign = words[i] & 0x80808080u;
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const u32 which = j ? 0x4342 : 0x4140;
                pairs[2 * i + j] = multiply_add_pair<BFloat16>(
                    __byte_perm(size, plus, which), 0x3f803f80u, __byte_perm(sign, minus, which));
            }
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

// Codes of 2, 4 or 8 bits from 0 up, PARTS to a byte, D / PARTS channels apart. A code at bit p, put there
// under the bits of 1024 in float16, is 1024 + code · 2^p: one logical operation, and one
// multiplication with addition brings it down, for two codes 16 bits apart.
template <int BITS_> struct Kivi {
    typedef Half Number;
    static const int BITS = BITS_, PARTS = 8 / BITS, VALUES = 2 * BITS;
    static __device__ constexpr int widest(int dim) { return dim > 128 ? 2 * BITS : BITS == 2 ? 8 : 16; }
    static __device__ constexpr int tile(int dim) { return dim == 64 || dim == 128 ? 32 : 16; }
    static __device__ constexpr bool late(int dim) { return BITS == 2 || dim == 96 || dim == 256; }
    static const bool FACTORS = false, GROUPED = true;
    // Of numbers at bit BITS · i: what is theirs in a word, and what 1024 becomes when they are brought down.
    u32 exponent, mask[PARTS], less[PARTS];

    __device__ __forceinline__ Kivi() {
        exponent = in_register(0x64006400u);
#pragma unroll
        for (int i = 0; i < PARTS; i++) {
            mask[i] = 0x00010001u * (((1u << BITS) - 1u) << BITS * i);
            less[i] = 0xe400e400u - 0x04000400u * BITS * i;
            if (PARTS == 2) mask[i] = in_register(mask[i]), less[i] = in_register(less[i]);  // 2 bits: no room
        }
    }

    // Number e of a chunk of `bytes`: two numbers a register, PARTS registers for two bytes.
    static __device__ constexpr int byte_of(int bytes, int e) {
        return bytes == 2 ? e % 2 : e / (4 * PARTS) * 4 + e / 2 % (2 * PARTS) / PARTS + e % 2 * 2;
    }
    static __device__ constexpr int part_of(int, int e) { return e / 2 % PARTS; }

    __device__ __forceinline__ void two_bytes(u32 word, u32* pairs) const {  // 16 bits apart
#pragma unroll
        for (int i = 0; i < PARTS; i++)  // times 2^-p: exponent 15 − p
            pairs[i] = multiply_add_pair<Half>((word & mask[i]) | exponent, 0x04000400u * (15 - BITS * i), less[i]);
    }
    template <int BYTES> __device__ __forceinline__ void unpack(const u32* words, u32* pairs) const {
        if constexpr (BYTES == 2) {
            two_bytes(__byte_perm(words[0], 0u, 0x4140), pairs);
        } else {
#pragma unroll
            for (int i = 0; i < BYTES / 4; i++) {
                two_bytes(words[i], pairs + 2 * PARTS * i);
                two_bytes(words[i] >> 8, pairs + 2 * PARTS * i + PARTS);
            }
        }
    }
    static __device__ constexpr int channel_of(int e) { return e / PARTS; }
    static __device__ constexpr int channel_part_of(int e) { return e % PARTS; }
    template <int BYTES> static __device__ __forceinline__ void interleave(const u32* a, const u32* b, u32* words) {
        if constexpr (BYTES < 4) {
            words[0] = __byte_perm(a[0], b[0], BYTES == 1 ? 0x0040 : 0x5410);
        } else {
#pragma unroll
            for (int i = 0; i < BYTES / 4; i++) {
                words[2 * i] = __byte_perm(a[i], b[i], 0x5410);
                words[2 * i + 1] = __byte_perm(a[i], b[i], 0x7632);
            }
        }
    }
};
