// A partial result of attention: running maximum m, sum l, and the weighted sum of values.
// Scores are to base 2 (their scale holds log2 e), so that one instruction is the exponential.
#pragma once
#include "portable.cuh"

// The factors by which two partial results with maxima a and b enter their merger. Nothing merged
// with nothing stays nothing: −inf − −inf would be NaN.
__device__ __forceinline__ float merged_maximum(float a, float b, float* factor_a, float* factor_b) {
    const float m = fmaxf(a, b);
    const float safe = m == -infinity() ? 0.0f : m;
    *factor_a = exp2_fast(a - safe);
    *factor_b = exp2_fast(b - safe);
    return m;
}

// Natural logarithm of the sum of exponentials, −inf where no key was seen.
__device__ __forceinline__ float log_sum_exp(float m, float l) {
    return l > 0.0f ? (m + log2_fast(l)) * 0.6931471805599453f : -infinity();
}

// A result in the type of the queries: 0 float, 1 Half, 2 BFloat16.
__device__ __forceinline__ void store_any(void* p, i64 i, float x, int kind) {
    if (kind == 0) store_float((float*)p + i, x);
    if (kind == 1) store_float((Half*)p + i, x);
    if (kind == 2) store_float((BFloat16*)p + i, x);
}
