// Tensor cores: 16x8 products of 16-bit numbers, summed in float, by one warp together.
//
// A lane holds the parts of a tile that PTX gives it (PTX ISA, mma.m16n8k16): of A (16 rows, 16
// columns) rows lane/4 and lane/4 + 8, columns 2·(lane%4) and 8 behind; of B (16, 8) column lane/4; of
// the sums (16, 8) rows as A, columns 2·(lane%4) and the next. Two 16-bit numbers share a register.
#pragma once
#include "portable.cuh"

template <typename T> __device__ __forceinline__ u32 pair_of(float low, float high);
template <> __device__ __forceinline__ u32 pair_of<Half>(float low, float high) {
    return (u32)float_to_half(low) | (u32)float_to_half(high) << 16;
}
template <> __device__ __forceinline__ u32 pair_of<BFloat16>(float low, float high) {
    return (u32)float_to_bfloat16(low) | (u32)float_to_bfloat16(high) << 16;
}

#ifndef KVLIB_ON_PROCESSOR

// sums += A · B
template <typename T> __device__ __forceinline__ void multiply_add(float* sums, const u32* a, const u32* b);
template <> __device__ __forceinline__ void multiply_add<Half>(float* c, const u32* a, const u32* b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <> __device__ __forceinline__ void multiply_add<BFloat16>(float* c, const u32* a, const u32* b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four 8x8 tiles of 16-bit numbers from shared memory: lane i names row i%8 of tile i/8, and gets of
// each tile row lane/4, columns 2·(lane%4) and the next; of the transposed tile where asked.
__device__ __forceinline__ void load_tiles(u32* x, const void* row) {
    const u32 at = (u32)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(at) : "memory");
}
__device__ __forceinline__ void load_tiles_transposed(u32* x, const void* row) {
    const u32 at = (u32)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(at) : "memory");
}

// An 8x8 tile of 16-bit numbers transposed: a lane holds of row lane/4 columns 2·(lane%4) and the next.
__device__ __forceinline__ u32 transposed(u32 pair) {
    u32 x;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(x) : "r"(pair));
    return x;
}

#else

template <typename T> inline float number(u32 pair, int i) {
    T x;
    x.bits = (u16)(pair >> 16 * i);
    return to_float(x);
}
template <typename T> inline void multiply_add(float* sums, const u32* a, const u32* b) {
    const u32* mine[2] = {a, b};
    const u32*const* of[32];
    processor::gather(mine, of);
    const int lane = threadIdx.x % 32, row = lane / 4, column = lane % 4 * 2;
    for (int i = 0; i < 4; i++)  // sums 0, 1: row; 2, 3: row + 8
        for (int k = 0; k < 16; k++) {
            const int holder = row * 4 + k % 8 / 2, part = (k / 8) * 2 + i / 2;
            const int other = (column + i % 2) * 4 + k % 8 / 2;
            sums[i] += number<T>(of[holder][0][part], k % 2) * number<T>(of[other][1][k / 8], k % 2);
        }
    __syncwarp();  // nobody's registers change before all have read them
}
inline u32 transposed(u32 pair) {
    const u32* mine = &pair;
    const u32* of[32];
    processor::gather(mine, of);
    const int lane = threadIdx.x % 32, row = lane % 4 * 2, column = lane / 4;
    u32 x = 0;
    for (int i = 0; i < 2; i++) x |= (*of[(row + i) * 4 + column / 2] >> 16 * (column % 2) & 0xffffu) << 16 * i;
    __syncwarp();
    return x;
}
inline void load_tiles_either(u32* x, const void* row, bool transposed) {
    const void* mine = row;
    const void* of[32];
    const int lane = threadIdx.x % 32;
    for (int i = 0; i < 32; i++) of[i] = nullptr;
    processor::gather(mine, of);
    for (int tile = 0; tile < 4; tile++) {
        u16 pair[2];
        for (int i = 0; i < 2; i++) {
            const int r = lane / 4, c = lane % 4 * 2 + i;
            pair[i] = ((const u16*)of[tile * 8 + (transposed ? c : r)])[transposed ? r : c];
        }
        x[tile] = (u32)pair[0] | (u32)pair[1] << 16;
    }
    __syncwarp();
}
inline void load_tiles(u32* x, const void* row) { load_tiles_either(x, row, false); }
inline void load_tiles_transposed(u32* x, const void* row) { load_tiles_either(x, row, true); }

#endif
