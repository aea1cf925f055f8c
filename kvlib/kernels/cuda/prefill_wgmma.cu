// Attention of many query tokens on Hopper's warpgroups, after FlashAttention-3 (arXiv:2407.08608).
//
// The rows and requests are those of prefill.cu. A block has one warpgroup that copies and SIDES that
// multiply 64 rows each. In the first, warp 0 orders tiles of keys from the copy engine, warp 1 tiles of
// values, and warps 2 and 3 copy queries, because the query heads of a kv head need not fill a box. The
// others start the product with the next keys and the product of the weights before with their values,
// and compute the next weights while the tensor cores are still at the second one.
//
// The grid is one block for each multiprocessor; a block takes job after job.
#include "places.cuh"
#include "rules.cuh"
#include "state.cuh"
#include "warpgroup.cuh"

// Shared memory, in bytes from a multiple of 1,024.
template <int D, int SIDES, int STAGES> struct Parts {
    static const int ROWS = 64 * SIDES, THREADS = 128 * (SIDES + 1);
    static const int KEYS = D > 128 ? 64 : 128;  // of a tile
    static const int ACROSS = (D + 63) / 64;     // tiles of 64 columns beside each other
    static const int ROW = ROWS * TILE_ROW, NEXT = KEYS * TILE_ROW, STAGE = ACROSS * NEXT;
    static const int K = ACROSS * ROW, V = K + STAGES * STAGE, BARRIERS = V + STAGES * STAGE;
    static const int LANES = D > 128 ? 32 : D > 64 ? 16 : 8;  // that copy a row of queries
};

// ..._read: everybody who multiplies has read it. ragged: values have arrived that need zeros.
template <int STAGES> struct Barriers {
    Barrier q, q_read, ragged, k[STAGES], v[STAGES], k_read[STAGES], v_read[STAGES];
};

// Turn the scores of two rows a lane into weights, and update the rows' maxima m and sums l.
// shrink: what sums and values before this tile are multiplied by
template <int N>
__device__ __forceinline__ void next_weights(float (&s)[N], float (&m)[2], float (&l)[2], float (&shrink)[2], float scale) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float top = s[2 * half];
#pragma unroll
        for (int t = 0; t < N / 4; t++) top = fmaxf(top, fmaxf(s[4 * t + 2 * half], s[4 * t + 2 * half + 1]));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));  // four lanes share a row
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        top = fmaxf(m[half], top * scale);
        const float safe = top == -infinity() ? 0.0f : top;
        shrink[half] = exp2_fast(m[half] - safe);
        m[half] = top;
        float sum = 0.0f;
#pragma unroll
        for (int t = 0; t < N / 4; t++)
#pragma unroll
            for (int i = 4 * t + 2 * half; i < 4 * t + 2 * half + 2; i++) {
                s[i] = exp2_fast(s[i] * scale - safe);
                sum += s[i];
            }
        l[half] = l[half] * shrink[half] + sum;  // this lane's share; the lanes add up at the end
    }
}

template <typename T, int N> __device__ __forceinline__ void pack(u32 (&p)[N][4], const float (&s)[8 * N]) {
#pragma unroll
    for (int c = 0; c < N; c++)
#pragma unroll
        for (int i = 0; i < 4; i++) p[c][i] = pair_of<T>(s[8 * c + 2 * i], s[8 * c + 2 * i + 1]);
}

template <typename T, int D, typename P, int N>
__device__ __forceinline__ void multiply_keys(float (&s)[N], u64 q, u64 k) {
    fence_registers();
#pragma unroll
    for (int c = 0; c < D / 16; c++)
        start_product(T(), s, q + (c / 4 * (P::ROW >> 4) + c % 4 * 2), k + (c / 4 * (P::NEXT >> 4) + c % 4 * 2), c > 0);
    close_group();
}

template <typename T, int D, int N>
__device__ __forceinline__ void multiply_values(float (&o)[D / 2], const u32 (&p)[N][4], u64 v) {
    fence_registers();
#pragma unroll
    for (int c = 0; c < N; c++) start_product(T(), o, p[c], v + (c * 16 * TILE_ROW >> 4), 1);
    close_group();
}

// The job that a block takes after job i. Every other round goes backwards, so that the block with the
// longest job of one round has the shortest of the next.
__device__ __forceinline__ int after(int i) {
    const int round = i / gridDim.x + 1;
    return round * gridDim.x + (round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}

// ROWS rows of a request and a kv head, and the keys low to last that they see, in `tiles` tiles.
struct Job {
    int b, kv_head, rows, first_row, token0, start, last, low, begin, tiles;

    // Set up job i, the latest rows first, because they see most keys. Returns false for a job without
    // rows: short requests have fewer tiles of rows than the longest one.
    template <int ROWS, int KEYS>
    __device__ __forceinline__ bool take(int i, const int* seq_lens, const int* qo_indptr, int batch, int row_tiles, int num_kv_heads, int groups, int window) {
        kv_head = i % num_kv_heads;
        b = i / num_kv_heads % batch;
        first_row = (row_tiles - 1 - i / num_kv_heads / batch) * ROWS;
        token0 = load(qo_indptr + b);
        const int n = load(qo_indptr + b + 1) - token0;
        rows = n * groups;
        start = load(seq_lens + b) - n;
        last = start + (min(rows, first_row + ROWS) - 1) / groups;
        low = window > 0 ? max(0, start + first_row / groups - window + 1) : 0;
        begin = low / KEYS;
        tiles = last / KEYS + 1 - begin;
        return first_row < rows;
    }
};

template <typename T, int D, int SIDES, int STAGES>
__global__ void __launch_bounds__(128 * (SIDES + 1), 1) prefill_wgmma(
    T* __restrict__ out, float* __restrict__ lse, const T* __restrict__ q,
    const __grid_constant__ Boxes k, const __grid_constant__ Boxes v,
    const int* __restrict__ block_table, const int* __restrict__ seq_lens, const int* __restrict__ qo_indptr,
    int table_width, int block_size, int block_shift, int num_kv_heads, int groups, int window,
    float scale, float softcap, int batch, int row_tiles)
{
    typedef Parts<D, SIDES, STAGES> P;
    const int KEYS = P::KEYS;
    const int num_qo_heads = num_kv_heads * groups, warpgroup = threadIdx.x / 128, warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    const int jobs = row_tiles * batch * num_kv_heads;
    Job job;

    DYNAMIC_SHARED(u8, unaligned);
    u8* shared = unaligned + (1024u - shared_at(unaligned) % 1024u) % 1024u;
    Barriers<STAGES>* at = (Barriers<STAGES>*)(shared + P::BARRIERS);
    if (threadIdx.x == 0) {
        expect(&at->q, 64);           // threads
        expect(&at->q_read, 4 * SIDES);  // warps
        expect(&at->ragged, 1);
        for (int i = 0; i < STAGES; i++) {
            expect(at->k + i, 1);
            expect(at->v + i, 1);
            expect(at->k_read + i, 4 * SIDES);
            expect(at->v_read + i, 4 * SIDES);
        }
        fence_shared();  // the copy engine uses them
    }
    __syncthreads();

    u32 turn = 0, tile = 0;  // waits and tiles so far, which decide on phases and stages
    if (warpgroup == 0) {
        fewer_registers<SIDES == 2 ? 40 : 32>();
        const bool values = warp == 1;
        const Boxes* from = values ? &v : &k;
        u8* to = shared + (values ? P::V : P::K);
        Barrier *there = values ? at->v : at->k, *read = values ? at->v_read : at->k_read;
        const int box = block_shift < 31 ? min(block_size, KEYS) : KEYS;  // keys
        for (int i = blockIdx.x; i < jobs; i = after(i)) {
            if (!job.take<P::ROWS, KEYS>(i, seq_lens, qo_indptr, batch, row_tiles, num_kv_heads, groups, window)) continue;
            if (warp > 1) {
                const int mine = threadIdx.x % 64, c = mine % P::LANES;
                wait(&at->q_read, turn++ % 2 ^ 1);
                for (int r = mine / P::LANES; r < P::ROWS && c < D / 8; r += 64 / P::LANES) {
                    const int row = min(job.first_row + r, job.rows - 1);
                    const i64 entry = (i64)(job.token0 + row / groups) * num_qo_heads + job.kv_head * groups + row % groups;
                    copy_async(shared + c / 8 * P::ROW + in_tile(r, c % 8), (const uint4*)q + entry * (D / 8) + c, true);
                }
                arrive_after_copies(&at->q);
                continue;
            }
            for (int t = 0; t < job.tiles; t++, tile++) {
                const int first = (job.begin + t) * KEYS, j = first + lane * box;  // each lane orders a box
                int block = -1;                                                    // zeros
                if (lane < KEYS / box && j <= job.last && j + box > job.low)
                    block = load(block_table + (i64)job.b * table_width + (j >> block_shift)) * num_kv_heads + job.kv_head;
                // Keys that no row sees may be NaN. Their scores are replaced, but 0 · NaN is NaN.
                const bool ragged = values && (first < job.low || first + KEYS - 1 > job.last);
                const u32 stage = tile % STAGES;
                u8* tiles = to + stage * P::STAGE;
                Barrier* arrived = ragged ? &at->ragged : there + stage;
                wait(read + stage, tile / STAGES % 2 ^ 1);
                if (lane == 0) arrive_expecting(arrived, P::STAGE);
                __syncwarp();
                if (lane < KEYS / box)
                    for (int c = 0; c < P::ACROSS; c++)
                        copy_box(tiles + c * P::NEXT + lane * box * TILE_ROW, from, c * 64, j & (int)((1u << block_shift) - 1u), block, arrived);
                if (!ragged) continue;
                wait(arrived, turn++ % 2);
                for (int r = lane / 8; r < KEYS; r += 4)
                    if (first + r < job.low || first + r > job.last)
                        for (int c = 0; c < P::ACROSS; c++)
                            ((uint4*)(tiles + c * P::NEXT + r * TILE_ROW))[lane % 8] = {0, 0, 0, 0};
                fence_shared();
                __syncwarp();
                if (lane == 0) arrive(there + stage);
            }
        }
    } else {
        more_registers<SIDES == 2 ? 232 : 160>();
        const int side = warpgroup - 1;
        const u64 tile_q = tile_at(shared_at(shared) + side * 64 * TILE_ROW, P::ROW);
        const u64 tile_k = tile_at(shared_at(shared) + P::K, P::NEXT), tile_v = tile_at(shared_at(shared) + P::V, P::NEXT);
        const float by = softcap > 0.0f ? 1.0f : scale, inner = scale / softcap;
        for (int i = blockIdx.x; i < jobs; i = after(i)) {
            if (!job.take<P::ROWS, KEYS>(i, seq_lens, qo_indptr, batch, row_tiles, num_kv_heads, groups, window)) continue;
            const int own = job.first_row + side * 64, row_a = own + warp * 16 + lane / 4;
            const int position_a = job.start + row_a / groups, position_b = job.start + (row_a + 8) / groups;
            const int oldest = job.start + own / groups;
            auto hide = [&](float(&s)[KEYS / 2], int first) {
                if (softcap > 0.0f)
#pragma unroll
                    for (int i = 0; i < KEYS / 2; i++) s[i] = softcap * tanhf(s[i] * inner);
                if (first + KEYS - 1 > oldest || first < job.low || (window > 0 && job.last - first >= window))
#pragma unroll
                    for (int i = 0; i < KEYS / 2; i++) {
                        const int j = first + i / 4 * 8 + lane % 4 * 2 + i % 2, position = i % 4 < 2 ? position_a : position_b;
                        if (j > position || (window > 0 && position - j >= window)) s[i] = -infinity();
                    }
            };
            float m[2] = {-infinity(), -infinity()}, l[2] = {0.0f, 0.0f}, shrink[2], s[KEYS / 2], o[D / 2];
            u32 p[KEYS / 16][4];
#pragma unroll
            for (int i = 0; i < D / 2; i++) o[i] = 0.0f;
            wait(&at->q, turn++ % 2);
            fence_shared();
            wait(at->k + tile % STAGES, tile / STAGES % 2);
            multiply_keys<T, D, P>(s, tile_q, tile_k + (tile % STAGES * P::STAGE >> 4));
            wait_groups<0>();
            pin(s);
            if (lane == 0) arrive(at->k_read + tile % STAGES);
            hide(s, job.begin * KEYS);
            next_weights(s, m, l, shrink, by);
            pack<T>(p, s);
            if (job.tiles > 1) wait(at->k + (tile + 1) % STAGES, (tile + 1) / STAGES % 2);

            // The scores of a tile, and beside them the weights of the tile before times its values.
            for (int t = 1; t < job.tiles; t++) {
                tile++;
                const u32 stage = tile % STAGES, before = (tile - 1) % STAGES;
                multiply_keys<T, D, P>(s, tile_q, tile_k + (stage * P::STAGE >> 4));
                wait(at->v + before, (tile - 1) / STAGES % 2);
                multiply_values<T, D>(o, p, tile_v + (before * P::STAGE >> 4));
                wait_groups<1>();
                pin(s);
                if (lane == 0) arrive(at->k_read + stage);
                hide(s, (job.begin + t) * KEYS);
                next_weights(s, m, l, shrink, by);
                pin(s);
                // This wait's loop also keeps the compiler from moving the next wait before the softmax.
                if (t + 1 < job.tiles) wait(at->k + (tile + 1) % STAGES, (tile + 1) / STAGES % 2);
                wait_groups<0>();
                pin(o);
                if (lane == 0) arrive(at->v_read + before);
#pragma unroll
                for (int i = 0; i < D / 2; i++) o[i] *= shrink[i / 2 % 2];
                pack<T>(p, s);
            }
            if (lane == 0) arrive(&at->q_read);
            wait(at->v + tile % STAGES, tile / STAGES % 2);
            multiply_values<T, D>(o, p, tile_v + (tile % STAGES * P::STAGE >> 4));
            wait_groups<0>();
            pin(o);
            if (lane == 0) arrive(at->v_read + tile % STAGES);
            tile++;

#pragma unroll
            for (int half = 0; half < 2; half++) {
                float total = l[half];
                total += __shfl_xor_sync(0xffffffffu, total, 1);
                total += __shfl_xor_sync(0xffffffffu, total, 2);
                const int row = row_a + 8 * half;
                if (row >= job.rows) continue;
                const i64 to = (i64)(job.token0 + row / groups) * num_qo_heads + job.kv_head * groups + row % groups;
                const float share = total > 0.0f ? 1.0f / total : 0.0f;
#pragma unroll
                for (int i = 0; i < D / 8; i++)
                    store((u32*)(out + to * D + i * 8 + lane % 4 * 2),
                          pair_of<T>(o[4 * i + 2 * half] * share, o[4 * i + 2 * half + 1] * share));
                if (lane % 4 == 0) store(lse + to, log_sum_exp(m[half], total));
            }
        }
    }
}
