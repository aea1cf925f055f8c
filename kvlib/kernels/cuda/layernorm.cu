// LayerNorm and RMSNorm, forward and backward. A row lies in the registers of one block, so that it is
// read from memory once: its statistics are sums over the block, and the result is written from there.
//
// Grid forward (T rows), backward (groups of rows). Each thread holds PER numbers of a row, in vectors
// of 16 bytes that lie blockDim.x vectors apart. Sums are float32. CENTRE is LayerNorm (arXiv:1607.06450),
// without it RMSNorm (arXiv:1910.07467). Gradients of the weights are sums over all rows, in two stages:
// each block sums its group of rows in registers, and `gather` sums the groups.
#include "vectors.cuh"

static const int MOST_THREADS_OF_ROW = 256;
static const int COLUMNS = 32, SLICES = 8;  // of a block of `gather`

template <typename T> struct Pack {  // 8 numbers of 16 bits
    static __device__ __forceinline__ uint4 of(const float* x) {
        u32 words[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            words[i] = (u32)From<T>::of(x[2 * i]).bits | (u32)From<T>::of(x[2 * i + 1]).bits << 16;
        return uint4{words[0], words[1], words[2], words[3]};
    }
};
template <> struct Pack<float> {
    static __device__ __forceinline__ uint4 of(const float* x) {
        return uint4{bits_of_float(x[0]), bits_of_float(x[1]), bits_of_float(x[2]), bits_of_float(x[3])};
    }
};

// One thread's numbers of one row, as float.
template <typename T, int PER> struct Row {
    static const int COUNT = Vector<T>::COUNT, VECTORS = PER / COUNT;
    float x[PER];

    static __device__ __forceinline__ int vector(int v) { return v * blockDim.x + threadIdx.x; }

    __device__ __forceinline__ void fetch(const T* row, int width) {
        uint4 raw[VECTORS];
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {  // every load is on its way before one is used
            raw[v] = uint4{0u, 0u, 0u, 0u};
            if (vector(v) * COUNT < width) raw[v] = load((const uint4*)row + vector(v));
        }
#pragma unroll
        for (int v = 0; v < VECTORS; v++) Vector<T>::unpack(raw[v], x + v * COUNT);
    }
    __device__ __forceinline__ void put(T* row, int width) const {
#pragma unroll
        for (int v = 0; v < VECTORS; v++)
            if (vector(v) * COUNT < width) store((uint4*)row + vector(v), Pack<T>::of(x + v * COUNT));
    }
    __device__ __forceinline__ void subtract(float mean, int width) {  // what is not there stays 0
#pragma unroll
        for (int i = 0; i < PER; i++)
            if (vector(i / COUNT) * COUNT < width) x[i] -= mean;
    }
    __device__ __forceinline__ float sum() const {
        float total = 0.0f;
#pragma unroll
        for (int i = 0; i < PER; i++) total += x[i];
        return total;
    }
    __device__ __forceinline__ float dot(const Row& other) const {
        float total = 0.0f;
#pragma unroll
        for (int i = 0; i < PER; i++) total += x[i] * other.x[i];
        return total;
    }
};

// Sums over the block, the same in every thread: lanes by shuffles, then warps in their order.
__device__ __forceinline__ float2 block_sums(float a, float b) {
    DYNAMIC_SHARED(float2, of_warp);  // one for each warp
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        a += __shfl_xor_sync(0xffffffffu, a, offset);
        b += __shfl_xor_sync(0xffffffffu, b, offset);
    }
    __syncthreads();  // whoever still reads the sums before these
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = float2{a, b};
    __syncthreads();
    float2 total = of_warp[0];
    for (int w = 1; w < (int)blockDim.x / 32; w++) {
        total.x += of_warp[w].x;
        total.y += of_warp[w].y;
    }
    return total;
}

template <typename T, int PER, bool CENTRE>
__global__ void __launch_bounds__(MOST_THREADS_OF_ROW, 2) norm_forward(
    T* __restrict__ y,            // (T, D)
    T* __restrict__ x_hat,        // (T, D), or null: nothing is kept
    float* __restrict__ inv_std,  // (T,), or null
    const T* __restrict__ x,      // (T, D)
    const T* __restrict__ weight, const T* __restrict__ bias,  // (D,); bias null for RMSNorm
    int width, float eps)
{
    const i64 row = (i64)blockIdx.x * width;
    Row<T, PER> r, w;
    r.fetch(x + row, width);
    if (CENTRE) {
        r.subtract(block_sums(r.sum(), 0.0f).x / width, width);
        r.subtract(block_sums(r.sum(), 0.0f).x / width, width);  // what the mean's rounding left
    }
    const float scale = 1.0f / sqrtf(block_sums(r.dot(r), 0.0f).x / width + eps);
#pragma unroll
    for (int i = 0; i < PER; i++) r.x[i] *= scale;
    if (x_hat) {
        r.put(x_hat + row, width);
        if (threadIdx.x == 0) store(inv_std + blockIdx.x, scale);
    }
    w.fetch(weight, width);
#pragma unroll
    for (int i = 0; i < PER; i++) r.x[i] *= w.x[i];
    if (CENTRE) {
        w.fetch(bias, width);
#pragma unroll
        for (int i = 0; i < PER; i++) r.x[i] += w.x[i];
    }
    r.put(y + row, width);
}

template <typename T, int PER, bool CENTRE>
__global__ void __launch_bounds__(MOST_THREADS_OF_ROW, PER > 8 ? 1 : 3) norm_backward(
    T* __restrict__ dx,             // (T, D)
    float* __restrict__ parts,      // (1 or 2, groups, D): sums of dy · x_hat, and of dy
    const T* __restrict__ dy,       // (T, D)
    const T* __restrict__ x_hat,    // (T, D)
    const float* __restrict__ inv_std,  // (T,)
    const T* __restrict__ weight,   // (D,)
    int rows, int width)
{
    typedef Row<T, PER> R;
    float dweight[PER], dbias[CENTRE ? PER : 1];
#pragma unroll
    for (int i = 0; i < PER; i++) dweight[i] = 0.0f;
    if (CENTRE)
#pragma unroll
        for (int i = 0; i < PER; i++) dbias[i] = 0.0f;

    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        const i64 at = (i64)row * width;
        R g, h, w;
        g.fetch(dy + at, width);
        h.fetch(x_hat + at, width);
        w.fetch(weight, width);  // the same for every row: from the cache after the first
#pragma unroll
        for (int i = 0; i < PER; i++) {
            dweight[i] += g.x[i] * h.x[i];
            if (CENTRE) dbias[i] += g.x[i];
            g.x[i] *= w.x[i];
        }
        const float2 sums = block_sums(g.dot(h), CENTRE ? g.sum() : 0.0f);
        const float along = sums.x / width, mean = sums.y / width, scale = load(inv_std + row);
#pragma unroll
        for (int i = 0; i < PER; i++) {
            const float left = CENTRE ? g.x[i] - mean : g.x[i];
            g.x[i] = (left - h.x[i] * along) * scale;
        }
        g.put(dx + at, width);
    }

    float* part = parts + (i64)blockIdx.x * width;
#pragma unroll
    for (int i = 0; i < PER; i += 4) {
        const int channel = R::vector(i / R::COUNT) * R::COUNT + i % R::COUNT;
        if (channel < width) {
            store((uint4*)(part + channel), Pack<float>::of(dweight + i));
            if (CENTRE) store((uint4*)(part + (i64)gridDim.x * width + channel), Pack<float>::of(dbias + i));
        }
    }
}

// Second stage, grid (columns / 32, 1 or 2): a block sums the groups for 32 neighbouring columns.
template <typename T>
__global__ void __launch_bounds__(COLUMNS * SLICES) gather(
    T* __restrict__ dweight, T* __restrict__ dbias,  // (D,)
    const float* __restrict__ parts,                 // (1 or 2, groups, D)
    int groups, int width)
{
    DYNAMIC_SHARED(float, sums);  // (SLICES, COLUMNS)
    const int lane = threadIdx.x % COLUMNS, slice = threadIdx.x / COLUMNS;
    const int column = blockIdx.x * COLUMNS + lane;
    float total = 0.0f;
    if (column < width)
        for (int g = slice; g < groups; g += SLICES)
            total += load(parts + ((i64)blockIdx.y * groups + g) * width + column);
    sums[slice * COLUMNS + lane] = total;
    __syncthreads();
    if (slice == 0 && column < width) {
        for (int s = 1; s < SLICES; s++) total += sums[s * COLUMNS + lane];
        store_float((blockIdx.y ? dbias : dweight) + column, total);
    }
}
