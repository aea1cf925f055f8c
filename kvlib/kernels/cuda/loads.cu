// Three ways for a warp to read the same keys, for looking at: only the addresses differ.
//
// Each thread adds up what it reads, so that nothing may be left out. keys (N, D) float32; out
// (threads,). What a way costs shows in the sectors of 32 bytes that its loads touch.
#include "portable.cuh"

// One thread a key: thread t walks along key t, and neighbours stand D numbers apart.
__global__ void a_thread_a_key(float* __restrict__ out, const float* __restrict__ keys, int n, int dim) {
    const int key = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (int d = 0; d < dim; d++)
        if (key < n) sum += load(keys + (i64)key * dim + d);
    store(out + key, sum);
}

// One warp a key: neighbours read neighbouring numbers, 4 bytes each.
__global__ void a_warp_a_key(float* __restrict__ out, const float* __restrict__ keys, int n, int dim) {
    const int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, warps = gridDim.x * blockDim.x / 32;
    const int lane = threadIdx.x % 32;
    float sum = 0.0f;
    for (int key = warp; key < n; key += warps)
        for (int d = lane; d < dim; d += 32) sum += load(keys + (i64)key * dim + d);
    store(out + blockIdx.x * blockDim.x + threadIdx.x, sum);
}

// One warp a key, 16 bytes a lane: a quarter of the instructions for the same sectors.
__global__ void sixteen_bytes_a_lane(float* __restrict__ out, const float* __restrict__ keys, int n, int dim) {
    const int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, warps = gridDim.x * blockDim.x / 32;
    const int lane = threadIdx.x % 32;
    float sum = 0.0f;
    for (int key = warp; key < n; key += warps)
        for (int d = lane; d < dim / 4; d += 32) {
            const float4 x = load((const float4*)(keys + (i64)key * dim) + d);
            sum += x.x + x.y + x.z + x.w;
        }
    store(out + blockIdx.x * blockDim.x + threadIdx.x, sum);
}
