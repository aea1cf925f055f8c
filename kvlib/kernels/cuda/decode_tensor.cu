// Decode attention on tensor cores: the query heads of one kv head are the rows of a product.
//
// Decoding is reading, but the ordinary units cannot follow the memory where several query heads share
// a key, or where its codes have to be unpacked. Here a warp takes TILE keys at a time: 8 query
// heads are half of the 16 rows that a tensor core multiplies. The other half holds what rounding to
// 16 bits takes from queries and weights, so that a product has twice 16 bits for the price of one.
//
// Nothing goes through shared memory but the queries: a sum over channels may take them in any order, so
// a lane loads 16 bytes of a key and they are its part of the product. Of values it loads four keys
// that its weights belong to, and pairs of keys side by side are a permutation of bytes.
//
// Grid, work items, places and the three merges are those of decode.cu, and so are the arguments.
#include "pair_codecs.cuh"
#include "places.cuh"
#include "state.cuh"
#include "work.cuh"

static const int THREADS = 128, WARPS = THREADS / 32, HEADS = 8;

__device__ constexpr int chunk_of(int bytes, int widest) {  // the largest power of two that divides
    int chunk = 1;
    while (chunk < widest && bytes % (2 * chunk) == 0) chunk *= 2;
    return chunk;
}

// Of a key of D numbers a lane holds a quarter (lane % 4 says which), of a value an eighth (lane / 4),
// in CHUNKS chunks of BYTES bytes that lie LANES chunks apart.
template <typename Codec, int D, int LANES_, int WIDEST> struct Share {
    static const int LANES = LANES_, ROW = D * Codec::BITS / 8;  // bytes of a key
    static const int BYTES = chunk_of(ROW / LANES, WIDEST), CHUNKS = ROW / LANES / BYTES;
    static const int WORDS = BYTES < 4 ? 1 : BYTES / 4, NUMBERS = BYTES * 8 / Codec::BITS;
    static const int WIDTH = Codec::BITS < 8 ? 1 : Codec::BITS / 8;  // bytes from one channel to the next
    static_assert(ROW % LANES == 0, "whole chunks");

    static __device__ __forceinline__ int byte(int chunk, int lane) { return (chunk * LANES + lane) * BYTES; }
    // The channel of number e of a chunk of keys, and of pair e of a chunk of values.
    static __device__ __forceinline__ int channel(int chunk, int lane, int e) {
        return (byte(chunk, lane) + Codec::byte_of(BYTES, e)) / WIDTH + Codec::part_of(BYTES, e) * (D / Codec::PARTS);
    }
    static __device__ __forceinline__ int value_channel(int chunk, int lane, int e) {
        return byte(chunk, lane) / WIDTH + Codec::channel_of(e) + Codec::channel_part_of(e) * (D / Codec::PARTS);
    }
    static __device__ __forceinline__ void fetch(const void* codes, i64 entry, int lane, bool valid, u32 (&words)[CHUNKS][WORDS]) {
#pragma unroll
        for (int i = 0; i < CHUNKS; i++) {
#pragma unroll
            for (int w = 0; w < WORDS; w++) words[i][w] = 0u;  // not NaN: 0 · NaN is NaN
            if (valid) load_chunk<BYTES>((const u8*)codes + entry * ROW + lane * BYTES, i * LANES, words[i]);
        }
    }
};

// KIVI's keys: float16 scale and zero of each channel and 2^shift tokens in a row, for a lane's channels
// in the order of its pairs.
template <typename S, bool GROUPED> struct KeyScales {
    static const bool ALL = S::CHUNKS * S::NUMBERS <= 32;  // registers hold all chunks', or one's at a time
    static const int HELD = ALL ? S::CHUNKS : 1;
    u32 scales[HELD][S::NUMBERS / 2], zeros[HELD][S::NUMBERS / 2];

    // group: of the pool. Where no key of the group is there, what was loaded must not be NaN.
    template <typename Codec, int D>
    __device__ __forceinline__ void fetch(const void* stored_scales, const void* stored_zeros, i64 group, int lane, bool valid, int chunk) {
#pragma unroll
        for (int i = 0; i < S::CHUNKS; i++)
            if (chunk == i || chunk < 0) {
                fetch_one<Codec, D>(stored_scales, group, i, lane, valid, scales[i % HELD]);
                fetch_one<Codec, D>(stored_zeros, group, i, lane, valid, zeros[i % HELD]);
            }
    }
    template <typename Codec, int D>
    __device__ __forceinline__ void fetch_one(const void* p, i64 group, int i, int lane, bool valid, u32* pairs) {
#pragma unroll
        for (int part = 0; part < Codec::PARTS; part++) {  // BYTES channels side by side
            u32 halves[S::BYTES / 2];
            const int STEP = S::BYTES * 2 > 16 ? 16 : S::BYTES * 2;
#pragma unroll
            for (int n = 0; n < S::BYTES * 2 / STEP; n++) {
#pragma unroll
                for (int w = 0; w < STEP / 4; w++) halves[n * STEP / 4 + w] = 0u;
                if (valid)
                    load_chunk<STEP>(p, (group * D + part * (D / Codec::PARTS) + S::byte(i, lane)) * 2 / STEP + n, halves + n * STEP / 4);
            }
            if constexpr (S::BYTES == 2) {
                pairs[part] = halves[0];
            } else {
#pragma unroll
                for (int w = 0; w < S::BYTES / 4; w++) {  // bytes 0 and 2 of a word, then 1 and 3
                    pairs[(2 * w) * Codec::PARTS + part] = __byte_perm(halves[2 * w], halves[2 * w + 1], 0x5410);
                    pairs[(2 * w + 1) * Codec::PARTS + part] = __byte_perm(halves[2 * w], halves[2 * w + 1], 0x7632);
                }
            }
        }
    }
    __device__ __forceinline__ void apply(int chunk, u32* pairs) const {
#pragma unroll
        for (int p = 0; p < S::NUMBERS / 2; p++)
            pairs[p] = multiply_add_pair<Half>(pairs[p], scales[chunk % HELD][p], zeros[chunk % HELD][p]);
    }
};
template <typename S> struct KeyScales<S, false> {
    static const bool ALL = true;
    template <typename Codec, int D>
    __device__ __forceinline__ void fetch(const void*, const void*, i64, int, bool, int) {}
    __device__ __forceinline__ void apply(int, u32*) const {}
};

// KIVI's values: float16 scale and zero of each token and 2^shift channels in a row, which hold a chunk's
// channels of one part whole. Where a part's channels have two scales, which is KIVI's 32 in a head of
// 128 with 4 bits, a token's scales come in one load.
template <typename S, bool GROUPED, typename Codec> struct ValueScales {
    static const int PARTS = Codec::PARTS;
    u32 scales[S::CHUNKS][PARTS], zeros[S::CHUNKS][PARTS];

    template <int D> __device__ __forceinline__ void fetch(const void* stored_scales, const void* stored_zeros, i64 entry, int shift, int lane, bool valid) {
        const int per_token = D >> shift;
#pragma unroll
        for (int i = 0; i < S::CHUNKS; i++) {
#pragma unroll
            for (int part = 0; part < PARTS; part++) scales[i][part] = zeros[i][part] = 0u;
            if (!valid) continue;
            if (per_token == 2 * PARTS) {
                load_chunk<4 * PARTS>(stored_scales, entry, scales[i]);
                load_chunk<4 * PARTS>(stored_zeros, entry, zeros[i]);
                continue;
            }
            const i64 at = entry * per_token;
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                const int own = (S::byte(i, lane) + part * (D / PARTS)) >> shift;
                load_chunk<2>(stored_scales, at + own, &scales[i][part]);
                load_chunk<2>(stored_zeros, at + own, &zeros[i][part]);
            }
        }
    }
    // Pairs of two tokens.
    template <int D> static __device__ __forceinline__ void apply(const ValueScales& a, const ValueScales& b, int shift, int lane, int i, u32* pairs) {
        const u32 which = (D >> shift) == 2 * PARTS && S::byte(i, lane) >> shift & 1 ? 0x7632 : 0x5410;
        u32 scale[PARTS], zero[PARTS];
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            scale[part] = __byte_perm(a.scales[i][part], b.scales[i][part], which);
            zero[part] = __byte_perm(a.zeros[i][part], b.zeros[i][part], which);
        }
#pragma unroll
        for (int e = 0; e < S::NUMBERS; e++)
            pairs[e] = multiply_add_pair<Half>(pairs[e], scale[Codec::channel_part_of(e)], zero[Codec::channel_part_of(e)]);
    }
};
template <typename S, typename Codec> struct ValueScales<S, false, Codec> {
    template <int D> __device__ __forceinline__ void fetch(const void*, const void*, i64, int, int, bool) {}
    template <int D> static __device__ __forceinline__ void apply(const ValueScales&, const ValueScales&, int, int, int, u32*) {}
};

__device__ __forceinline__ float load_any(const void* p, i64 i, int kind) {
    if (kind == 0) return load_float((const float*)p + i);
    if (kind == 1) return load_float((const Half*)p + i);
    return load_float((const BFloat16*)p + i);
}
// Blocks of a multiprocessor that registers must leave room for (plans.py counts on it).
__device__ constexpr int blocks_for(int dim, bool grouped) { return dim > 128 || grouped ? 2 : 3; }

template <typename Codec, int D>
__global__ void __launch_bounds__(THREADS, blocks_for(D, Codec::GROUPED)) decode_tensor(
    void* __restrict__ out, float* __restrict__ lse, float* __restrict__ part_out, float* __restrict__ part_lse,
    const void* __restrict__ q,
    const void* __restrict__ k_codes, const void* __restrict__ k_scales, const void* __restrict__ k_zeros,
    const void* __restrict__ v_codes, const void* __restrict__ v_scales, const void* __restrict__ v_zeros,
    const int* __restrict__ block_table, const int* __restrict__ seq_lens, const int* __restrict__ behind,
    const void* __restrict__ items,
    int table_width, int block_size, int block_shift, int num_kv_heads, int groups, int window,
    int k_shift, int v_shift, int kind, int even, float scale, float softcap)
{
    typedef typename Codec::Number T;
    typedef Share<Codec, D, 4, Codec::widest(D)> K;
    typedef Share<Codec, D, 8, Codec::VALUES> V;
    static const int TILE = Codec::tile(D), HALVES = TILE / 16, STEPS = D / 16;
    const Item item = item_of(items, blockIdx.y, even);
    const int b = item.request, split = item.split, splits = item.splits;
    const int tiles = (groups + HEADS - 1) / HEADS;
    const int kv_head = blockIdx.x / tiles, first_row = blockIdx.x % tiles * HEADS;
    const int rows = min(HEADS, groups - first_row);
    const int num_qo_heads = num_kv_heads * groups;
    const i64 row0 = (i64)b * num_qo_heads + kv_head * groups + first_row;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int g = lane / 4, t = lane % 4;  // a query head, or a key's row; a quarter

    // This block's keys.
    const int len = load(seq_lens + b);
    const int past = window > 0 && behind ? load(behind + b) : 0;
    const int low = window > 0 ? max(0, len + past - window) : 0;  // beyond len: no keys, begin > end
    const int each = (len - low + splits - 1) / splits;
    const int begin = min(len, low + split * each), end = min(len, begin + each);
    const Table table = {block_table + (i64)b * table_width, block_size, block_shift, num_kv_heads};

    // Queries as the first factor of the product: head g and, eight rows below, what rounding took of it.
    // A power of two brings a head's largest number near 1, for float16 ends at 65504.
    DYNAMIC_SHARED(float, shared);
    uint4* queries = (uint4*)shared;  // (STEPS, 32)
    float row_scale;
    {
        float x[D / 4], top = 0.0f;
#pragma unroll
        for (int i = 0; i < K::CHUNKS; i++)
#pragma unroll
            for (int e = 0; e < K::NUMBERS; e++) {
                float* y = x + i * K::NUMBERS + e;
                *y = g < rows ? load_any(q, (row0 + g) * D + K::channel(i, t, e), kind) * scale : 0.0f;
                top = fmaxf(top, fabsf(*y));
            }
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        const u32 power = bits_of_float(top) & 0x7f800000u;
        row_scale = float_of_bits(power);
        const float up = float_of_bits(0x7f000000u - power);
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            uint4 a;
            split_pair<T>(x[4 * s] * up, x[4 * s + 1] * up, &a.x, &a.y);
            split_pair<T>(x[4 * s + 2] * up, x[4 * s + 3] * up, &a.z, &a.w);
            if (s % WARPS == warp) queries[s * 32 + lane] = a;
        }
    }
    __syncthreads();

    const Codec codec;
    float m = -infinity(), l = 0.0f, o[D / 8][4];
#pragma unroll
    for (int i = 0; i < D / 8; i++) o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0.0f;

    // Tiles begin at multiples of TILE, so that 16 keys lie in one block wherever blocks are that large;
    // its number is asked for a turn ahead. Keys before `begin` and from `end` on are not read.
    const bool large = block_shift >= 4;
    int blocks[HALVES];
    int first = (begin & -TILE) + warp * TILE;
#pragma unroll
    for (int h = 0; h < HALVES; h++)
        blocks[h] = large && first + 16 * h < end ? load(table.row + ((first + 16 * h) >> block_shift)) : 0;

    for (; first < end; first += WARPS * TILE) {
        u32 keys[2 * HALVES][K::CHUNKS][K::WORDS], values[4 * HALVES][V::CHUNKS][V::WORDS];
        float factors[4 * HALVES], value_factors[4 * HALVES];
        ValueScales<V, Codec::GROUPED, Codec> value_scales[4 * HALVES];
        KeyScales<K, Codec::GROUPED> key_scales;
        i64 base[HALVES];  // entry of key 16h of the tile
#pragma unroll
        for (int h = 0; h < HALVES; h++)
            base[h] = ((i64)blocks[h] * num_kv_heads + kv_head) * block_size + ((first + 16 * h) & (int)((1u << block_shift) - 1u));
        const auto there = [&](int i) { return first + i >= begin && first + i < end; };
        // Scales of eight keys some of which are there: those of one chunk, or of all.
        const auto key_group = [&](int n, int chunk, const auto& entry) {
            const int i = max(first + 8 * n, begin) - first;
            const bool valid = first + 8 * n < end && first + 8 * n + 8 > begin;
            key_scales.template fetch<Codec, D>(k_scales, k_zeros, (valid ? entry(i) : 0) >> k_shift, t, valid, chunk);
        };
        const bool one_group = KeyScales<K, Codec::GROUPED>::ALL && TILE <= 1 << k_shift;  // for the whole tile
        // Every load of this turn is on its way before one is used. entry(i): of key i of the tile.
        const auto fetch_keys = [&](const auto& entry) {
#pragma unroll
            for (int n = 0; n < 2 * HALVES; n++) {
                const bool valid = there(8 * n + g);
                K::fetch(k_codes, valid ? entry(8 * n + g) : 0, t, valid, keys[n]);
            }
            if (Codec::GROUPED && one_group) key_group(max(0, begin - first) / 8, -1, entry);
            if (!Codec::FACTORS) return;
#pragma unroll
            for (int n = 0; n < 4 * HALVES; n++) {
                const int i = n / 2 * 8 + 2 * t + n % 2;
                factors[n] = there(i) ? load((const float*)k_scales + entry(i)) : 1.0f;
            }
        };
        const auto fetch_values = [&](const auto& entry) {
#pragma unroll
            for (int n = 0; n < 4 * HALVES; n++) {
                const int i = n / 2 * 8 + 2 * t + n % 2;
                const bool valid = there(i);
                const i64 at = valid ? entry(i) : 0;
                V::fetch(v_codes, at, g, valid, values[n]);
                value_scales[n].template fetch<D>(v_scales, v_zeros, at, v_shift, g, valid);
                if (Codec::FACTORS) value_factors[n] = valid ? load((const float*)v_scales + at) : 1.0f;
            }
        };
        const auto near = [&](int i) { return (i < 16 ? base[0] : base[HALVES - 1]) + i % 16; };
        const auto far = [&](int i) { return table.entry(first + i, kv_head); };
        if (large) {
            fetch_keys(near);
            if (!Codec::late(D)) fetch_values(near);
        } else {
            fetch_keys(far);
            if (!Codec::late(D)) fetch_values(far);
        }
        const int next = first + WARPS * TILE;
#pragma unroll
        for (int h = 0; h < HALVES; h++)
            if (large && next + 16 * h < end) blocks[h] = load(table.row + ((next + 16 * h) >> block_shift));

        // Scores: heads by keys.
        float c[2 * HALVES][4];
#pragma unroll
        for (int n = 0; n < 2 * HALVES; n++) c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0.0f;
#pragma unroll
        for (int i = 0; i < K::CHUNKS; i++)
#pragma unroll
            for (int n = 0; n < 2 * HALVES; n++) {
                u32 pairs[K::NUMBERS / 2];
                codec.template unpack<K::BYTES>(keys[n][i], pairs);
                if (Codec::GROUPED && !one_group) large ? key_group(n, i, near) : key_group(n, i, far);
                key_scales.apply(i, pairs);
#pragma unroll
                for (int s = 0; s < K::NUMBERS / 4; s++) {
                    const uint4 a = queries[(i * (K::NUMBERS / 4) + s) * 32 + lane];
                    const u32 rows_of[4] = {a.x, a.y, a.z, a.w};
                    multiply_add<T>(c[n], rows_of, pairs + 2 * s);
                }
            }
        if (Codec::late(D)) large ? fetch_values(near) : fetch_values(far);
        float s[4 * HALVES], top = m;
#pragma unroll
        for (int n = 0; n < 4 * HALVES; n++) {
            s[n] = (c[n / 2][n % 2] + c[n / 2][n % 2 + 2]) * row_scale;
            if (Codec::FACTORS) s[n] *= factors[n];
        }
        if (softcap > 0.0f)
#pragma unroll
            for (int n = 0; n < 4 * HALVES; n++) s[n] = softcap * tanhf(s[n] * (1.0f / softcap));
#pragma unroll
        for (int n = 0; n < 4 * HALVES; n++) {
            if (!there(n / 2 * 8 + 2 * t + n % 2)) s[n] = -infinity();
            top = fmaxf(top, s[n]);
        }
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));  // four lanes have a head
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        const float safe = top == -infinity() ? 0.0f : top;
        if (__any_sync(0xffffffffu, top > m)) {  // seldom, once the first keys are through
            const float shrink = exp2_fast(m - safe);
            m = top;
            l *= shrink;
#pragma unroll
            for (int i = 0; i < D / 8; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) o[i][j] *= shrink;
        }
        u32 weights[HALVES][4];
#pragma unroll
        for (int n = 0; n < 4 * HALVES; n++) {
            s[n] = exp2_fast(s[n] - safe);
            l += s[n];  // this lane's share: lanes add up at the end
            if (Codec::FACTORS) s[n] *= value_factors[n];
        }
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            split_pair<T>(s[4 * h], s[4 * h + 1], &weights[h][0], &weights[h][1]);
            split_pair<T>(s[4 * h + 2], s[4 * h + 3], &weights[h][2], &weights[h][3]);
        }

        // Weighted values: heads by channels.
#pragma unroll
        for (int i = 0; i < V::CHUNKS; i++)
#pragma unroll
            for (int h = 0; h < HALVES; h++) {
                u32 pairs[2][V::NUMBERS];  // one channel of two keys
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    const int one = 4 * h + 2 * n, other = one + 1;
                    u32 words[2 * V::WORDS];
                    Codec::template interleave<V::BYTES>(values[one][i], values[other][i], words);
                    codec.template unpack<2 * V::BYTES>(words, pairs[n]);
                    ValueScales<V, Codec::GROUPED, Codec>::template apply<D>(value_scales[one], value_scales[other], v_shift, g, i, pairs[n]);
                }
#pragma unroll
                for (int e = 0; e < V::NUMBERS; e++) {
                    const u32 pair[2] = {pairs[0][e], pairs[1][e]};
                    multiply_add<T>(o[i * V::NUMBERS + e], weights[h], pair);
                }
            }
    }
    l += __shfl_xor_sync(0xffffffffu, l, 1);
    l += __shfl_xor_sync(0xffffffffu, l, 2);

    // Warps of the block: (WARPS, HEADS, D) values, then (WARPS, HEADS) maxima and sums.
    __syncthreads();  // the queries are read
    float* shared_m = shared + WARPS * HEADS * D;
    float* shared_l = shared_m + WARPS * HEADS;
#pragma unroll
    for (int i = 0; i < D / 8; i++)
#pragma unroll
        for (int j = 0; j < 2; j++)
            shared[(warp * HEADS + g) * D + V::value_channel(i / V::NUMBERS, 2 * t + j, i % V::NUMBERS)] = o[i][j] + o[i][j + 2];
    if (t == 0) {
        shared_m[warp * HEADS + g] = m;
        shared_l[warp * HEADS + g] = l;
    }
    __syncthreads();

    // As in decode.cu. As a function of both, it made a kernel spill 220 bytes for capability 10.0.
    for (int i = threadIdx.x; i < rows * D; i += THREADS) {
        const int head = i / D, d = i % D;
        float top = -infinity(), total = 0.0f, sum = 0.0f;
        for (int w = 0; w < WARPS; w++) top = fmaxf(top, shared_m[w * HEADS + head]);
        const float safe = top == -infinity() ? 0.0f : top;
        for (int w = 0; w < WARPS; w++) {
            const float factor = exp2_fast(shared_m[w * HEADS + head] - safe);
            total += shared_l[w * HEADS + head] * factor;
            sum += shared[(w * HEADS + head) * D + d] * factor;
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
}
