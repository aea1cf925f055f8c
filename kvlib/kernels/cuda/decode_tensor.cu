// Decode attention on tensor cores: query heads that share a kv head are columns of a product.
//
// Decoding is reading, but ordinary units can't keep up with the memory where several query heads share
// a key, or where its codes have to be unpacked. Here a warp takes TILE keys at a time. Sixteen keys are
// the rows of a product, and four query heads its eight columns: rounding to 16 bits takes something from
// queries and weights, and every second column has what it took. Eight heads are two such products. Only
// KIVI's scales are multiplied into rounded queries and weights.
//
// Nothing but the queries goes through shared memory: a sum over channels may take them in any order, so
// a lane loads 16 bytes of a key and they are its part of the product. Of values it loads four keys
// that its weights belong to, and pairs of keys side by side are a permutation of bytes. The next keys are
// loaded as soon as the registers of these are free, while their values are multiplied.
//
// Grid, work items, places and merges are those of decode.cu, and so are the arguments.
#include "pair_codecs.cuh"
#include "parts.cuh"
#include "state.cuh"
#include "work.cuh"

__device__ constexpr int chunk_of(int bytes, int widest) {  // the largest power of two that divides
    int chunk = 1;
    while (chunk < widest && bytes % (2 * chunk) == 0) chunk *= 2;
    return chunk;
}

// ((Block · Hkv) + kv head) · block size + position of a key, as what several keys share and a constant.
struct Entry {
    i64 base;
    int after;
};

// Of a key of D numbers a lane has a quarter (lane % 4 says which), of a value an eighth (lane / 4),
// in CHUNKS chunks of BYTES bytes that are LANES chunks apart.
template <typename Codec, int D, int LANES_, int WIDEST> struct Share {
    static const int LANES = LANES_, ROW = D * Codec::BITS / 8;  // bytes of a key
    static const int BYTES = chunk_of(ROW / LANES, WIDEST), CHUNKS = ROW / LANES / BYTES;
    static const int WORDS = BYTES < 4 ? 1 : BYTES / 4, NUMBERS = BYTES * 8 / Codec::BITS;
    static const int WIDTH = Codec::BITS < 8 ? 1 : Codec::BITS / 8;  // bytes from one channel to the next
    static const int RUN = BYTES / WIDTH;  // channels side by side: of one part
    static_assert(ROW % LANES == 0, "whole chunks");

    static __device__ __forceinline__ int byte(int chunk, int lane) { return (chunk * LANES + lane) * BYTES; }
    // Numbers of a chunk of values whose channels are rows lane / 4 and lane / 4 + 8 of product `pair`.
    static __device__ constexpr int number_of(int pair, int row) {
        return BYTES < 2 || Codec::PARTS == 1 ? 2 * pair + row
            : (pair % (BYTES / 2) * 2 + row) * Codec::PARTS + pair / (BYTES / 2);
    }
    // The channel of number e of a chunk of keys, and of pair e of a chunk of values.
    static __device__ __forceinline__ int channel(int chunk, int lane, int e) {
        return (byte(chunk, lane) + Codec::byte_of(BYTES, e)) / WIDTH + Codec::part_of(BYTES, e) * (D / Codec::PARTS);
    }
    static __device__ __forceinline__ int value_channel(int chunk, int lane, int e) {
        return byte(chunk, lane) / WIDTH + Codec::channel_of(e) + Codec::channel_part_of(e) * (D / Codec::PARTS);
    }
    static __device__ __forceinline__ void fetch(const void* codes, const Entry& entry, int lane, u32 (&words)[CHUNKS][WORDS]) {
        const u8* const row = (const u8*)codes + entry.base * ROW + lane * BYTES + entry.after * ROW;
#pragma unroll
        for (int i = 0; i < CHUNKS; i++) load_chunk<BYTES>(row, i * LANES, words[i]);
    }
};

template <bool X> struct Wide { static const bool value = X; };

// N numbers of queries side by side: 4 bytes each in `words`, or 2 in half of them.
template <int N, bool WIDE> __device__ __forceinline__ void load_queries(const void* q, i64 i, u32* words) {
    static const int BYTES = N * (WIDE ? 4 : 2), STEP = BYTES < 16 ? BYTES : 16;
#pragma unroll
    for (int n = 0; n < BYTES / STEP; n++) {
        const u8* const p = (const u8*)q + i * (WIDE ? 4 : 2) + n * STEP;
        u32* const to = words + n * STEP / 4;
        if constexpr (STEP == 16) {
            const uint4 x = load_fresh((const uint4*)p);
            to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
        } else if constexpr (STEP == 8) {
            const uint2 x = load_fresh((const uint2*)p);
            to[0] = x.x, to[1] = x.y;
        } else {
            to[0] = load_fresh((const u32*)p);
        }
    }
}

__device__ __forceinline__ u32 word_of(const uint4& x, int i) { return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w; }
__device__ __forceinline__ float power_of_two(int p) { return float_of_bits((u32)(127 + p) << 23); }
__device__ __forceinline__ float low_float(u32 halves) { return half_to_float((u16)halves); }
__device__ __forceinline__ float high_float(u32 halves) { return half_to_float((u16)(halves >> 16)); }

// KIVI's scales and zeros, float16. Of keys, each channel has one for 2^k_shift tokens: those of a lane's
// channels, in the order of its pairs.
template <typename Codec, int D, typename K> struct KeyScales {
    static const bool THERE = Codec::GROUPED, AHEAD = Codec::BY_32 && D <= 128;  // registers have room for the next
    u32 scales[THERE ? K::CHUNKS : 1][THERE ? K::NUMBERS / 2 : 1], zeros[THERE ? K::CHUNKS : 1][THERE ? K::NUMBERS / 2 : 1];

    // Zeros of pair i of a part, and how many fours of them there are.
    static const int OF_PART = D / 8 / Codec::PARTS, FOURS = (OF_PART + 3) / 4;
    __device__ __forceinline__ u32 zero_of(int part, int i) const {
        const int pair = i * Codec::PARTS + part;
        return i < OF_PART ? zeros[pair / (K::NUMBERS / 2) % K::CHUNKS][pair % (K::NUMBERS / 2)] : 0u;
    }
    __device__ __forceinline__ void fetch(const void* stored_scales, const void* stored_zeros, i64 group, int lane) {
        if constexpr (THERE) {
            fetch_one(stored_scales, group, lane, scales);
            fetch_one(stored_zeros, group, lane, zeros);
        }
    }
    static __device__ __forceinline__ void fetch_one(const void* p, i64 group, int lane, u32 (&pairs)[THERE ? K::CHUNKS : 1][THERE ? K::NUMBERS / 2 : 1]) {
        static const int STEP = K::BYTES * 2 > 16 ? 16 : K::BYTES * 2;  // BYTES channels side by side
#pragma unroll
        for (int i = 0; i < K::CHUNKS; i++)
#pragma unroll
            for (int part = 0; part < Codec::PARTS; part++) {
                u32 words[K::BYTES / 2];
#pragma unroll
                for (int n = 0; n < K::BYTES * 2 / STEP; n++)
                    load_chunk<STEP>((const u8*)p + (group * D + part * (D / Codec::PARTS) + K::byte(i, lane)) * 2, n, words + n * STEP / 4);
#pragma unroll
                for (int w = 0; w < K::BYTES / 2; w++)
                    pairs[i][w / 2 * (2 * Codec::PARTS) + w % 2 * Codec::PARTS + part] = words[w];
            }
    }
};

// Of values, a token has one scale and one zero for 2^v_shift channels. Thirty-two channels are the rule: a
// token's scales are loaded at once, and a product's 16 channels share one.
template <typename Codec, int D, typename V> struct ValueScales {
    static const int GROUPS = D / 32, UNIT = 8 * V::BYTES;
    static const bool THERE = Codec::BY_32;
    u32 scales[(GROUPS + 1) / 2], zeros[(GROUPS + 1) / 2];

    __device__ __forceinline__ void fetch(const void* stored_scales, const void* stored_zeros, i64 entry) {
        static const int STEP = GROUPS % 2 ? 2 : GROUPS * 2;
#pragma unroll
        for (int i = 0; i < (GROUPS + 1) / 2; i++) scales[i] = zeros[i] = 0u;
#pragma unroll
        for (int i = 0; i < GROUPS * 2 / STEP; i++) {
            u32 a[STEP < 4 ? 1 : STEP / 4], b[STEP < 4 ? 1 : STEP / 4];
            load_chunk<STEP>(stored_scales, entry * (GROUPS * 2 / STEP) + i, a);
            load_chunk<STEP>(stored_zeros, entry * (GROUPS * 2 / STEP) + i, b);
            if constexpr (STEP == 2) {
                scales[i / 2] |= a[0] << 16 * (i % 2), zeros[i / 2] |= b[0] << 16 * (i % 2);
            } else {
#pragma unroll
                for (int w = 0; w < STEP / 4; w++) scales[w] = a[w], zeros[w] = b[w];
            }
        }
    }
    static __device__ __forceinline__ float of(const u32* halves, int group) {
        return group % 2 ? high_float(halves[group / 2]) : low_float(halves[group / 2]);
    }
    __device__ __forceinline__ float largest() const {
        float top = 0.0f;
#pragma unroll
        for (int i = 0; i < GROUPS; i++) top = fmaxf(top, fabsf(of(scales, i)));
        return top;
    }
    // The group of all channels of chunk i and part p.
    static __device__ constexpr int group_of(int i, int p) { return (i * UNIT + p * (D / Codec::PARTS)) / 32; }
};

// Numbers in shared memory, skewed so that lanes that write D / 8 channels each meet different banks.
template <int D> struct Skewed {
    static const int STRIDE = D + D / 8 + 1;
    static __device__ __forceinline__ int at(int row, int d) { return row * STRIDE + d + d / 32 * 4; }
};

// Blocks of a multiprocessor that registers must leave room for (plans.py counts on it). For a Blackwell
// the compiler needs more registers.
#if __CUDA_ARCH__ >= 1000
static const bool ROOMY = true;
#else
static const bool ROOMY = false;
#endif
template <typename Codec> __device__ constexpr int blocks_for(int dim, int rows) {
    if (ROOMY || dim > 128 || (Codec::GROUPED && (rows > 4 || Codec::BITS == 8 || !Codec::BY_32)))
        return 8 / Codec::warps(dim, rows);
    return Codec::warps(dim, rows) == 8 ? 2 : 3;
}

template <typename Codec, int D, int ROWS, int WARPS = Codec::warps(D, ROWS), int BLOCKS = blocks_for<Codec>(D, ROWS), int TILE = Codec::tile(D, ROWS)>
__global__ void __launch_bounds__(WARPS * 32, BLOCKS) decode_tensor(
    void* __restrict__ out, float* __restrict__ lse, float* __restrict__ part_out, float* __restrict__ part_lse,
    int* __restrict__ finished, const void* __restrict__ q,
    const void* __restrict__ k_codes, const void* __restrict__ k_scales, const void* __restrict__ k_zeros,
    const void* __restrict__ v_codes, const void* __restrict__ v_scales, const void* __restrict__ v_zeros,
    const int* __restrict__ block_table, const int* __restrict__ seq_lens, const int* __restrict__ behind,
    const void* __restrict__ items, const int* __restrict__ first_part,
    int table_width, int block_size, int block_shift, int num_kv_heads, int groups, int window,
    int k_shift, int v_shift, int kind, int even, float scale, float softcap)
{
    let_next_start();
    wait_for_previous();
    typedef typename Codec::Number T;
    typedef Share<Codec, D, 4, Codec::widest(D)> K;
    typedef Share<Codec, D, 8, Codec::VALUES> V;
    typedef KeyScales<Codec, D, K> KS;
    typedef ValueScales<Codec, D, V> VS;
    static const int THREADS = WARPS * 32, PRODUCTS = ROWS / 4, HALVES = TILE / 16, STEPS = D / 16, TILES = D / 16;
    const Item item = item_of(items, blockIdx.y, even);
    const int b = item.request, split = item.split, splits = item.splits;
    const int tiles = (groups + ROWS - 1) / ROWS;
    const int kv_head = blockIdx.x / tiles, first_row = blockIdx.x % tiles * ROWS;
    const int rows = min(ROWS, groups - first_row);
    const int num_qo_heads = num_kv_heads * groups;
    const i64 row0 = (i64)b * num_qo_heads + kv_head * groups + first_row;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int g = lane / 4, t = lane % 4;  // a key's row or a value's eighth; a head, or a key's quarter

    // This block's keys: whole tiles, but for the last.
    const int len = load_fresh(seq_lens + b);
    const int past = window > 0 && behind ? load_fresh(behind + b) : 0;
    const int low = window > 0 ? max(0, len + past - window) : 0;  // beyond len: no keys, begin > end
    const int each = ((len - low + splits - 1) / splits + TILE - 1) & -TILE;
    const int begin = min(len, low + split * each), end = min(len, begin + each);
    const int* table = block_table + (i64)b * table_width;

    const Codec codec;
    // Weights are 2^(score − m). m is below the largest so far, and follows it only where weights would
    // become more than 2^(LIFT + 8): float16 is given large ones, because it ends at 2^-24.
    constexpr float LIFT = lift_of<T>();
    float m[PRODUCTS], l[PRODUCTS], o[TILES][PRODUCTS][4];
#pragma unroll
    for (int n = 0; n < PRODUCTS; n++) {
        m[n] = LOWEST, l[n] = 0.0f;
#pragma unroll
        for (int i = 0; i < TILES; i++) o[i][n][0] = o[i][n][1] = o[i][n][2] = o[i][n][3] = 0.0f;
    }

    // Tiles begin at multiples of TILE, so that 16 keys are in one block wherever blocks are that large; its
    // number is asked for a turn ahead. Keys before `begin` and from `end` on are not read: another takes
    // their place, with a weight of 0.
    const bool large = block_shift >= 4;
    const u32 inside = (1u << block_shift) - 1u;
    static const int SPAN = Codec::BY_32 ? TILE : 16, SPANS = TILE / SPAN;  // keys in one block
    const int per_block = num_kv_heads * block_size, of_head = kv_head * block_size;
    int blocks[SPANS], first = (begin & -TILE) + warp * TILE;
    const auto find_blocks = [&](int from) {
#pragma unroll
        for (int i = 0; i < SPANS; i++)
            if (large && from + SPAN * i < end) blocks[i] = load_fresh(table + ((from + SPAN * i) >> block_shift));
    };
    u32 keys[2 * HALVES][K::CHUNKS][K::WORDS], values[4 * HALVES][V::CHUNKS][V::WORDS];
    float factors[2 * HALVES], value_factors[2 * HALVES];
    KS key_scales;
    VS value_scales[2 * HALVES];
    static const int PAIRS = V::NUMBERS / 2;                // products of a chunk of values
    float zero_sums[VS::GROUPS][PRODUCTS];
#pragma unroll
    for (int i = 0; i < VS::GROUPS; i++)
#pragma unroll
        for (int n = 0; n < PRODUCTS; n++) zero_sums[i][n] = 0.0f;
    const auto entry_at = [&](int j) {
        j = min(max(j, begin), end - 1);
        return (i64)load_fresh(table + (j >> block_shift)) * per_block + (of_head + (j & (int)inside));
    };
    // call(entry) in the shorter way, where all keys are there, or the longer; entry(i): of key i + own.
    const auto with_entries = [&](int from, int own, const auto& call) {
        if (large && from >= begin && from + TILE <= end) {
            i64 base[SPANS];
#pragma unroll
            for (int i = 0; i < SPANS; i++)
                base[i] = (i64)blocks[i] * per_block + (of_head + ((from + SPAN * i) & (int)inside) + own);
            call([&](int i) { return Entry{base[i / SPAN], i % SPAN}; });
        } else {
            call([&](int i) { return Entry{entry_at(from + i + own), 0}; });
        }
    };
    const auto fetch_keys = [&](int from) {
        with_entries(from, g, [&](const auto& entry) {
#pragma unroll
            for (int n = 0; n < 2 * HALVES; n++) {
                const Entry at = entry(n / 2 * 16 + n % 2 * 8);
                K::fetch(k_codes, at, t, keys[n]);
                if (Codec::FACTORS) {
                    factors[n] = load((const float*)k_scales + at.base + at.after);
                    value_factors[n] = load((const float*)v_scales + at.base + at.after);
                }
                if (VS::THERE) value_scales[n].fetch(v_scales, v_zeros, at.base + at.after);
            }
        });
        if (KS::AHEAD)
            with_entries(from, 0, [&](const auto& entry) { key_scales.fetch(k_scales, k_zeros, entry(0).base >> k_shift, t); });
    };
    const auto fetch_values = [&](int from) {
        with_entries(from, 2 * t, [&](const auto& entry) {
#pragma unroll
            for (int n = 0; n < 4 * HALVES; n++)
                V::fetch(v_codes, entry(n / 4 * 16 + n / 2 % 2 * 8 + n % 2), g, values[n]);
        });
    };
    static const bool LIFTED = Codec::FACTORS || Codec::GROUPED;
    const auto largest_of = [&](int j) {  // scale or zero of a key's value
        const i64 at = entry_at(j) * (D >> v_shift);
        float top = 0.0f;
        for (int i = 0; i < D >> v_shift; i++)
            top = fmaxf(top, fmaxf(fabsf(load_float((const Half*)v_scales + at + i)), fabsf(load_float((const Half*)v_zeros + at + i))));
        return top;
    };
    // In this case scores leave no registers for values: those are loaded after them, and only then is the
    // next block's number asked for, because it takes the place of theirs.
    static const bool LATE = Codec::GROUPED && !Codec::BY_32 && Codec::BITS == 4 && D == 256;
    find_blocks(first);
    if (first < end) {
        fetch_keys(first);
        if (!LATE) fetch_values(first);
    }

    // Queries as the second factor of the product: column 2h is head h, the next what rounding took of it.
    // A power of two brings a head's largest number below 1, for float16 ends at 65504.
    DYNAMIC_SHARED(float, shared);
    uint4* queries = (uint4*)shared;  // (PRODUCTS, STEPS / 2, 32)
    float row_scale[PRODUCTS];
#pragma unroll
    for (int n = 0; n < PRODUCTS; n++) {
        const int head = 4 * n + g / 2;
        float x[D / 4], top = 0.0f;
        u32 words[D / 4];
        const i64 row = (row0 + min(head, rows - 1)) * D;
        const auto load_all = [&](auto wide) {  // all at once: their latency is that of one
#pragma unroll
            for (int i = 0; i < K::CHUNKS * Codec::PARTS; i++)
                load_queries<K::RUN, decltype(wide)::value>(
                    q, row + K::byte(i / Codec::PARTS, t) / K::WIDTH + i % Codec::PARTS * (D / Codec::PARTS), words + i * K::RUN);
        };
        if (kind == 0) load_all(Wide<true>());
        else load_all(Wide<false>());
        const float by = head < rows ? scale : 0.0f;
#pragma unroll
        for (int i = 0; i < K::CHUNKS; i++)
#pragma unroll
            for (int e = 0; e < K::NUMBERS; e++) {
                const int from = (i * Codec::PARTS + Codec::part_of(K::BYTES, e)) * K::RUN, at = Codec::byte_of(K::BYTES, e) / K::WIDTH;
                const u16 bits = (u16)(words[from + at / 2] >> 16 * (at % 2));
                float* y = x + i * K::NUMBERS + e;
                *y = (kind == 0 ? float_of_bits(words[from + at]) : kind == 1 ? half_to_float(bits) : bfloat16_to_float(bits)) * by;
                top = fmaxf(top, fabsf(*y));
            }
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        const u32 power = bits_of_float(fmaxf(top, 1e-30f)) & 0x7f800000u;  // a query may be zero
        row_scale[n] = __shfl_sync(0xffffffffu, float_of_bits(power), 8 * t);
        const float up = float_of_bits(0x7f000000u - power) * power_of_two(Codec::LARGEST_QUERY - 1);
        row_scale[n] *= power_of_two(1 - Codec::LARGEST_QUERY + (Codec::GROUPED ? 24 : 0));
#pragma unroll
        for (int s = 0; s < STEPS; s += 2) {
            u32 a[4], rest[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int e = 4 * s + 2 * i;  // both numbers of a pair are of the same part, whose codes are larger
                const float by = up * power_of_two(-Codec::BITS % 16 * Codec::part_of(K::BYTES, e % K::NUMBERS));
                split_pair<T>(x[e] * by, x[e + 1] * by, a + i, rest + i);
            }
            if (s / 2 % WARPS != warp) continue;
            const uint4 upper = {a[0], a[1], a[2], a[3]}, lower = {rest[0], rest[1], rest[2], rest[3]}, none = {0u, 0u, 0u, 0u};
            uint4* at = queries + (n * STEPS / 2 + s / 2) * 32 + lane;
            if constexpr (!Codec::GROUPED) {
                at[0] = g % 2 ? lower : upper;
            } else {  // what scales are multiplied by, and what zeros are
                at[0] = g % 2 ? none : upper;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int pair = 2 * s + i, p = pair % Codec::PARTS, nth = pair / Codec::PARTS;
                    u32* fours = (u32*)(queries + (PRODUCTS * STEPS / 2 + (n * Codec::PARTS + p) * KS::FOURS + nth / 4) * 32 + lane);
                    fours[nth % 4 == 1 ? 2 : nth % 4 == 2 ? 1 : nth % 4] = g % 2 ? rest[i] : a[i];
                }
            }
        }
    }
    __syncthreads();

    for (; first < end; first += WARPS * TILE) {
        const int next = first + WARPS * TILE;
        const bool more = next < end;
        if (!LATE) find_blocks(next);

        // Scores: keys by heads.
        float c[HALVES][PRODUCTS][4];
#pragma unroll
        for (int h = 0; h < HALVES; h++)
#pragma unroll
            for (int n = 0; n < PRODUCTS; n++) c[h][n][0] = c[h][n][1] = c[h][n][2] = c[h][n][3] = 0.0f;
        const auto query = [&](int n, int step) {  // of two steps
            return queries[(n * STEPS / 2 + step) * 32 + lane];
        };
        if constexpr (Codec::GROUPED) {
            u32 scaled[PRODUCTS][D / 8];  // queries times the scales of these keys, rounded
            float start[PRODUCTS][2];     // queries times the zeros
#pragma unroll
            for (int h = 0; h < HALVES; h++) {
                int pass = 0;  // where eight keys share their scales, once for each eight
                do {
                    if (h + pass == 0 || !Codec::BY_32) {
                        if (!KS::AHEAD)
                            key_scales.fetch(k_scales, k_zeros, entry_at(first + 16 * h + 8 * pass) >> k_shift, t);
#pragma unroll
                        for (int n = 0; n < PRODUCTS; n++) {
#pragma unroll
                            for (int pair = 0; pair < D / 8; pair++) {
                                const u32 scale_of = key_scales.scales[pair / (K::NUMBERS / 2)][pair % (K::NUMBERS / 2)];
                                scaled[n][pair] = multiply_add_pair<Half>(word_of(query(n, pair / 4), pair % 4), scale_of, 0u);
                            }
                            // Every row of a product is the same key's zeros: of four registers two are
                            // multiplied by their queries, and in a second product the other two.
                            start[n][0] = start[n][1] = 0.0f;
#pragma unroll
                            for (int p = 0; p < Codec::PARTS; p++) {
                                float one[4] = {0.0f, 0.0f, 0.0f, 0.0f}, other[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
                                for (int i = 0; i < KS::FOURS; i++) {
                                    u32 four[4];
#pragma unroll
                                    for (int j = 0; j < 4; j++) four[j] = key_scales.zero_of(p, 4 * i + j);
                                    const uint4 x = queries[(PRODUCTS * STEPS / 2 + n * KS::FOURS * Codec::PARTS + p * KS::FOURS + i) * 32 + lane];
                                    const u32 columns[2] = {x.x, 4 * i + 2 < KS::OF_PART ? x.y : 0u};
                                    const u32 others[2] = {4 * i + 1 < KS::OF_PART ? x.z : 0u, 4 * i + 3 < KS::OF_PART ? x.w : 0u};
                                    multiply_add<T>(one, four, columns);
                                    multiply_add<T>(other, four, others);
                                }
                                start[n][0] += (one[0] + other[2]) * power_of_two(Codec::BITS * p - 24);
                                start[n][1] += (one[1] + other[3]) * power_of_two(Codec::BITS * p - 24);
                            }
                        }
                    }
                    float sums[PRODUCTS][4];
#pragma unroll
                    for (int n = 0; n < PRODUCTS; n++)
#pragma unroll
                        for (int i = 0; i < 4; i++) sums[n][i] = start[n][i % 2];
#pragma unroll
                    for (int i = 0; i < K::CHUNKS; i++) {
                        u32 pairs[2][K::NUMBERS / 2];
                        codec.template unpack_keys<K::BYTES>(keys[2 * h][i], pairs[0]);
                        codec.template unpack_keys<K::BYTES>(keys[2 * h + 1][i], pairs[1]);
#pragma unroll
                        for (int s = 0; s < K::NUMBERS / 4; s++) {
                            const u32 rows_of[4] = {pairs[0][2 * s], pairs[1][2 * s], pairs[0][2 * s + 1], pairs[1][2 * s + 1]};
#pragma unroll
                            for (int n = 0; n < PRODUCTS; n++)
                                multiply_add<T>(sums[n], rows_of, scaled[n] + i * (K::NUMBERS / 2) + 2 * s);
                        }
                    }
#pragma unroll
                    for (int n = 0; n < PRODUCTS; n++) {
                        if (pass == 0) c[h][n][0] = sums[n][0], c[h][n][1] = sums[n][1];
                        c[h][n][2] = sums[n][2], c[h][n][3] = sums[n][3];
                    }
                } while (!Codec::BY_32 && ++pass < 2 && k_shift < 4);
            }
        } else {
#pragma unroll
            for (int i = 0; i < K::CHUNKS; i++) {
                uint4 a[PRODUCTS][K::NUMBERS / 8];
#pragma unroll
                for (int n = 0; n < PRODUCTS; n++)
#pragma unroll
                    for (int s = 0; s < K::NUMBERS / 8; s++) a[n][s] = query(n, i * (K::NUMBERS / 8) + s);
#pragma unroll
                for (int h = 0; h < HALVES; h++) {
                    u32 pairs[2][K::NUMBERS / 2];
                    codec.template unpack<K::BYTES>(keys[2 * h][i], pairs[0]);
                    codec.template unpack<K::BYTES>(keys[2 * h + 1][i], pairs[1]);
#pragma unroll
                    for (int s = 0; s < K::NUMBERS / 4; s++) {
                        const u32 rows_of[4] = {pairs[0][2 * s], pairs[1][2 * s], pairs[0][2 * s + 1], pairs[1][2 * s + 1]};
#pragma unroll
                        for (int n = 0; n < PRODUCTS; n++) {
                            const u32 columns[2] = {word_of(a[n][s / 2], s % 2 * 2), word_of(a[n][s / 2], s % 2 * 2 + 1)};
                            multiply_add<T>(c[h][n], rows_of, columns);
                        }
                    }
                }
            }
        }
        if (LATE) {
            fetch_values(first);
            find_blocks(next);
        }
        float s[2 * HALVES][PRODUCTS], lifted[2 * HALVES];
        bool grows = false;
#pragma unroll
        for (int j = 0; j < 2 * HALVES; j++) {  // key j / 2 · 16 + j % 2 · 8 + g, head t
            if (Codec::GROUPED) value_factors[j] = VS::THERE ? value_scales[j].largest() : largest_of(first + j / 2 * 16 + j % 2 * 8 + g);
            if (LIFTED) lifted[j] = fmaxf(log2_fast(fabsf(value_factors[j])), -60.0f);
            const int at = first + j / 2 * 16 + j % 2 * 8 + g;
            const bool there = (u32)(at - begin) < (u32)(end - begin);
#pragma unroll
            for (int n = 0; n < PRODUCTS; n++) {
                float x = (c[j / 2][n][j % 2 * 2] + c[j / 2][n][j % 2 * 2 + 1]) * row_scale[n];
                if (Codec::FACTORS) x *= factors[j];
                if (softcap > 0.0f) x = softcap * tanhf(x * (1.0f / softcap));
                s[j][n] = there ? x : -infinity();
                grows |= s[j][n] + (LIFTED ? lifted[j] : 0.0f) > m[n] + (LIFT + 8.0f);
            }
        }
        float of_values[2 * HALVES];
        VS scales_of_values[2 * HALVES];
#pragma unroll
        for (int j = 0; j < 2 * HALVES; j++) of_values[j] = value_factors[j], scales_of_values[j] = value_scales[j];
        if (more) fetch_keys(next);  // their registers are free
        if (__any_sync(0xffffffffu, grows)) {  // seldom, once the first keys are through
#pragma unroll
            for (int n = 0; n < PRODUCTS; n++) {
                float top = m[n] + LIFT;
#pragma unroll
                for (int j = 0; j < 2 * HALVES; j++) top = fmaxf(top, s[j][n] + (LIFTED ? lifted[j] : 0.0f));
#pragma unroll
                for (int offset = 4; offset < 32; offset *= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, offset));
                const float shrink = exp2_fast(m[n] - (top - LIFT));
                m[n] = top - LIFT;
                l[n] *= shrink;
                if (VS::THERE)
#pragma unroll
                    for (int i = 0; i < VS::GROUPS; i++) zero_sums[i][n] *= shrink;
#pragma unroll
                for (int i = 0; i < TILES; i++)
#pragma unroll
                    for (int j = 0; j < 4; j++) o[i][n][j] *= shrink;
            }
        }
#pragma unroll
        for (int j = 0; j < 2 * HALVES; j++)
#pragma unroll
            for (int n = 0; n < PRODUCTS; n++) {
                s[j][n] = exp2_fast(s[j][n] - m[n]);
                l[n] += s[j][n];  // of this lane's keys: lanes add up at the end
                if (VS::THERE)
#pragma unroll
                    for (int i = 0; i < VS::GROUPS; i++) zero_sums[i][n] += s[j][n] * VS::of(scales_of_values[j].zeros, i);
            }
        u32 weights[2 * HALVES][PRODUCTS];
        if (!Codec::GROUPED)
#pragma unroll
            for (int j = 0; j < 2 * HALVES; j++)
#pragma unroll
                for (int n = 0; n < PRODUCTS; n++)
                    weights[j][n] = transposed(halves_of<T>(Codec::FACTORS ? s[j][n] * of_values[j] : s[j][n]));
        // Sixteen keys' weights times a scale, rounded: a head's first column has eight, its second the others.
        const u32 first_column = g % 2 ? 0u : ~0u;
        const auto weigh = [&](int h, float scale_of, float scale_of_others) {
#pragma unroll
            for (int n = 0; n < PRODUCTS; n++) {
                const u32 pair = transposed(rounded_pair<T>(s[2 * h][n] * scale_of, s[2 * h + 1][n] * scale_of_others));
                weights[2 * h][n] = pair & first_column, weights[2 * h + 1][n] = pair & ~first_column;
            }
        };

        // Weighted values: channels by heads.
#pragma unroll
        for (int i = 0; i < V::CHUNKS; i++)
#pragma unroll
            for (int h = 0; h < HALVES; h++) {
                u32 pairs[2][V::NUMBERS];  // one channel of two keys
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    u32 words[2 * V::WORDS];
                    Codec::template interleave<V::BYTES>(values[4 * h + 2 * n][i], values[4 * h + 2 * n + 1][i], words);
                    codec.template unpack<2 * V::BYTES>(words, pairs[n]);
                }
                const auto multiply = [&](int pair, u32 keep, u32 keep_other) {
                    const int e = V::number_of(pair, 0), f = V::number_of(pair, 1);
                    const u32 rows_of[4] = {pairs[0][e] & keep, pairs[0][f] & keep_other, pairs[1][e] & keep, pairs[1][f] & keep_other};
#pragma unroll
                    for (int n = 0; n < PRODUCTS; n++) {
                        const u32 columns[2] = {weights[2 * h][n], weights[2 * h + 1][n]};
                        multiply_add<T>(o[i * PAIRS + pair][n], rows_of, columns);
                    }
                };
                if constexpr (!Codec::GROUPED) {
#pragma unroll
                    for (int pair = 0; pair < PAIRS; pair++) multiply(pair, ~0u, ~0u);
                } else if constexpr (VS::THERE) {
#pragma unroll
                    for (int p = 0; p < Codec::PARTS; p++) {
                        const int group = VS::group_of(i, p);
                        weigh(h, VS::of(scales_of_values[2 * h].scales, group), VS::of(scales_of_values[2 * h + 1].scales, group));
#pragma unroll
                        for (int pair = 0; pair < PAIRS / Codec::PARTS; pair++) multiply(p * (PAIRS / Codec::PARTS) + pair, ~0u, ~0u);
                    }
                } else {
                    for (int group = 0; group < D >> v_shift; group++) {
                        bool has_some = false;  // of this chunk's channels
                        const auto has = [&](int part) {
                            const int low = i * VS::UNIT + part * (D / Codec::PARTS);
                            return low >> v_shift <= group && group <= (low + VS::UNIT - 1) >> v_shift;
                        };
#pragma unroll
                        for (int part = 0; part < Codec::PARTS; part++) has_some |= has(part);
                        if (!has_some) continue;
                        i64 at[2];
                        for (int j = 0; j < 2; j++) at[j] = (entry_at(first + 16 * h + 8 * j + g) * (D >> v_shift)) + group;
                        const auto each = [&](const void* p, const auto& keeps) {
                            weigh(h, load_float((const Half*)p + at[0]), load_float((const Half*)p + at[1]));
#pragma unroll
                            for (int pair = 0; pair < PAIRS; pair++) {
                                const int e = V::number_of(pair, 0), f = V::number_of(pair, 1);
                                if (!has(Codec::channel_part_of(e)) && !has(Codec::channel_part_of(f))) continue;
                                const bool mine = V::value_channel(i, g, e) >> v_shift == group;
                                const bool other = V::value_channel(i, g, f) >> v_shift == group;
                                keeps(pair, mine ? ~0u : 0u, other ? ~0u : 0u);
                            }
                        };
                        each(v_scales, multiply);
                        each(v_zeros, [&](int pair, u32 keep, u32 keep_other) {
                            const u32 one = (0x00010001u << Codec::BITS % 16 * Codec::channel_part_of(V::number_of(pair, 0))) & keep;
                            const u32 other = (0x00010001u << Codec::BITS % 16 * Codec::channel_part_of(V::number_of(pair, 1))) & keep_other;
                            const u32 rows_of[4] = {one, other, one, other};
#pragma unroll
                            for (int n = 0; n < PRODUCTS; n++) {
                                const u32 columns[2] = {weights[2 * h][n], weights[2 * h + 1][n]};
                                multiply_add<T>(o[i * PAIRS + pair][n], rows_of, columns);
                            }
                        });
                    }
                }
            }
        if (more && !LATE) fetch_values(next);
    }
#pragma unroll
    for (int n = 0; n < PRODUCTS; n++)
#pragma unroll
        for (int offset = 4; offset < 32; offset *= 2) {
            if (VS::THERE)
#pragma unroll
                for (int i = 0; i < VS::GROUPS; i++) zero_sums[i][n] += __shfl_xor_sync(0xffffffffu, zero_sums[i][n], offset);
            l[n] += __shfl_xor_sync(0xffffffffu, l[n], offset);
        }

    // Warps of the block: (WARPS, ROWS, D) values, then (WARPS, ROWS) maxima and sums.
    __syncthreads();  // the queries are read
    float* shared_m = shared + WARPS * ROWS * Skewed<D>::STRIDE;
    float* shared_l = shared_m + WARPS * ROWS;
#pragma unroll
    for (int n = 0; n < PRODUCTS; n++) {
        const int row = warp * ROWS + 4 * n + t;
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            const int chunk = i / V::NUMBERS, e = V::number_of(i / 2 % PAIRS, i % 2);
            float x = o[i / 2][n][i % 2 * 2] + o[i / 2][n][i % 2 * 2 + 1];
            if constexpr (Codec::GROUPED) {
                x *= power_of_two(24 - Codec::BITS * Codec::channel_part_of(e));
                if constexpr (VS::THERE) x += zero_sums[VS::group_of(chunk, Codec::channel_part_of(e))][n];
            }
            shared[Skewed<D>::at(row, V::value_channel(chunk, g, e))] = x;
        }
        if (g == 0) shared_m[row] = m[n], shared_l[row] = l[n];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < rows * D; i += THREADS) {
        const int head = i / D, d = i % D;
        float top = LOWEST, total = 0.0f, sum = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) top = fmaxf(top, shared_m[w * ROWS + head]);
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            const float factor = exp2_fast(shared_m[w * ROWS + head] - top);
            total += shared_l[w * ROWS + head] * factor;
            sum += shared[Skewed<D>::at(w * ROWS + head, d)] * factor;
        }
        const float result = total > 0.0f ? sum / total : 0.0f;
        const i64 row = row0 + head;
        if (item.part < 0) {
            store_any(out, row * D + d, result, kind);
            if (d == 0) store(lse + row, log_sum_exp(top, total));
        } else {
            const i64 part = row + (i64)(item.part - b) * num_qo_heads;
            store(part_out + part * D + d, result);
            if (d == 0) store(part_lse + part, log_sum_exp(top, total));
        }
    }
    if (item.part < 0) return;

    // The last block of a request and kv head merges their parts. One request has 33 or 49 on an H200:
    // two or three turns.
    const int from = first_part ? load(first_part + b) : b * even;
    const int parts = first_part ? load(first_part + b + 1) - from : even;
    if (!last_to_finish(finished + b * num_kv_heads + kv_head, rows, parts * groups)) return;
    for (int head = kv_head * groups + warp; head < (kv_head + 1) * groups; head += WARPS)
        merge_row<D < 128 ? 16 : 17>(out, lse, part_out, part_lse, (i64)b * num_qo_heads + head, (i64)from * num_qo_heads + head,
                  num_qo_heads, parts, D, kind);
}
