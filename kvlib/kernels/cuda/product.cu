// A product of a decode step: out[r, n] = sum over k of x[r, k] · weight[n, k], for at most 16 rows r.
//
// It takes as long as reading the weight, so that's what the kernel is built around. A block takes tiles
// of at most TILE rows of the weight, and its warps share a tile's columns, UNIT at a time. Each lane copies what it
// will multiply into a queue of its own in shared memory, DEPTH units ahead of its use and across tiles.
// The weight depends on no other kernel, so the queues fill (and prefetches bring more into the second-level
// cache) while the kernel before still runs; only then does the block wait for x.
//
// Each warp keeps its units of x in shared memory, as many as there is room for: times the norm's weight,
// and in the form that the product takes. (In float16, x times that must be below 65,504.) Sums of the warps are added in their order.
#include "pairs.cuh"
#include "vectors.cuh"

static const int UNIT = 64;   // columns that a warp multiplies at a time
static const int CELL = 256;  // bytes of one row of x in a unit: floats, or pairs of 16-bit numbers

// What a warp makes of a unit: TILE rows of the weight times at most ROWS rows of x. A lane copies LOADS
// times 16 bytes, the i-th from row(i % PLACES) and column(i) of the tile. ROWS sums are written for each row.
//
// In 16 bits on tensor cores: x is the sum of two 16-bit numbers, good to 2^-16 of a bfloat16's value
// (2^-21 of a float16's). A sum takes its terms in any order, so the eight numbers of a lane's load are
// columns of four k of two mma's, wherever they were in the row. Up to four rows of x, the products with
// the second numbers are columns 4 to 7 of the same mma.
template <typename T, int ROWS> struct Part {
    static const int TILE = 16, LOADS = 4, PLACES = 2, TILES = ROWS > 8 ? 2 : 1;
    static const bool TWICE = ROWS <= 4;  // a row has two columns of the mma
    float sums[2][TILES][4];              // two chains of additions

    static __device__ __forceinline__ int row(int i, int lane) { return lane / 4 + 8 * i; }
    static __device__ __forceinline__ int column(int i, int lane) { return i / 2 * 32 + lane % 4 * 8; }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < TILES * 8; i++) sums[i / 4 % 2][i / 8][i % 4] = 0.0f;
    }
    // Four columns of row r of x. Odd rows have the halves the other way round, for the banks' sake.
    static __device__ __forceinline__ void put(uint4* cell, int r, int four, float4 x) {
        uint2 first, rest, *to = (uint2*)(cell + four / 2 * 2);
        split_pair<T>(x.x, x.y, &first.x, &rest.x);
        split_pair<T>(x.z, x.w, &first.y, &rest.y);
        to[r % 2 * 2 + four % 2] = first;
        to[(1 - r % 2) * 2 + four % 2] = rest;
    }
    __device__ __forceinline__ void multiply(const uint4* w, const uint4* cells, int lane) {
        const int g = lane / 4, t = lane % 4;
#pragma unroll
        for (int chunk = 0; chunk < 2; chunk++) {
            const uint4 low = w[2 * chunk], high = w[2 * chunk + 1];
            const u32 a[2][4] = {{low.x, high.x, low.y, high.y}, {low.z, high.z, low.w, high.w}};
#pragma unroll
            for (int tile = 0; tile < TILES; tile++)
#pragma unroll
                for (int half = 0; half < (TWICE ? 1 : 2); half++) {
                    const int r = TWICE ? min(g % 4, ROWS - 1) : tile * 8 + g, which = TWICE ? g / 4 : half;
                    const uint4 x = cells[r * (CELL / 16) + 2 * (chunk * 4 + t) + (which + r) % 2];
                    const u32 b[2][2] = {{x.x, x.y}, {x.z, x.w}};
                    multiply_add<T>(sums[0][tile], a[0], b[0]);
                    multiply_add<T>(sums[1][tile], a[1], b[1]);
                }
        }
    }
    __device__ __forceinline__ void write(float* to, int lane) const {  // (TILE, ROWS)
#pragma unroll
        for (int tile = 0; tile < TILES; tile++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int column = tile * 8 + lane % 4 * 2 + i % 2;
                float sum = sums[0][tile][i] + sums[1][tile][i];
                if (TWICE) sum += __shfl_xor_sync(0xffffffffu, sum, 2);
                if (column < ROWS) to[(lane / 4 + i / 2 * 8) * ROWS + column] = sum;
            }
    }
};

// In float32 on ordinary units: half a warp takes every other row of the tile, four columns a lane.
template <int ROWS> struct Part<float, ROWS> {
    static const int TILE = ROWS > 4 ? 4 : 8, LOADS = TILE / 2, PLACES = LOADS;
    float sums[LOADS][ROWS];

    static __device__ __forceinline__ int row(int i, int lane) { return 2 * i + lane / 16; }
    static __device__ __forceinline__ int column(int, int lane) { return lane % 16 * 4; }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < LOADS * ROWS; i++) sums[i / ROWS][i % ROWS] = 0.0f;
    }
    static __device__ __forceinline__ void put(uint4* cell, int, int four, float4 x) { ((float4*)cell)[four] = x; }
    __device__ __forceinline__ void multiply(const uint4* w, const uint4* cells, int lane) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const float4 x = ((const float4*)cells)[r * (CELL / 16) + lane % 16];
#pragma unroll
            for (int i = 0; i < LOADS; i++) {
                float y[4];
                Vector<float>::unpack(w[i], y);
                sums[i][r] = fmaf(y[0], x.x, sums[i][r]);
                sums[i][r] = fmaf(y[1], x.y, sums[i][r]);
                sums[i][r] = fmaf(y[2], x.z, sums[i][r]);
                sums[i][r] = fmaf(y[3], x.w, sums[i][r]);
            }
        }
    }
    __device__ __forceinline__ void write(float* to, int lane) const {
#pragma unroll
        for (int i = 0; i < LOADS; i++)
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                float sum = sums[i][r];
#pragma unroll
                for (int offset = 8; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
                if (lane % 16 == 0) to[row(i, lane) * ROWS + r] = sum;
            }
    }
};

template <typename T> __device__ __forceinline__ float load_either(const void* p, i64 i, bool wide) {
    return wide ? load_float((const float*)p + i) : load_float((const T*)p + i);
}
// Four numbers in a row that are float (wide) or T: the bytes, and later what they are.
template <typename T> __device__ __forceinline__ uint4 fetch_four(const void* p, int i, bool wide) {
    if (wide || sizeof(T) == 4) return load((const uint4*)((const float*)p + i));
    const uint2 narrow = load((const uint2*)((const T*)p + i));
    return uint4{narrow.x, narrow.y, 0u, 0u};
}
template <typename T> __device__ __forceinline__ float4 four_of(uint4 raw, bool wide) {
    float x[8];
    Vector<T>::unpack(raw, x);
    if (wide) Vector<float>::unpack(raw, x);
    return float4{x[0], x[1], x[2], x[3]};
}
__device__ __forceinline__ float4 times(float4 a, float4 b) { return float4{a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w}; }

// Warps of a multiprocessor that registers must leave room for, those of the next kernel among them.
template <typename T> __device__ constexpr int warps_for(int rows) { return rows > 2 ? 16 : 24; }
template <> __device__ constexpr int warps_for<float>(int rows) { return rows > 2 ? 8 : 24; }

template <typename T, int ROWS, bool GATED, int WARPS, int DEPTH>
__global__ void __launch_bounds__(32 * WARPS, (warps_for<T>(ROWS) + WARPS - 1) / WARPS) product(
    float* out,                              // (R, N)
    const float* __restrict__ x,             // (R, K)
    const T* __restrict__ weight,            // (N, K); gated (2N, K): out = silu(x · gate) times x · up
    const void* __restrict__ bias,           // (N,), or null
    const void* __restrict__ norm,           // (K,), or null: x is divided by its root mean square, times norm
    const float* residual,                   // (R, N), or null: added; may be `out`
    int rows, int height, int width,         // R, N, K
    int step,                                // numbers of a row of out that a tile makes: all that it has room for, or fewer
    int wide,                                // bit 0: bias is float32 and not T, bit 1: norm
    int room,                                // units of x of a warp that shared memory has room for
    int late,                                // the next kernel may start once all loads are under way
    float eps)
{
    typedef Part<T, ROWS> P;
    static const int SLOT = P::LOADS * 32, SUMS = P::TILE * ROWS, NUMBERS = GATED ? P::TILE / 2 : P::TILE;
    static_assert(NUMBERS * ROWS <= 32 * WARPS, "a thread for every number of a tile");
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    DYNAMIC_SHARED(uint4, shared);
    uint4* queue = shared + warp * DEPTH * SLOT + lane;                            // (DEPTH, LOADS, 32) a warp
    uint4* cells = shared + WARPS * DEPTH * SLOT + warp * room * ROWS * (CELL / 16);  // (room, ROWS, CELL bytes) a warp
    float* parts = (float*)(shared + WARPS * (DEPTH * SLOT + room * ROWS * (CELL / 16)));  // (2, WARPS, TILE, ROWS)
    float* squares = parts + 2 * WARPS * SUMS;                                     // (WARPS, ROWS)

    const int tiles = (height + step - 1) / step, units = (width + UNIT - 1) / UNIT;
    const int mine = (units - warp + WARPS - 1) / WARPS;  // units of a tile that this warp takes: warp, warp + WARPS, ...
    const auto is_there = [&](int tile, int row) { return row % NUMBERS < step && tile * step + row % NUMBERS < height; };
    const auto weight_row = [&](int tile, int row) {  // gated: the first half of a tile's rows is gate's
        return weight + (i64)(tile * step + row % NUMBERS + (row < NUMBERS ? 0 : height)) * width;
    };

    // The next unit to copy, and rows of its tile; after the last one, groups of copies are empty.
    int next_tile = mine > 0 ? (int)blockIdx.x : tiles, next_unit = 0;
    const T* from[P::PLACES];
    bool valid[P::PLACES];
    const auto aim = [&]() {
#pragma unroll
        for (int i = 0; i < P::PLACES; i++) {
            const int row = P::row(i, lane);
            valid[i] = next_tile < tiles && is_there(next_tile, row);
            from[i] = valid[i] ? weight_row(next_tile, row) : weight;
        }
    };
    const auto copy_next = [&](int slot) {
        if (next_tile < tiles) {
#pragma unroll
            for (int i = 0; i < P::LOADS; i++) {
                const int k = (next_unit * WARPS + warp) * UNIT + P::column(i, lane), place = i % P::PLACES;
                copy_async(queue + slot * SLOT + i * 32, from[place] + (k < width ? k : 0), valid[place] && k < width);
            }
            if (++next_unit == mine) {
                next_unit = 0;
                next_tile += gridDim.x;
                if (late && next_tile >= tiles) let_next_start();
                aim();
            }
        }
        commit_copies();
    };
    aim();
    if (!late || mine == 0) let_next_start();
#pragma unroll 1
    for (int i = 0; i < DEPTH; i++) copy_next(i);

    const int of_row = threadIdx.x / NUMBERS, of_tile = threadIdx.x % NUMBERS;  // which number this thread writes
    const auto writes = [&](int tile) { return of_row < rows && is_there(tile, of_tile); };
    const auto bias_of = [&](int tile) {
        return bias && tile < tiles && writes(tile) ? load_either<T>(bias, tile * step + of_tile, wide & 1) : 0.0f;
    };
    float offset = bias_of(blockIdx.x);

    // x goes through shared memory in parts of `each` units, the next one on its way while one is multiplied.
    // What the norm divides by is not known yet: sums are multiplied by it in the end.
    const int each = room * WARPS >= units ? room : room / 2;
    const bool few = each < DEPTH || mine % each;  // groups of copies that are started while a part is multiplied
    const auto cell = [&](int part, int i) { return cells + (part * each + i / 16) * (ROWS * (CELL / 16)); };
    const auto column = [&](int begin, int i) { return ((begin + i / 16) * WARPS + warp) * UNIT + i % 16 * 4; };
    const auto copy_part = [&](int begin, int part) {
        const int count = 16 * min(each, mine - begin);
#pragma unroll 1
        for (int i = lane; i < count; i += 32) {
            const int k = column(begin, i);
            const float* from = k < width ? x + k : x;
            uint4* to = cell(part, i) + i % 16;
#pragma unroll 1
            for (int r = 0; r < rows; r++, from += width, to += CELL / 16) copy_async(to, from, k < width);
        }
    };
    static const int BATCH = ROWS < 4 ? ROWS : 4;
    float scale[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) scale[r] = 0.0f;
    const auto prepare = [&](int begin, int part, bool is_first) {  // in place, what this lane has copied
        const int count = 16 * min(each, mine - begin);
#pragma unroll 1
        for (int i = lane; i - lane < count; i += 32) {
            const int k = column(begin, i);
            uint4 raw_factors = {0u, 0u, 0u, 0u};
            if (norm && i < count && k < width) raw_factors = fetch_four<T>(norm, k, wide & 2);
            if (i == lane) {
                if (is_first || few) wait_for_copies<0>();
                else wait_for_copies<DEPTH - 1>();
            }
            const float4 factors = four_of<T>(raw_factors, wide & 2);
            #pragma unroll
            for (int r0 = 0; r0 < ROWS; r0 += BATCH) {
                float4 y[BATCH] = {};
#pragma unroll
                for (int j = 0; j < BATCH; j++)
                    if (i < count) y[j] = ((const float4*)cell(part, i))[(r0 + j) * (CELL / 16) + i % 16];
                __syncwarp();  // a lane writes where its neighbour has read
#pragma unroll
                for (int j = 0; j < BATCH; j++) {
                    const int r = r0 + j;
                    if (i >= count) continue;
                    if (norm && is_first)
                        scale[r] = fmaf(y[j].x, y[j].x, fmaf(y[j].y, y[j].y, fmaf(y[j].z, y[j].z, fmaf(y[j].w, y[j].w, scale[r]))));
                    P::put(cell(part, i) + r * (CELL / 16), r, i % 16, norm ? times(y[j], factors) : y[j]);
                }
            }
        }
        __syncwarp();
    };
    int slot = 0, now = 0;  // of the queue; which part of x
    float by = 1.0f;        // what the norm divides this thread's row by, inverted
    wait_for_previous();
    copy_part(0, 0);
    commit_copies();
    for (int tile = blockIdx.x, turn = 0; tile < tiles; tile += gridDim.x, turn++) {
        float more = 0.0f;  // waited for where it is added
        if (residual && writes(tile)) more = load_fresh(residual + (i64)of_row * height + tile * step + of_tile);
        P sums;
        sums.clear();
        for (int begin = 0; begin < mine; begin += each) {
            if (mine > each || turn == 0) {
                prepare(begin, now, turn == 0);
                const int next = begin + each < mine ? begin + each : 0;
                if (mine > each && (next > 0 || tile + (int)gridDim.x < tiles)) copy_part(next, now ^ 1);
            }
            const uint4* of_unit = cell(now, 0);
            for (int left = min(each, mine - begin); left > 0; left--) {
                wait_for_copies<DEPTH - 1>();
                uint4 w[P::LOADS];
#pragma unroll
                for (int i = 0; i < P::LOADS; i++) w[i] = queue[slot * SLOT + i * 32];
                sums.multiply(w, of_unit, lane);
                copy_next(slot);
                slot = slot + 1 == DEPTH ? 0 : slot + 1;
                of_unit += ROWS * (CELL / 16);
            }
            if (mine > each) now ^= 1;
        }
        float* part = parts + (turn & 1) * WARPS * SUMS;  // two, so that one barrier a tile is enough
        sums.write(part + warp * SUMS, lane);
        if (norm && turn == 0) {
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
#pragma unroll
                for (int distance = 16; distance > 0; distance /= 2) scale[r] += __shfl_xor_sync(0xffffffffu, scale[r], distance);
                if (lane == 0) squares[warp * ROWS + r] = scale[r];
            }
        }
        __syncthreads();
        if (writes(tile)) {
            if (norm && turn == 0) {
                float total = 0.0f;
#pragma unroll
                for (int w = 0; w < WARPS; w++) total += squares[w * ROWS + of_row];
                by = 1.0f / sqrtf(total / width + eps);
            }
            const auto total_of = [&](int row) {
                float total = 0.0f;
#pragma unroll
                for (int w = 0; w < WARPS; w++) total += part[w * SUMS + row * ROWS + of_row];
                return total * by;
            };
            float result = total_of(of_tile);
            if (GATED) result = result / (1.0f + exp2_fast(result * -1.44269504f)) * total_of(NUMBERS + of_tile);
            store(out + (i64)of_row * height + tile * step + of_tile, result + offset + more);
        }
        offset = bias_of(tile + gridDim.x);
    }
}
