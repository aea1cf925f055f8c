// One range of columns of a row of logits, 16 bytes a load wherever they lie whole in the range.
#pragma once
#include "vectors.cuh"

template <typename T> struct Range {
    static const int COUNT = Vector<T>::COUNT;
    int begin, end, lead;  // lead: columns from the multiple of 16 bytes at or before `begin`
    int vectors;
    const T* row;
    const uint4* source;

    __device__ __forceinline__ Range(const T* logits, i64 row_number, int vocabulary, int first, int columns) {
        begin = min(vocabulary, first);
        end = min(vocabulary, begin + columns);
        row = logits + row_number * vocabulary;
        const i64 start = row_number * vocabulary + begin;
        lead = (int)(start % COUNT);
        vectors = (end - begin + lead + COUNT - 1) / COUNT;
        source = (const uint4*)(logits + (start - lead));
    }
    __device__ __forceinline__ int column(int vector) const { return begin - lead + vector * COUNT; }
    __device__ __forceinline__ bool holds(int column) const { return column >= begin && column < end; }
    __device__ __forceinline__ bool whole(int vector) const {
        return column(vector) >= begin && column(vector) + COUNT <= end;
    }
    __device__ __forceinline__ uint4 fetch(int vector) const {
        return whole(vector) ? load(source + vector) : uint4{0u, 0u, 0u, 0u};
    }
    // Whether `count` vectors from `first` on lie whole in the range: nothing to look at in any of them.
    __device__ __forceinline__ bool inside(int first, int count) const {
        return column(first) >= begin && column(first + count) <= end;
    }
    // −inf where the vector reaches beyond the range.
    __device__ __forceinline__ void unpack(uint4 raw, int vector, float* x) const {
        Vector<T>::unpack(raw, x);
        if (!whole(vector))
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                x[i] = holds(column(vector) + i) ? load_float(row + column(vector) + i) : -infinity();
    }
};
