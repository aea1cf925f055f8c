"""Your own kernel, as text, in a separate process; three ways to read keys; `watched`."""

import shutil

import numpy as np
import pytest

from kvlib.kernels import decode_attention, read_keys, run_cuda, watched
from kvlib.kernels.custom import WAYS
from kvlib.kernels.processor import KernelError
from kvlib.kernels.source import Kernel, source, source_of

pytestmark = pytest.mark.skipif(
    not (shutil.which("c++") or shutil.which("g++")), reason="no C++ compiler"
)

TWO = np.float32(2)
KEYS = np.random.default_rng(0).standard_normal((256, 128)).astype(np.float32)
TEXT = """
#include "portable.cuh"
template <typename T> __global__ void add(T* x, const T* y, T by) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    @@
    store(x + i, load(x + i) + (y ? load(y + i) : by));
}
"""


def run(line="", x=None, y=None, by=TWO, grid=(3,), **more):
    x = np.arange(96, dtype=np.float32) if x is None else x
    traffic = run_cuda(
        TEXT.replace("@@", line), f"add<{more.pop('of', 'float')}>", grid, 32, x, y, by, **more
    )
    return x, traffic


def test_arrays_numbers_and_null_pointers():
    x, traffic = run()
    np.testing.assert_array_equal(x, np.arange(96) + 2)
    assert traffic.written == (384,) and traffic.read == (384,) and traffic.sectors == 24
    x, traffic = run(y=np.full(96, 5, np.float32))
    np.testing.assert_array_equal(x, np.arange(96) + 5)
    assert traffic.read == (384, 384) and traffic.written == (384, 0)
    x, _ = run(x=np.arange(96, dtype=np.int32), by=np.int32(-1), of="int")
    np.testing.assert_array_equal(x, np.arange(96) - 1)


def test_what_a_kernel_prints_is_printed(capsys):
    run('if (i == 7) printf("thread %d\\n", i);')
    assert "thread 7" in capsys.readouterr().out


@pytest.mark.parametrize(("line", "words"), [
    ("while (i >= 0);", "had not ended after 1 second"),
    ("x[1ll << 40] = 0;", "ended its process"), ("load(x + 4000);", "outside of array 0"),
    ("x = y", "your kernel:5"),
    ("if (i == 0) __syncthreads(); else __syncwarp();", "waits for threads that never come"),
])
def test_a_wrong_kernel_leaves_this_process_alone(line, words):
    with pytest.raises(KernelError, match=words):
        run(line, seconds=1)


COPIES = """
#include "portable.cuh"
__global__ void copies(float* x, const float* y) {
    DYNAMIC_SHARED(float, tile);
    const int i = threadIdx.x;
    copy_async(tile + i * 4, y + i * 4, i < 24);
    commit_copies();
    commit_copies();  // an empty group
    @@
    store(x + i, tile[(i ^ 1) * 4]);
}
"""


@pytest.mark.parametrize(("lines", "right"), [
    ("wait_for_copies<1>(); __syncthreads();", True),
    ("wait_for_copies<2>(); __syncthreads();", False),
    ("__syncthreads();", False), ("wait_for_copies<0>();", False),
])
def test_a_copy_is_there_after_a_wait_and_a_barrier(lines, right):
    """Before, shared memory is NaN; zeros where the copy is of nothing."""
    x, y = np.zeros(32, np.float32), np.arange(1, 97, dtype=np.float32)
    traffic = run_cuda(COPIES.replace("@@", lines), "copies", (1,), 32, x, y, shared=512)
    wanted = np.where(np.arange(32) < 24, 1 + 4 * (np.arange(32) ^ 1), 0)
    assert np.array_equal(x, wanted) == right and traffic.read == (0, 384)
    assert right or np.isnan(x).any()


def test_a_copy_past_the_end_of_shared_memory_is_refused():
    x, y = np.zeros(32, np.float32), np.zeros(128, np.float32)
    with pytest.raises(KernelError, match="copy to byte 256 of the block's 256"):
        run_cuda(COPIES.replace("@@", ""), "copies", (1,), 32, x, y, shared=256)


def test_arguments_that_do_not_fit():
    with pytest.raises(ValueError, match="contiguous"):
        run(x=np.zeros((96, 2), np.float32)[:, 0])
    with pytest.raises(TypeError, match="NumPy scalar"):
        run(by=2.0)
    with pytest.raises(ValueError, match="grid must be"):
        run(grid=(0,))
    with pytest.raises(ValueError, match="threads must be"):
        run_cuda(TEXT, "add<float>", (1,), 2048, np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="needs an array"):
        run_cuda(TEXT, "add<float>", (1,), 32, np.float32(1))
    with pytest.raises(TypeError, match="CuPy arrays"):
        run(run_on="device")


def test_a_source_of_the_folder_stays_as_it_is():
    assert source_of(Kernel("loads", "a_warp_a_key")) == source("loads")
    assert '#line 3 "your kernel"' in source_of(Kernel("own", "add<float>", TEXT))


def test_neighbours_that_read_neighbours_move_whole_sectors():
    apart, side_by_side, wide = (read_keys(way, KEYS)[1] for way in WAYS)
    stored = 8 * 32  # requests and sectors of what is written: 8 warps, 4 sectors each
    # 32 lanes in 32 keys: 32 sectors for 128 bytes.
    assert apart.sectors == 8 * KEYS.nbytes // 32 + stored // 8
    assert side_by_side.sectors == wide.sectors == KEYS.nbytes // 32 + stored // 8
    assert side_by_side.requests - 8 == 4 * (wide.requests - 8) == KEYS.nbytes // 128
    assert apart.efficiency < 0.15 and wide.efficiency == 1


def test_watched_sees_the_launches_inside_and_no_others():
    q = np.zeros((1, 1, 64), np.float32)
    k, v = (np.zeros((1, 1, 16, 64), np.float32) for _ in "kv")
    lens = np.array([16], np.int32)
    with watched() as seen:
        decode_attention(q, k, v, lens, run_on="processor")
    decode_attention(q, k, v, lens, run_on="processor")
    ((launch, traffic),) = seen
    assert launch.kernel.unit == "decode" and traffic.read.count(k.nbytes) == 2
