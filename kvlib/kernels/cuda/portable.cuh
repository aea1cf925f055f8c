// What the kernels take from the machine: number types, loads, exponentials. Everything else in this
// folder is plain C++ and CUDA's own words (threadIdx, __syncthreads, __shfl_xor_sync ...).
//
// The same sources run on a processor, without a graphics card, when KVLIB_ON_PROCESSOR is defined:
// processor.h (kvlib/kernels/processor/) then provides CUDA's words and the functions of this file.
#pragma once

#ifdef KVLIB_ON_PROCESSOR
#include "processor.h"
#else

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define DYNAMIC_SHARED(type, name)                      \
    extern __shared__ __align__(16) unsigned char kvlib_shared[]; \
    type* name = reinterpret_cast<type*>(kvlib_shared)

__device__ __forceinline__ float float_of_bits(u32 bits) { return __uint_as_float(bits); }
__device__ __forceinline__ u32 bits_of_float(float x) { return __float_as_uint(x); }

__device__ __forceinline__ float half_to_float(u16 bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}
__device__ __forceinline__ u16 float_to_half(float x) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
__device__ __forceinline__ u16 float_to_bfloat16(float x) {
    u16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

// 2^x and log2 x from the special function unit: about 2 units in the last place.
__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float log2_fast(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Every access to the device's memory goes through these, so that on a processor it can be checked
// and counted. `load` is for what the kernel does not write (the read-only path).
template <typename V>
__device__ __forceinline__ V load(const V* p) { return __ldg(p); }
template <typename V>
__device__ __forceinline__ V load_plain(const V* p) { return *p; }
// For what another kernel of the same step wrote: past the first-level cache, which may have an old line.
template <typename V>
__device__ __forceinline__ V load_fresh(const V* p) { return __ldcg(p); }
template <typename V>
__device__ __forceinline__ void store(V* p, V x) { *p = x; }

// Copies of 16 bytes from the device's memory to shared memory, past the registers and the first-level
// cache; zeros where not `valid`, whose address must still be one of the array's. What a thread has copied
// is there once it has waited for the group that the copy was committed with, and for other threads after
// the next barrier. wait_for_copies<N> waits for all groups but the N newest.
__device__ __forceinline__ void copy_async(void* to, const void* from, bool valid) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :: "r"((u32)__cvta_generic_to_shared(to)), "l"(from), "r"(valid ? 16 : 0) : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }

// Bring bytes, a multiple of 16, into the second-level cache: a hint, and nothing below capability 9.0.
__device__ __forceinline__ void prefetch(const void* p, u32 bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes) : "memory");
#endif
}

// Programmatic dependent launch, for a `Launch` that is `early` (CUDA C++ Programming Guide): blocks of
// the next kernel may start once every block of this one has called let_next_start(). What the kernel
// before writes may be read, and anything may be written, only after wait_for_previous().
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void let_next_start() { asm volatile("griddepcontrol.launch_dependents;"); }
__device__ __forceinline__ void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#else
__device__ __forceinline__ void let_next_start() {}
__device__ __forceinline__ void wait_for_previous() {}
#endif

#endif

__device__ __forceinline__ float infinity() { return float_of_bits(0x7f800000u); }
__device__ __forceinline__ float bfloat16_to_float(u16 bits) { return float_of_bits((u32)bits << 16); }

// Numbers as they lie in memory. Arithmetic is always in float.
struct Half { u16 bits; };
struct BFloat16 { u16 bits; };

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(Half x) { return half_to_float(x.bits); }
__device__ __forceinline__ float to_float(BFloat16 x) { return bfloat16_to_float(x.bits); }

template <typename T> struct From;
template <> struct From<float> {
    static __device__ __forceinline__ float of(float x) { return x; }
};
template <> struct From<Half> {
    static __device__ __forceinline__ Half of(float x) { return Half{float_to_half(x)}; }
};
template <> struct From<BFloat16> {
    static __device__ __forceinline__ BFloat16 of(float x) { return BFloat16{float_to_bfloat16(x)}; }
};

__device__ __forceinline__ float load_float(const float* p) { return load(p); }
__device__ __forceinline__ float load_float(const Half* p) { return half_to_float(load((const u16*)p)); }
__device__ __forceinline__ float load_float(const BFloat16* p) {
    return bfloat16_to_float(load((const u16*)p));
}
__device__ __forceinline__ void store_float(float* p, float x) { store(p, x); }
__device__ __forceinline__ void store_float(Half* p, float x) { store((u16*)p, float_to_half(x)); }
__device__ __forceinline__ void store_float(BFloat16* p, float x) {
    store((u16*)p, float_to_bfloat16(x));
}
