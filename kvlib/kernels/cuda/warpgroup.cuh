// Hopper's warpgroups and copy engine, compute capability 9.0 compiled as sm_90a. Four warps multiply
// tiles in shared memory together, one thread has boxes of an array copied there, and both end later than
// they start. Barriers count arrivals and bytes. (PTX ISA: wgmma.mma_async and its matrix descriptors,
// mbarrier, cp.async.bulk.tensor, setmaxnreg.)
//
// A tile in shared memory has rows of 64 16-bit numbers, 128 bytes, and starts at a multiple of 1,024
// bytes. Of row r, the 16 bytes at place c are stored at place c ^ r % 8, so that eight rows read at
// one place use all banks (the 128-byte swizzle). Wider rows are several tiles, one after the other.
//
// A lane's sums: row lane / 4 of its warp's 16 and the one 8 below, columns 2 · (lane % 4) + {0, 1} of
// every eight: d[4 t + {0, 1}] of the upper row, d[4 t + {2, 3}] of the lower one. The left factor in
// registers is laid out as in tensor.cuh.
//
// Products and the copy engine reach memory through a proxy of their own. What threads wrote, they see
// after fence_shared() alone; what the copy engine wrote, products see without it.
#pragma once
#include "tensor.cuh"

static const int TILE_ROW = 128;  // bytes

#ifndef KVLIB_ON_PROCESSOR

struct Barrier { u64 state; };  // in shared memory; its phases alternate between parities 0 and 1
struct alignas(64) Boxes { u64 secret[16]; };  // an array as the copy engine sees it; launch.py makes it

__device__ __forceinline__ u32 shared_at(const void* p) { return (u32)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void expect(Barrier* b, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(shared_at(b)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void arrive(Barrier* b) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(shared_at(b)) : "memory");
}
// Arrive once all copies that this thread has started have ended.
__device__ __forceinline__ void arrive_after_copies(Barrier* b) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(shared_at(b)) : "memory");
}
// Arrive, and have the phase end no earlier than copies of so many bytes.
__device__ __forceinline__ void arrive_expecting(Barrier* b, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(shared_at(b)), "r"(bytes) : "memory");
}
// Have the copy engine copy 64 columns of some rows of a block into a tile. Outside of the array are zeros.
__device__ __forceinline__ void copy_box(u8* to, const Boxes* from, int column, int row, int block, Barrier* b) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
                 :: "r"(shared_at(to)), "l"(from), "r"(column), "r"(row), "r"(block), "r"(shared_at(b)) : "memory");
}
// Wait until the phase of this parity has ended.
__device__ __forceinline__ void wait(Barrier* b, u32 parity) {
    u32 ended;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(ended) : "r"(shared_at(b)), "r"(parity) : "memory");
    } while (!ended);
}
// Shared memory that a thread wrote, or saw written by waiting, is what products started from here on see.
__device__ __forceinline__ void fence_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// The same for the registers of products. A product's registers are not touched until it has ended.
__device__ __forceinline__ void fence_registers() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void close_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Wait until at most N groups of products, the newest, have not ended.
template <int N> __device__ __forceinline__ void wait_groups() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
}
template <int N> __device__ __forceinline__ void pin(float (&d)[N]) {  // the compiler moves no use of d past this
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i]) :: "memory");
}
template <int N> __device__ __forceinline__ void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(N)); }
template <int N> __device__ __forceinline__ void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(N)); }

#define KVLIB_F8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define KVLIB_F16(i) KVLIB_F8(i), KVLIB_F8(i + 8)
#define KVLIB_F32(i) KVLIB_F16(i), KVLIB_F16(i + 16)
#define KVLIB_F48 KVLIB_F32(0), KVLIB_F16(32)
#define KVLIB_F64 KVLIB_F32(0), KVLIB_F32(32)
#define KVLIB_F128 KVLIB_F64, KVLIB_F32(64), KVLIB_F32(96)
#define KVLIB_R32 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define KVLIB_R48 KVLIB_R32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define KVLIB_R64 KVLIB_R48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define KVLIB_R128 KVLIB_R64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define KVLIB_WGMMA(kind, n, add, regs, ...) \
    "{\n.reg .pred p;\nsetp.ne.b32 p, " add ", 0;\nwgmma.mma_async.sync.aligned.m64n" n "k16.f32." kind "." kind " {" regs "}, " __VA_ARGS__ ";\n}"

// Start d (64 rows) = A · Bᵀ, plus d if `add`: rows of the tiles of A and B go along the sum.
#define KVLIB_TILES(T, kind, N, n, F, R, a_at, b_at, add_at)                                             \
    __device__ __forceinline__ void start_product(T, float (&d)[N], u64 a, u64 b, int add) {              \
        asm volatile(KVLIB_WGMMA(kind, n, add_at, R, a_at ", " b_at ", p, 1, 1, 0, 0")                    \
                     : F : "l"(a), "l"(b), "r"(add));                                                     \
    }
// Start d = A · B, plus d if `add`, with A in registers; B's rows are summed over.
#define KVLIB_REGISTERS(T, kind, N, n, F, R, a_at, b_at, add_at)                                         \
    __device__ __forceinline__ void start_product(T, float (&d)[N], const u32 (&a)[4], u64 b, int add) {  \
        asm volatile(KVLIB_WGMMA(kind, n, add_at, R, "{" a_at "}, " b_at ", p, 1, 1, 1")                  \
                     : F : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));                 \
    }
#define KVLIB_PRODUCTS(T, kind)                                                                                  \
    KVLIB_TILES(T, kind, 32, "64", KVLIB_F32(0), KVLIB_R32, "%32", "%33", "%34")                              \
    KVLIB_TILES(T, kind, 64, "128", KVLIB_F64, KVLIB_R64, "%64", "%65", "%66")                                \
    KVLIB_REGISTERS(T, kind, 32, "64", KVLIB_F32(0), KVLIB_R32, "%32, %33, %34, %35", "%36", "%37")        \
    KVLIB_REGISTERS(T, kind, 48, "96", KVLIB_F48, KVLIB_R48, "%48, %49, %50, %51", "%52", "%53") \
    KVLIB_REGISTERS(T, kind, 64, "128", KVLIB_F64, KVLIB_R64, "%64, %65, %66, %67", "%68", "%69")          \
    KVLIB_REGISTERS(T, kind, 128, "256", KVLIB_F128, KVLIB_R128, "%128, %129, %130, %131", "%132", "%133")
KVLIB_PRODUCTS(Half, "f16")
KVLIB_PRODUCTS(BFloat16, "bf16")

#else

struct Barrier {
    u32 phase;
    u8 pending, expected : 7, plain : 1;  // plain: threads copied, and a fence is needed
    short copies;                         // of 16 bytes that are expected and have not arrived
};
struct Boxes {
    const char* begin;
    int columns, rows, blocks, rows_of_box;
};

namespace processor {

// Copies that a barrier waits for arrive when nothing else can move, the oldest first.
struct Later {
    Copy copy;
    Barrier* then;  // null, or what the copies before arrive at
    int copies;     // of a box, or 0: of a thread
};
static Later* later;
static u32 later_begin, later_end, later_room;

// A product reads and writes when it is waited for; until then its sums are NaN.
struct Started {
    float* d;
    const u32* a;  // registers, or null
    u64 a_tile, b_tile;
    int n, add, group;
    float (*number)(u16);
};
struct Group {
    Started started[64];
    int count, group;
    float* open[2];         // sums that products not yet waited for write
    int width[2];           // of them
    float sums[2][128];
    bool registers, tiles;  // fenced
};
static Group products[MOST_THREADS];

inline bool deliver();
inline void end_phase(Barrier* b) {
    if (b->pending || b->copies) return;
    b->pending = b->expected;
    b->phase ^= 1;
}
inline void append(const Later& x) {
    if (!arrives_later) {  // the block's first; a block before it may have failed
        arrives_later = deliver;
        later_begin = later_end = 0;
        for (Group& g : products) g.count = g.group = g.registers = g.tiles = 0, g.open[0] = g.open[1] = nullptr;
    }
    if (later_end == later_room) later = (Later*)realloc(later, (later_room = later_room * 2 + 64) * sizeof(Later));
    later[later_end++] = x;
}
template <typename T> inline float number_of(u16 bits) { return to_float(T{bits}); }

// The 16-bit number at (row, column) of the tile that a descriptor names. `along`: rows go along the sum.
inline u16 in_tile(u64 tile, int row, int column, bool along) {
    const u32 start = (u32)(tile & 0x3fff) << 4, leading = (u32)(tile >> 16 & 0x3fff) << 4, stride = (u32)(tile >> 32 & 0x3fff) << 4;
    if (tile >> 62 != 1 || (tile >> 49 & 7)) fail("a tile whose swizzle is not that of 128 bytes");
    u32 at = start + row / 8 * stride + row % 8 * 128;
    at += along ? (u32)column / 64 * leading + column % 64 * 2 : (u32)column * 2;
    at ^= (at >> 7 & 7) << 4;
    if (at + 2 > num_shared) fail("a tile reaches byte %lld of %lld of shared memory", at, (i64)num_shared);
    return *(const u16*)(shared + at);
}
inline void multiply(const Started& x, float* sums) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float a[2][16];
    for (int half = 0; half < 2; half++)
        for (int k = 0; k < 16; k++) {
            u16 bits;
            if (x.a) {
                const Fiber* holder = fibers + warp * 32 + lane / 4 * 4 + k % 8 / 2;
                const Group& other = products[holder - fibers];
                const u32* their = other.started[&x - products[threadIdx.x].started].a;
                bits = (u16)(their[k / 8 * 2 + half] >> 16 * (k % 2));
            } else
                bits = in_tile(x.a_tile, warp % 4 * 16 + lane / 4 + half * 8, k, false);
            a[half][k] = x.number(bits);
        }
    for (int t = 0; t < x.n / 8; t++)
        for (int i = 0; i < 2; i++) {
            const int column = t * 8 + lane % 4 * 2 + i;
            float upper = x.add ? sums[4 * t + i] : 0.0f, lower = x.add ? sums[4 * t + 2 + i] : 0.0f;
            for (int k = 0; k < 16; k++) {
                const float b = x.number(x.a ? in_tile(x.b_tile, k, column, true) : in_tile(x.b_tile, column, k, false));
                upper += a[0][k] * b;
                lower += a[1][k] * b;
            }
            sums[4 * t + i] = upper;
            sums[4 * t + 2 + i] = lower;
        }
}
inline void start(float* d, const u32* a, u64 a_tile, u64 b_tile, int n, int add, float (*number)(u16)) {
    Group& g = products[threadIdx.x];
    if (!g.registers || !g.tiles) fail("a product of registers or tiles without a fence");
    for (int k = 0; k < 16; k++) {  // a part of the tile
        const int i = threadIdx.x % 128;
        if (i < n && (a ? in_tile(b_tile, k, i, true) : in_tile(b_tile, i, k, false)) == 0xffff)
            fail("a product of a tile that has not arrived");
    }
    int slot = g.open[0] == d ? 0 : g.open[1] == d ? 1 : g.open[0] ? 1 : 0;
    if (g.open[slot] != d) {
        if (g.open[slot] || g.count == 64) fail("more products than this emulation keeps");
        g.open[slot] = d;
        g.width[slot] = n / 2;
        memcpy(g.sums[slot], d, n / 2 * sizeof(float));
        memset(d, 0xff, n / 2 * sizeof(float));
    }
    g.started[g.count++] = {d, a, a_tile, b_tile, n, add, g.group, number};
}

}  // namespace processor

inline u32 shared_at(const void* p) { return (u32)((const char*)p - processor::shared); }
inline void expect(Barrier* b, int arrivals) {
    memset(b, 0, sizeof *b);
    b->pending = b->expected = arrivals;
}
inline void arrive_expecting(Barrier* b, int bytes) {
    b->copies += bytes / 16;
    if (--b->pending == 0) processor::end_phase(b);
}
inline void arrive(Barrier* b) { arrive_expecting(b, 0); }
inline void arrive_after_copies(Barrier* b) {
    processor::Fiber& f = *processor::self;
    for (u32 i = 0; i < f.num_copies; i++) processor::append({f.copies[i], nullptr, 0});
    f.num_copies = 0;
    processor::append({{}, b, 0});
}
inline void wait(Barrier* b, u32 parity) {
    if (b->phase == parity) processor::wait_for_change(&b->phase, parity);
    if (b->plain) processor::products[threadIdx.x].tiles = false;
}
inline bool processor::deliver() {  // until a thread's copies or a box have arrived
    while (later_begin < later_end) {
        const Later& x = later[later_begin++];
        if (!x.then) {
            land(x.copy);
            continue;
        }
        if (x.copies) {
            x.then->copies -= x.copies;
            end_phase(x.then);
        } else {
            x.then->plain = 1;
            arrive(x.then);
        }
        return true;
    }
    later_begin = later_end = 0;
    return false;
}
inline void copy_box(u8* to, const Boxes* from, int column, int row, int block, Barrier* b) {
    const int rows = from->rows_of_box;
    if (shared_at(to) % 1024 || rows % 8) processor::fail("a box that does not begin and end at a multiple of 1,024 bytes");
    processor::num_requests++;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < 8; c++) {
            const bool there = block >= 0 && block < from->blocks && row >= 0 && row + r < from->rows && column + 8 * c < from->columns;
            const char* p = from->begin + (((i64)block * from->rows + row + r) * from->columns + column + 8 * c) * 2;
            if (there) {
                processor::owner(p, 16)->read += 16;
                processor::num_bytes += 16;
                processor::num_sectors += c % 2;
            }
            char* at = (char*)to + r * TILE_ROW + (c ^ r % 8) * 16;
            memset(at, 0xff, 16);
            processor::append({{at, there ? p : nullptr, 0}, nullptr, 0});
        }
    processor::append({{}, b, rows * 8});
}
inline void fence_shared() { processor::products[threadIdx.x].tiles = true; }
inline void fence_registers() { processor::products[threadIdx.x].registers = true; }
inline void close_group() { processor::products[threadIdx.x].group++; }
template <int N> inline void wait_groups() {
    processor::Group& g = processor::products[threadIdx.x];
    processor::meet(threadIdx.x / 128, 128);  // the others' registers are read below
    int done = 0;
    while (done < g.count && g.started[done].group < g.group - N) {
        const processor::Started& x = g.started[done++];
        processor::multiply(x, g.sums[g.open[1] == x.d]);
    }
    processor::meet(threadIdx.x / 128, 128);
    g.count -= done;
    memmove(g.started, g.started + done, g.count * sizeof g.started[0]);
    for (int slot = 0; slot < 2; slot++) {
        bool open = false;
        for (int i = 0; i < g.count; i++) open |= g.started[i].d == g.open[slot];
        if (open || !g.open[slot]) continue;
        memcpy(g.open[slot], g.sums[slot], g.width[slot] * sizeof(float));
        g.open[slot] = nullptr;
    }
    g.registers = false;
    if (g.count == 0) g.group = 0;
}
template <int N> inline void pin(float (&)[N]) {}
template <int N> inline void fewer_registers() {}
template <int N> inline void more_registers() {}

template <typename T, int N> inline void start_product(T, float (&d)[N], u64 a, u64 b, int add) {
    processor::start(d, nullptr, a, b, 2 * N, add, processor::number_of<T>);
}
template <typename T, int N> inline void start_product(T, float (&d)[N], const u32 (&a)[4], u64 b, int add) {
    processor::start(d, a, 0, b, 2 * N, add, processor::number_of<T>);
}

#endif

// The descriptor of tiles at an address in shared memory. `next`: bytes from a tile to the one beside it.
__device__ __forceinline__ u64 tile_at(u32 at, u32 next) {
    return (u64)(at >> 4 & 0x3fff) | (u64)(next >> 4) << 16 | (u64)(8 * TILE_ROW >> 4) << 32 | 1ull << 62;
}
// Bytes from the start of a tile to its 16 at place c of row r.
__device__ __forceinline__ u32 in_tile(int r, int c) { return r * TILE_ROW + (c ^ r % 8) * 16; }
