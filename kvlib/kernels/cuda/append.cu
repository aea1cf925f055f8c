// Append: new keys, or values, scattered into blocks by a slot mapping, as they come or as codes.
//
// slot = block · block_size + position, -1 for a row that belongs to nobody (padding). Offsets are 64
// bits wide. Codes are those of kvlib/codecs to the last bit: the same roundings in the same order,
// divisions as IEEE 754 has them.
#include "vectors.cuh"

static const int THREADS = 128, WARPS = THREADS / 32;
static const float LARGEST = 65504.0f;  // of float16

// Where row `token` of one head goes: ((block · Hkv) + head) · block size + position; -1: nowhere.
__device__ __forceinline__ i64 entry_of(const i64* slots, i64 token, int head, int heads, int size) {
    const i64 slot = load(slots + token);
    return slot < 0 ? -1 : (slot / size * heads + head) * size + slot % size;
}

// NaN wins, as in NumPy: fmaxf and fminf would pass it over.
__device__ __forceinline__ float larger(float a, float b) { return a > b || a != a ? a : b; }
__device__ __forceinline__ float smaller(float a, float b) { return a < b || a != a ? a : b; }

// Numbers as they come. A warp a row of D numbers; grid (rows / WARPS), rows = T · Hkv.
// `vectors`: 16-byte vectors of a row.
__global__ void __launch_bounds__(THREADS) copy(
    uint4* __restrict__ blocks, const uint4* __restrict__ x, const i64* __restrict__ slots,
    int tokens, int heads, int size, int vectors)
{
    const i64 row = (i64)blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= (i64)tokens * heads) return;
    const i64 entry = entry_of(slots, row / heads, row % heads, heads, size);
    if (entry < 0) return;
    for (int i = threadIdx.x % 32; i < vectors; i += 32)
        store(blocks + entry * vectors + i, load(x + row * vectors + i));
}

// float32 rows into blocks of float16 or bfloat16.
template <typename S>
__global__ void __launch_bounds__(THREADS) narrow(
    S* __restrict__ blocks, const float* __restrict__ x, const i64* __restrict__ slots,
    int tokens, int heads, int size, int dim)
{
    const i64 row = (i64)blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= (i64)tokens * heads) return;
    const i64 entry = entry_of(slots, row / heads, row % heads, heads, size);
    if (entry < 0) return;
    for (int i = threadIdx.x % 32; i < dim; i += 32)
        store_float(blocks + entry * dim + i, load(x + row * dim + i));
}

// int8 with one scale a token and head: a warp a row, its largest number by shuffles.
template <typename T>
__global__ void __launch_bounds__(THREADS) int8(
    signed char* __restrict__ codes, float* __restrict__ scales, const T* __restrict__ x,
    const i64* __restrict__ slots, int tokens, int heads, int size, int dim)
{
    const i64 row = (i64)blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= (i64)tokens * heads) return;
    const i64 entry = entry_of(slots, row / heads, row % heads, heads, size);
    if (entry < 0) return;  // the whole warp
    const int lane = threadIdx.x % 32;
    float top = 0.0f;
    for (int i = lane; i < dim; i += 32) top = larger(fabsf(load_float(x + row * dim + i)), top);
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) top = larger(__shfl_xor_sync(0xffffffffu, top, offset), top);
    const float scale = larger(top / 127.0f, 1.17549435e-38f);  // the smallest normal number at the least
    if (lane == 0) store(scales + entry, scale);
    for (int i = lane; i < dim; i += 32) {
        const float code = fminf(fmaxf(rintf(load_float(x + row * dim + i) / scale), -127.0f), 127.0f);
        store(codes + entry * dim + i, (signed char)(int)code);
    }
}

// fp8: nearest code, ties to the even one, what is too large becomes the largest number, NaN stays.
// mantissa, least exponent, code of the largest number and of NaN: (3, -6, 0x7e, 0x7f) for e4m3,
// (2, -14, 0x7b, 0x7f) for e5m2.
__device__ __forceinline__ u8 fp8_code(float x, int mantissa, int least, u32 largest, u32 nan) {
    const u32 bits = bits_of_float(x), sign = bits >> 24 & 0x80u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return (u8)(sign | nan);
    u32 code;
    if (size < (u32)(127 + least) << 23) {  // below the least exponent, codes count equal steps
        code = (u32)rintf(float_of_bits(size) * float_of_bits((u32)(127 + mantissa - least) << 23));
    } else {
        const int drop = 23 - mantissa;
        const u32 rounded = size + ((1u << (drop - 1)) - 1u) + (size >> drop & 1u);
        code = (rounded >> drop) - ((u32)(126 + least) << mantissa);
    }
    return (u8)(sign | min(code, largest));
}

template <typename T>
__global__ void __launch_bounds__(THREADS) fp8(
    u8* __restrict__ codes, const T* __restrict__ x, const i64* __restrict__ slots,
    int tokens, int heads, int size, int dim, int mantissa, int least, int largest, int nan)
{
    const i64 row = (i64)blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= (i64)tokens * heads) return;
    const i64 entry = entry_of(slots, row / heads, row % heads, heads, size);
    if (entry < 0) return;
    for (int i = threadIdx.x % 32; i < dim; i += 32)
        store(codes + entry * dim + i, fp8_code(load_float(x + row * dim + i), mantissa, least, largest, nan));
}

// A group of numbers: zero is the smallest, scale the range by 2^bits − 1, both rounded to float16
// before any code is formed, so that decoding undoes what encoding did.
struct Group {
    float low, high;
    float zero, scale;

    __device__ __forceinline__ void begin() { low = infinity(), high = -infinity(); }
    __device__ __forceinline__ void see(float x) { low = smaller(x, low), high = larger(x, high); }
    __device__ __forceinline__ void finish(float levels, u16* scale_bits, u16* zero_bits) {
        *zero_bits = float_to_half(low);
        // Halved before they are subtracted: the range may be twice what float16 holds.
        const float range = high / levels - low / levels;
        *scale_bits = float_to_half(range != range ? range : fminf(fmaxf(range, 0.0f), LARGEST));
        zero = half_to_float(*zero_bits), scale = half_to_float(*scale_bits);
    }
    __device__ __forceinline__ u32 code(float x, float levels) const {
        if (scale == 0.0f) return 0u;  // a constant group
        return (u32)fminf(fmaxf(rintf((x - zero) / scale), 0.0f), levels);
    }
};

template <typename T> __device__ __forceinline__ float bounded(const T* p) {  // within float16
    const float x = load_float(p);
    return x != x ? x : fminf(fmaxf(x, -LARGEST), LARGEST);
}

// KIVI's keys: a group of `group` tokens, channel by channel. Grid (groups, Hkv); slots (groups,) of each
// group's first token; x (groups · group, Hkv, D). Byte j of a token holds channels j, j + n, ... with
// n = D · bits / 8, so a thread takes these channels, and threads side by side take channels side by side.
template <typename T>
__global__ void __launch_bounds__(THREADS) kivi_keys(
    u8* __restrict__ codes, u16* __restrict__ scales, u16* __restrict__ zeros, const T* __restrict__ x,
    const i64* __restrict__ slots, int heads, int size, int dim, int group, int bits)
{
    const int head = blockIdx.y, parts = 8 / bits, n = dim / parts;
    const i64 entry = entry_of(slots, blockIdx.x, head, heads, size);
    if (entry < 0) return;
    const float levels = (float)((1 << bits) - 1);
    const T* rows = x + ((i64)blockIdx.x * group * heads + head) * dim;
    const i64 step = (i64)heads * dim;
    for (int j = threadIdx.x; j < n; j += THREADS) {
        Group found[4];
#pragma unroll
        for (int part = 0; part < 4; part++) {
            if (part >= parts) break;
            const int channel = part * n + j;
            found[part].begin();
            for (int t = 0; t < group; t++) found[part].see(bounded(rows + t * step + channel));
            u16 scale, zero;
            found[part].finish(levels, &scale, &zero);
            store(scales + entry / group * dim + channel, scale);
            store(zeros + entry / group * dim + channel, zero);
        }
        for (int t = 0; t < group; t++) {
            u32 byte = 0u;
#pragma unroll
            for (int part = 0; part < 4; part++)
                if (part < parts)
                    byte |= found[part].code(bounded(rows + t * step + part * n + j), levels) << (bits * part);
            store(codes + (entry + t) * n + j, (u8)byte);
        }
    }
}

// KIVI's values: token by token, `share` channels to a scale; `group` tokens of one slot as for the keys.
// A warp a token: first its scales, a lane each, then its bytes. Shared memory: two floats a scale and warp.
template <typename T>
__global__ void __launch_bounds__(THREADS) kivi_values(
    u8* __restrict__ codes, u16* __restrict__ scales, u16* __restrict__ zeros, const T* __restrict__ x,
    const i64* __restrict__ slots, int heads, int size, int dim, int group, int share, int bits)
{
    const int head = blockIdx.y, n = dim * bits / 8, groups = dim / share;
    const i64 entry = entry_of(slots, blockIdx.x, head, heads, size);
    if (entry < 0) return;
    const float levels = (float)((1 << bits) - 1);
    DYNAMIC_SHARED(float, shared);
    float* scale_of = shared + threadIdx.x / 32 * 2 * groups;
    float* zero_of = scale_of + groups;
    const int lane = threadIdx.x % 32;
    for (int t = threadIdx.x / 32; t < group; t += WARPS) {
        const T* row = x + (((i64)blockIdx.x * group + t) * heads + head) * dim;
        for (int i = lane; i < groups; i += 32) {
            Group found;
            found.begin();
            for (int c = 0; c < share; c++) found.see(bounded(row + i * share + c));
            u16 scale, zero;
            found.finish(levels, &scale, &zero);
            store(scales + (entry + t) * groups + i, scale);
            store(zeros + (entry + t) * groups + i, zero);
            scale_of[i] = found.scale, zero_of[i] = found.zero;
        }
        __syncwarp();
        for (int j = lane; j < n; j += 32) {
            u32 byte = 0u;
            for (int part = 0; part < 8 / bits; part++) {
                const int channel = part * n + j;
                const Group own = {0.0f, 0.0f, zero_of[channel / share], scale_of[channel / share]};
                byte |= own.code(bounded(row + channel), levels) << (bits * part);
            }
            store(codes + (entry + t) * n + j, (u8)byte);
        }
        __syncwarp();
    }
}
