// Every product of NumPy, summed in another order, and its rounding error made larger.
//
// Loaded before NumPy's BLAS (LD_PRELOAD), this library answers its calls of cblas_sgemm, sgemv, sdot,
// ssyrk and their double forms. Each call is computed twice by the real BLAS: as it came, and with the
// summed dimension cut at random places and the pieces added in reverse. The result is
//     as it came + KVLIB_TIMES * (other order - as it came),
// so with KVLIB_TIMES=1 it is a sum in another order, and with 8 it is off by eight times as much.
// KVLIB_SEED chooses the places. The same call on the same numbers gives the same result, in whatever
// order threads make their calls. tools/rounding_edges.py compiles this file and says what it is for.
#include <dlfcn.h>
#include <link.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#define JOIN_(a, b, c) a##b##c
#define JOIN(a, b, c) JOIN_(a, b, c)
#define NAME(x) JOIN(PREFIX, x, SUFFIX)
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

namespace {

typedef INTEGER Int;
enum { ROW = 101, PLAIN = 111 };

int look(struct dl_phdr_info* info, size_t, void* found) {
    void* library = info->dlpi_name && strstr(info->dlpi_name, "blas")
                        ? dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
    const char** name = static_cast<const char**>(found);
    void* address = library ? dlsym(library, name[0]) : nullptr;
    if (address) name[1] = static_cast<const char*>(address);
    return address != nullptr;
}

template <typename F> F real(const char* name) {
    const char* found[2] = {name, nullptr};
    dl_iterate_phdr(look, found);
    if (!found[1]) {
        fprintf(stderr, "other_order: no loaded BLAS has %s\n", name);
        abort();
    }
    return reinterpret_cast<F>(const_cast<char*>(found[1]));
}

double setting(const char* name, double otherwise) {
    const char* text = getenv(name);
    return text ? atof(text) : otherwise;
}

struct Random {
    uint64_t state;
    template <typename T> Random(const T* x, Int n, Int k) {
        static const double seed = setting("KVLIB_SEED", 0);
        uint64_t bits = 0;
        memcpy(&bits, x, sizeof(T));
        state = bits ^ (uint64_t(n) << 40) ^ (uint64_t(k) << 20) ^ uint64_t(seed * 7919 + 1);
    }
    uint64_t next() {  // splitmix64
        uint64_t z = (state += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
};

// Calls piece(from, length, add) for up to four pieces of k, the last one first.
template <typename P> void in_pieces(Random random, Int k, P piece) {
    Int end = k;
    for (int left = 4; end > 0; left--) {
        Int length = left == 1 ? end : 1 + Int(random.next() % uint64_t(1 + 2 * end / left));
        if (length > end) length = end;
        piece(end - length, length, end < k);
        end -= length;
    }
}

template <typename T> T farther(T first, T second) {
    static const double times = setting("KVLIB_TIMES", 1);
    T moved = T(double(first) + times * (double(second) - double(first)));
    return isfinite(moved) ? moved : first;
}

}  // namespace

#define FORMS(T, s)                                                                                 \
    extern "C" void NAME(s##gemm)(int order, int ta, int tb, Int m, Int n, Int k, T alpha,          \
                                  const T* a, Int lda, const T* b, Int ldb, T beta, T* c,           \
                                  Int ldc) {                                                        \
        static auto blas = real<decltype(&NAME(s##gemm))>(TEXT(NAME(s##gemm)));                     \
        blas(order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);                          \
        if (beta != 0 || m < 1 || n < 1 || k < 2) return;                                           \
        Int rows = order == ROW ? m : n, columns = order == ROW ? n : m;                            \
        Int step_a = (order == ROW) == (ta == PLAIN) ? 1 : lda;                                     \
        Int step_b = (order == ROW) == (tb == PLAIN) ? ldb : 1;                                     \
        std::vector<T> other(size_t(rows) * columns);                                               \
        in_pieces(Random(a, n, k), k, [&](Int at, Int length, bool add) {                           \
            blas(order, ta, tb, m, n, length, alpha, a + at * step_a, lda, b + at * step_b, ldb,    \
                 T(add), other.data(), columns);                                                    \
        });                                                                                         \
        for (Int i = 0; i < rows; i++)                                                              \
            for (Int j = 0; j < columns; j++)                                                       \
                c[i * ldc + j] = farther(c[i * ldc + j], other[size_t(i) * columns + j]);           \
    }                                                                                               \
    extern "C" void NAME(s##syrk)(int order, int upper, int trans, Int n, Int k, T alpha,           \
                                  const T* a, Int lda, T beta, T* c, Int ldc) {                     \
        static auto blas = real<decltype(&NAME(s##syrk))>(TEXT(NAME(s##syrk)));                     \
        std::vector<T> other(size_t(n) * n);                                                        \
        blas(order, upper, trans, n, k, alpha, a, lda, beta, c, ldc);                               \
        if (beta != 0 || n < 1 || k < 2) return;                                                    \
        for (Int i = 0; i < n; i++) /* the half that is not computed stays as it is */              \
            for (Int j = 0; j < n; j++) other[size_t(i) * n + j] = c[i * ldc + j];                  \
        Int step = (order == ROW) == (trans == PLAIN) ? 1 : lda;                                    \
        in_pieces(Random(a, n, k), k, [&](Int at, Int length, bool add) {                           \
            blas(order, upper, trans, n, length, alpha, a + at * step, lda, T(add), other.data(),   \
                 n);                                                                                \
        });                                                                                         \
        for (Int i = 0; i < n; i++)                                                                 \
            for (Int j = 0; j < n; j++)                                                             \
                c[i * ldc + j] = farther(c[i * ldc + j], other[size_t(i) * n + j]);                 \
    }                                                                                               \
    extern "C" void NAME(s##gemv)(int order, int trans, Int m, Int n, T alpha, const T* a, Int lda, \
                                  const T* x, Int incx, T beta, T* y, Int incy) {                   \
        static auto blas = real<decltype(&NAME(s##gemv))>(TEXT(NAME(s##gemv)));                     \
        blas(order, trans, m, n, alpha, a, lda, x, incx, beta, y, incy);                            \
        Int k = trans == PLAIN ? n : m, out = trans == PLAIN ? m : n;                               \
        if (beta != 0 || out < 1 || k < 2 || incx < 1 || incy < 1) return;                          \
        Int step = (order == ROW) == (trans == PLAIN) ? 1 : lda;                                    \
        std::vector<T> other(out);                                                                  \
        in_pieces(Random(a, out, k), k, [&](Int at, Int length, bool add) {                         \
            blas(order, trans, trans == PLAIN ? m : length, trans == PLAIN ? length : n, alpha,     \
                 a + at * step, lda, x + at * incx, incx, T(add), other.data(), 1);                 \
        });                                                                                         \
        for (Int i = 0; i < out; i++) y[i * incy] = farther(y[i * incy], other[i]);                 \
    }                                                                                               \
    extern "C" T NAME(s##dot)(Int n, const T* x, Int incx, const T* y, Int incy) {                  \
        static auto blas = real<decltype(&NAME(s##dot))>(TEXT(NAME(s##dot)));                       \
        T first = blas(n, x, incx, y, incy), other = 0;                                             \
        if (n < 2 || incx < 1 || incy < 1) return first;                                            \
        in_pieces(Random(x, n, n), n, [&](Int at, Int length, bool) {                               \
            other += blas(length, x + at * incx, incx, y + at * incy, incy);                        \
        });                                                                                         \
        return farther(first, other);                                                               \
    }

FORMS(float, s)
FORMS(double, d)
