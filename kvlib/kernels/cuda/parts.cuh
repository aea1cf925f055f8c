// Parts of one result: splits of a request's keys, or what was attended to apart. Each is the mean of its
// values with the logarithm of its weight, and the parts of a row are merged in their order.
#pragma once
#include "portable.cuh"
#include "state.cuh"

// One row of `dim` numbers from its parts, by one warp. part: of the first one; others are `step` rows
// apart, and AT_ONCE (at most 32) of them are loaded at a time. Of a part without weight the numbers do
// not count: they may be unwritten.
template <int AT_ONCE> __device__ __forceinline__ void merge_row(
    void* out, float* lse, const float* part_out, const float* part_lse,
    i64 row, i64 part, i64 step, int parts, int dim, int kind)
{
    const int lane = threadIdx.x % 32;
    const i64 stride = step * dim;
    float top = -infinity();
#pragma unroll 4
    for (int i = lane; i < parts; i += 32) top = fmaxf(top, load_fresh(part_lse + part + i * step));
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, offset));
    const float safe = top == -infinity() ? 0.0f : top;
    float total = 0.0f;
#pragma unroll 1
    for (int d = lane * 4; d < (dim + 127) / 128 * 128; d += 128) {
        float4 sum = float4{0.0f, 0.0f, 0.0f, 0.0f};
        total = 0.0f;
#pragma unroll 1
        for (int first = 0; first < parts; first += AT_ONCE) {
            const int mine = first + lane;
            float weight = mine < parts ? load_fresh(part_lse + part + mine * step) : -infinity();
            const float* from = part_out + (part + first * step) * dim + d;
            float4 x[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                x[i] = float4{0.0f, 0.0f, 0.0f, 0.0f};
                if (d < dim && first + i < parts) x[i] = load_fresh((const float4*)(from + i * stride));
            }
            weight = exp2_fast((weight - safe) * 1.4426950408889634f);
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                const float w = __shfl_sync(0xffffffffu, weight, i);
                total += w;
                if (w > 0.0f) sum.x += w * x[i].x, sum.y += w * x[i].y, sum.z += w * x[i].z, sum.w += w * x[i].w;
            }
        }
        const float inverse = total > 0.0f ? 1.0f / total : 0.0f;
        if (d < dim) {
            store_any(out, row * dim + d, sum.x * inverse, kind);
            store_any(out, row * dim + d + 1, sum.y * inverse, kind);
            store_any(out, row * dim + d + 2, sum.z * inverse, kind);
            store_any(out, row * dim + d + 3, sum.w * inverse, kind);
        }
    }
    if (lane == 0) store(lse + row, total > 0.0f ? top + log2_fast(total) * 0.6931471805599453f : -infinity());
}

// Called by every thread of a block that has written `rows` of the `total` rows of a request and kv head
// (parts times query heads): whether all are written now, and this block is to merge them. The count is
// 0 again afterwards.
__device__ __forceinline__ bool last_to_finish(int* finished, int rows, int total) {
    __threadfence();
    __syncthreads();
    bool last = false;
    if (threadIdx.x == 0) {
        last = atomicAdd(finished, rows) + rows == total;
        if (last) store(finished, 0);
    }
    if (!__syncthreads_or(last)) return false;
    __threadfence();
    return true;
}
