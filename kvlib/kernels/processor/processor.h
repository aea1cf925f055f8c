// CUDA's words on a processor: every thread of a block is a fiber of one operating system thread.
//
// A fiber runs until it waits (__syncthreads, a shuffle) or ends; then the next one runs. The order is
// the caller's choice, and a kernel that needs a certain order has a race. Loads and stores are checked
// against the arrays that were handed over, and counted by 32-byte sectors as a graphics card would
// move them. Shared memory is NaN when a block starts.
#pragma once
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

struct uint2 { u32 x, y; };
struct alignas(16) uint4 { u32 x, y, z, w; };
struct float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct uint3 { u32 x, y, z; };
struct dim3 { u32 x, y, z; };

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define DYNAMIC_SHARED(type, name) type* name = reinterpret_cast<type*>(processor::shared)

// ---------------------------------------------------------------- from one fiber to another

// Assembly, because glibc's checked longjmp (_FORTIFY_SOURCE, which Ubuntu's g++ turns on) aborts on a
// jump to another stack, and swapcontext makes two system calls: the decode tests take twice as long.
// It also needs nothing of the C library, so musl, which has no ucontext, and macOS, which deprecates
// it, are fine. Other processors take swapcontext; -DKVLIB_UCONTEXT chooses it anywhere.
#if (defined(__x86_64__) || defined(__aarch64__)) && !defined(_WIN32) && !defined(KVLIB_UCONTEXT)

// Push the registers that a function must preserve, store the stack pointer in *from, load `to`, pop.
extern "C" __attribute__((visibility("hidden"))) void kvlib_switch(void** from, void* to) __asm__("kvlib_switch");
#ifdef __x86_64__
__asm__(
    ".text\n.globl kvlib_switch\nkvlib_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");
#else
__asm__(
    ".text\n.globl kvlib_switch\n.p2align 2\nkvlib_switch:\n"
    "sub sp, sp, #160\n"
    "stp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\nstp x25, x26, [sp, #48]\n"
    "stp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\nstp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\n"
    "stp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\n"
    "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
    "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\nldp x25, x26, [sp, #48]\n"
    "ldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\nldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\n"
    "ldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\n"
    "add sp, sp, #160\nret\n");
#endif

namespace processor {
typedef void* Context;
inline void change(Context& from, Context& to) { kvlib_switch(&from, to); }
inline void prepare(Context& at, void (*enter)(), char* stack, u64 size) {
#ifdef __x86_64__
    const int words = 8, back = 6;  // six registers, where to return, and one word that aligns enter's frame
#else
    const int words = 20, back = 11;  // x19 ... x30, then d8 ... d15; ret goes to x30
#endif
    void** top = (void**)((u64)(stack + size) / 16 * 16) - words;
    memset(top, 0, words * sizeof *top);
    top[back] = (void*)enter;
    at = top;
}
}  // namespace processor

#else

#ifdef __APPLE__
#define _XOPEN_SOURCE 700
#endif
#include <ucontext.h>

namespace processor {
typedef ucontext_t Context;
inline void change(Context& from, Context& to) { swapcontext(&from, &to); }
inline void prepare(Context& at, void (*enter)(), char* stack, u64 size) {
    getcontext(&at);
    at.uc_stack.ss_sp = stack;
    at.uc_stack.ss_size = size;
    at.uc_link = nullptr;
    makecontext(&at, enter, 0);
}
}  // namespace processor

#endif

// ---------------------------------------------------------------- a block of fibers

namespace processor {

enum Wait { RUNS, BLOCK, WARP, CHANGE, ENDED };

struct Copy {  // of 16 bytes, on its way to shared memory; from nowhere: zeros
    char* to;
    const char* from;
    u32 group;
};

struct Fiber {
    Context at;
    char* stack;
    uint3 thread;
    Wait wait;
    bool begun, parity;
    u32 ballots;  // of the whole block that this thread has cast
    u64 slot[2];  // what this lane hands to the others of its warp
    u32 accesses;
    Copy* copies;
    u32 num_copies, room_of_copies, group;  // the group that a copy would be in now
    const u32* word;  // CHANGE: waits while it is `seen`
    u32 seen;
};

struct Meeting { u32 arrived, turn; };  // of some threads, more than a warp and less than the block

struct Array {
    const char* begin;
    u64 bytes, read, written;
};

struct Sectors {  // of the n-th access of one warp: what its lanes touched
    u64 id[32];
    u8 count, width;
};

static const int MOST_THREADS = 1024;
static const u64 STACK = 1 << 17, CANARY = 64;

static Fiber fibers[MOST_THREADS];
static Fiber* self;
static Context scheduler;
static int num_threads, order[MOST_THREADS];  // of threads: (i * stride + first) mod num_threads
static int turn;                             // place in that order of the thread that runs
static char* shared;
static u64 num_shared;
static Meeting meetings[MOST_THREADS / 32];
static bool (*arrives_later)();  // called when no thread can move; whether something has arrived
static Array* arrays;
static int num_arrays;
static Sectors* sectors[MOST_THREADS / 32];
static u32 sector_room[MOST_THREADS / 32];
static u64 num_requests, num_sectors, num_bytes;
static char message[512];
static bool failed, block_votes[3];  // of this ballot, the one before it and the one after it
static void (*body)();

}  // namespace processor

static uint3 threadIdx, blockIdx;
static dim3 blockDim, gridDim;

namespace processor {

[[noreturn]] inline void fail(const char* what, long long a = 0, long long b = 0) {
    int n = snprintf(message, sizeof message, what, a, b);
    snprintf(message + n, sizeof message - n, " (block %u,%u,%u thread %u)", blockIdx.x, blockIdx.y,
             blockIdx.z, threadIdx.x);
    failed = true;
    change(self->at, scheduler);
    abort();  // nobody comes back
}

inline void enter();

inline Fiber* next() {  // the next one of this round that can run, which then is `self`, or null
    while (++turn < num_threads) {
        Fiber* f = fibers + order[turn];
        if (f->wait == CHANGE ? *f->word == f->seen : f->wait != RUNS) continue;
        self = f;
        threadIdx = f->thread;
        f->wait = RUNS;
        if (!f->begun) prepare(f->at, enter, f->stack, STACK);
        f->begun = true;
        return f;
    }
    return nullptr;
}

inline void yield(Wait wait) {
    Fiber* mine = self;
    mine->wait = wait;
    Fiber* f = next();
    change(mine->at, f ? f->at : scheduler);
}

inline void wait_for_change(const u32* word, u32 seen) {
    self->word = word;
    self->seen = seen;
    yield(CHANGE);
}

inline void meet(int number, u32 threads) {
    Meeting& m = meetings[number];
    const u32 turn = m.turn;
    if (++m.arrived < threads) return wait_for_change(&m.turn, turn);
    m.arrived = 0;
    m.turn++;
}

// A device's arrays begin at multiples of 256 bytes: sectors are counted from an array's own begin.
inline void note(const Array* array, const void* p, u32 width) {
    const u64 sector = ((u64)(array - arrays) << 48) + ((const char*)p - array->begin) / 32;
    const int warp = threadIdx.x / 32;
    const u32 n = self->accesses++;
    num_bytes += width;
    if (n >= sector_room[warp]) {
        const u32 room = n + 256;
        sectors[warp] = (Sectors*)realloc(sectors[warp], room * sizeof(Sectors));
        memset(sectors[warp] + sector_room[warp], 0, (room - sector_room[warp]) * sizeof(Sectors));
        sector_room[warp] = room;
    }
    Sectors& s = sectors[warp][n];
    for (int i = 0; i < s.count; i++)
        if (s.id[i] == sector) return;
    s.id[s.count++] = sector;
}

inline Array* owner(const void* p, u32 width) {
    const char* at = (const char*)p;
    if ((u64)at % width) fail("an access of %lld bytes at an address that is %lld past a multiple of it", width, (u64)at % width);
    for (int i = 0; i < num_arrays; i++)
        if (at >= arrays[i].begin && at + width <= arrays[i].begin + arrays[i].bytes) return arrays + i;
    for (int i = 0; i < num_arrays; i++) {
        const i64 off = at - arrays[i].begin;
        if (off > -(1 << 20) && off < (i64)arrays[i].bytes + (1 << 20))
            fail("an access outside of array %lld, at byte %lld of it", i, off);
    }
    fail("an access of %lld bytes outside of every array", width);
}

inline void land(const Copy& copy) {
    if (copy.from) memcpy(copy.to, copy.from, 16);
    else memset(copy.to, 0, 16);
}

inline void settle() {  // count what the block touched
    for (int w = 0; w < (num_threads + 31) / 32; w++)
        for (u32 n = 0; n < sector_room[w] && sectors[w][n].count; n++) {
            num_requests++;
            num_sectors += sectors[w][n].count;
            sectors[w][n].count = 0;
        }
}

inline void enter() {
    body();
    yield(ENDED);
}

inline bool release(int begin, int end, Wait what) {
    bool any = false;
    for (int t = begin; t < end; t++)
        if (fibers[t].wait == what) any = true;
        else if (fibers[t].wait != ENDED) return false;
    if (any)
        for (int t = begin; t < end; t++)
            if (fibers[t].wait == what) fibers[t].wait = RUNS;
    return any;
}

inline bool run_block() {
    for (int t = 0; t < num_threads; t++) {
        Fiber& f = fibers[t];
        f.thread = {(u32)t, 0, 0};
        f.wait = RUNS;
        f.begun = f.parity = false;
        f.accesses = f.ballots = f.num_copies = f.group = 0;
    }
    block_votes[0] = block_votes[1] = block_votes[2] = false;
    memset(meetings, 0, sizeof meetings);
    arrives_later = nullptr;
    for (;;) {
        turn = -1;
        Fiber* f = next();
        bool moved = f;
        if (moved) change(scheduler, f->at);  // comes back when all have had their turn
        if (failed) return false;
        for (int t = 0; t < num_threads; t += 32)
            moved |= release(t, t + 32 < num_threads ? t + 32 : num_threads, WARP);
        moved |= release(0, num_threads, BLOCK);
        if (!moved && !(arrives_later && arrives_later())) break;
    }
    for (int t = 0; t < num_threads; t++)
        if (fibers[t].wait != ENDED) {
            snprintf(message, sizeof message, "thread %d waits for threads that never come (block %u,%u,%u)",
                     t, blockIdx.x, blockIdx.y, blockIdx.z);
            return false;
        }
    settle();
    return true;
}

inline u64 exchange(u64 bits, int from) {
    self->parity = !self->parity;
    const int parity = self->parity, warp = threadIdx.x / 32 * 32;
    self->slot[parity] = bits;
    yield(WARP);
    return fibers[warp + from].slot[parity];
}

template <typename V> inline u64 to_bits(V x) {
    u64 bits = 0;
    memcpy(&bits, &x, sizeof x);
    return bits;
}
template <typename V> inline V of_bits(u64 bits) {
    V x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

}  // namespace processor

// ---------------------------------------------------------------- CUDA's functions

inline void __syncthreads() { processor::yield(processor::BLOCK); }
inline bool __syncthreads_or(bool vote) {
    const u32 turn = processor::self->ballots++ % 3;
    processor::block_votes[(turn + 1) % 3] = false;  // the ballot two before: everybody has read it
    processor::block_votes[turn] |= vote;
    processor::yield(processor::BLOCK);
    return processor::block_votes[turn];
}
inline void __threadfence() {}
inline void __syncwarp(u32 = 0xffffffffu) { processor::yield(processor::WARP); }

template <typename V> inline V __shfl_xor_sync(u32, V x, int mask) {
    return processor::of_bits<V>(processor::exchange(processor::to_bits(x), (threadIdx.x % 32) ^ mask));
}
template <typename V> inline V __shfl_sync(u32, V x, int lane) {
    return processor::of_bits<V>(processor::exchange(processor::to_bits(x), lane & 31));
}
template <typename V> inline V __shfl_down_sync(u32, V x, int by) {
    const int lane = threadIdx.x % 32;
    return processor::of_bits<V>(processor::exchange(processor::to_bits(x), lane + by < 32 ? lane + by : lane));
}
template <typename V> inline V __shfl_up_sync(u32, V x, int by) {
    const int lane = threadIdx.x % 32;
    return processor::of_bits<V>(processor::exchange(processor::to_bits(x), lane >= by ? lane - by : lane));
}
inline u32 __ballot_sync(u32, bool vote) {
    processor::exchange(vote, 0);
    const int warp = threadIdx.x / 32 * 32;
    u32 votes = 0;
    for (int i = 0; i < 32 && warp + i < processor::num_threads; i++)
        if (processor::fibers[warp + i].slot[processor::self->parity]) votes |= 1u << i;
    return votes;
}
namespace processor {
// of[i] = what lane i of the warp hands in: addresses stay good until the next __syncwarp.
template <typename P, typename Q> inline void gather(P mine, Q* of) {
    exchange((u64)mine, 0);
    const int warp = threadIdx.x / 32 * 32;
    for (int i = 0; i < 32 && warp + i < num_threads; i++)
        of[i] = (Q)fibers[warp + i].slot[self->parity];
}
}  // namespace processor
inline bool __any_sync(u32 lanes, bool vote) { return __ballot_sync(lanes, vote) != 0; }
inline bool __all_sync(u32 lanes, bool vote) { return __ballot_sync(lanes, !vote) == 0; }
inline int __popc(u32 x) { return __builtin_popcount(x); }
inline int __clz(u32 x) { return x ? __builtin_clz(x) : 32; }
inline int __ffs(u32 x) { return __builtin_ffs((int)x); }
inline u32 __umulhi(u32 a, u32 b) { return (u32)(((u64)a * b) >> 32); }
inline u64 __umul64hi(u64 a, u64 b) { return (u64)(((unsigned __int128)a * b) >> 64); }
inline u32 __byte_perm(u32 a, u32 b, u32 which) {
    const u64 bytes = (u64)b << 32 | a;
    u32 found = 0;
    for (int i = 0; i < 4; i++) found |= (u32)(bytes >> 8 * (which >> 4 * i & 7) & 0xff) << 8 * i;
    return found;
}
inline float __fdividef(float a, float b) { return a / b; }
template <typename V> inline V min(V a, V b) { return b < a ? b : a; }
template <typename V> inline V max(V a, V b) { return a < b ? b : a; }

template <typename V> inline V atomicAdd(V* p, V x) {  // shared memory, or an array that was handed over
    const V old = *p;
    *p = old + x;
    return old;
}
template <typename V> inline V atomicMax(V* p, V x) {
    const V old = *p;
    *p = max(old, x);
    return old;
}

// ---------------------------------------------------------------- what portable.cuh asks for

inline float float_of_bits(u32 bits) { return processor::of_bits<float>(bits); }
inline u32 bits_of_float(float x) { return (u32)processor::to_bits(x); }

inline float half_to_float(u16 bits) {
    const u32 sign = (u32)(bits & 0x8000) << 16, rest = bits & 0x7fff;
    if (rest >= 0x7c00) return float_of_bits(sign | 0x7f800000u | (rest & 0x3ff) << 13);
    // Below 2^-14 a half counts units of 2^-24; above, only the exponent's bias differs.
    if (rest < 0x400) return float_of_bits(sign | bits_of_float((float)rest * 0x1p-24f));
    return float_of_bits(sign | ((rest << 13) + 0x38000000u));
}
inline u16 float_to_half(float x) {
    const u32 bits = bits_of_float(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000u) return (u16)(sign | 0x7e00);
    if (rest >= 0x477ff000u) return (u16)(sign | 0x7c00);  // rounds beyond 65504
    if (rest < 0x38800000u) return (u16)(sign | (u32)lrintf(float_of_bits(rest) * 0x1p24f));
    const u32 odd = rest >> 13 & 1;
    return (u16)(sign | ((rest + 0xfff + odd - 0x38000000u) >> 13));
}
inline u16 float_to_bfloat16(float x) {
    const u32 bits = bits_of_float(x);
    if ((bits & 0x7fffffff) > 0x7f800000u) return 0x7fff;
    return (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float exp2_fast(float x) { return exp2f(x); }
inline float log2_fast(float x) { return log2f(x); }

template <typename V> inline V load(const V* p) {
    processor::Array* from = processor::owner(p, sizeof(V));
    from->read += sizeof(V);
    processor::note(from, p, sizeof(V));
    return *p;
}
template <typename V> inline V load_plain(const V* p) { return load(p); }
template <typename V> inline V load_fresh(const V* p) { return load(p); }

// Shared memory is NaN from the moment a copy starts until the thread that started it has waited, and so is
// what another thread reads too early or still reads too late.
inline void copy_async(void* to, const void* from, bool valid) {
    char* at = (char*)to;
    if ((u64)at % 16 || at < processor::shared || at + 16 > processor::shared + processor::num_shared)
        processor::fail("a copy to byte %lld of the block's %lld in shared memory, or off a multiple of 16",
                        at - processor::shared, processor::num_shared);
    if (valid) {
        processor::Array* array = processor::owner(from, 16);
        array->read += 16;
        processor::note(array, from, 16);
    }
    memset(at, 0xff, 16);
    processor::Fiber& f = *processor::self;
    if (f.num_copies == f.room_of_copies) {
        f.room_of_copies += 64;
        f.copies = (processor::Copy*)realloc(f.copies, f.room_of_copies * sizeof(processor::Copy));
    }
    f.copies[f.num_copies++] = {at, valid ? (const char*)from : nullptr, f.group};
}
inline void commit_copies() { processor::self->group++; }
template <int N> inline void wait_for_copies() {
    processor::Fiber& f = *processor::self;
    u32 rest = 0;
    for (u32 i = 0; i < f.num_copies; i++) {
        const processor::Copy copy = f.copies[i];
        if (copy.group + N >= f.group) f.copies[rest++] = copy;
        else processor::land(copy);
    }
    f.num_copies = rest;
}

inline void prefetch(const void* p, u32 bytes) {
    if ((u64)p % 16 || bytes % 16) processor::fail("a prefetch of %lld bytes, or off a multiple of 16", bytes);
    if (bytes && processor::owner(p, 16) != processor::owner((const char*)p + bytes - 16, 16))
        processor::fail("a prefetch of %lld bytes beyond its array", bytes);
}
inline void let_next_start() {}  // kernels run one after the other here
inline void wait_for_previous() {}
template <typename V> inline void store(V* p, V x) {
    processor::Array* to = processor::owner(p, sizeof(V));
    to->written += sizeof(V);
    processor::note(to, p, sizeof(V));
    *p = x;
}

// ---------------------------------------------------------------- the entry that Python calls

namespace processor {

template <int... I> struct Indices {};
template <int N, int... I> struct Count : Count<N - 1, N - 1, I...> {};
template <int... I> struct Count<0, I...> { typedef Indices<I...> type; };

static void** arguments;

template <typename... A, int... I>
inline void call(void (*kernel)(A...), Indices<I...>) { kernel(*(A*)arguments[I]...); }
template <typename... A>
inline void call(void (*kernel)(A...)) { call(kernel, typename Count<sizeof...(A)>::type()); }

// counts: requests, sectors, bytes of the whole grid. Gives 0, or 1 with a message.
inline int run(void (*kernel_body)(), const u32* grid, int threads, u64 shared_bytes, void** args,
               Array* handed, int num_handed, int first, int stride, u64* counts, char* text) {
    body = kernel_body;
    arguments = args;
    arrays = handed;
    num_arrays = num_handed;
    num_threads = threads;
    num_requests = num_sectors = num_bytes = 0;
    failed = false;
    message[0] = 0;
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {(u32)threads, 1, 1};
    char* stacks = (char*)malloc(STACK * threads);
    for (int t = 0; t < threads; t++) {
        fibers[t].stack = stacks + STACK * t;
        order[t] = ((i64)t * stride + first) % threads;
    }
    shared = (char*)aligned_alloc(128, (shared_bytes + CANARY + 127) / 128 * 128);
    num_shared = shared_bytes;
    bool fine = true;
    for (u32 z = 0; fine && z < grid[2]; z++)
        for (u32 y = 0; fine && y < grid[1]; y++)
            for (u32 x = 0; fine && x < grid[0]; x++) {
                blockIdx = {x, y, z};
                memset(shared, 0xff, shared_bytes);           // NaN
                memset(shared + shared_bytes, 0xa5, CANARY);
                fine = run_block();
                for (u64 i = 0; fine && i < CANARY; i++)
                    if (shared[shared_bytes + i] != (char)0xa5) {
                        snprintf(message, sizeof message, "shared memory is written beyond its %llu bytes", shared_bytes);
                        fine = false;
                    }
            }
    free(stacks);
    free(shared);
    counts[0] = num_requests;
    counts[1] = num_sectors;
    counts[2] = num_bytes;
    strncpy(text, message, sizeof message);
    return fine ? 0 : 1;
}

}  // namespace processor
