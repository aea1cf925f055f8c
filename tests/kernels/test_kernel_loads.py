"""What three ways of reading cost: every byte once, and sectors as the addresses say."""

import numpy as np
import pytest

from kvlib.kernels import decode_attention, read_keys, watched
from kvlib.kernels.own import WAYS

KEYS = np.random.default_rng(0).standard_normal((256, 128)).astype(np.float32)


@pytest.mark.parametrize("way", WAYS)
def test_every_number_is_read_once(way):
    total, traffic = read_keys(way, KEYS)
    assert total == pytest.approx(KEYS.sum(dtype=np.float64), abs=1e-2)
    assert traffic.read[1] == KEYS.nbytes


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


def test_keys_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="way must be one of"):
        read_keys("fast", KEYS)
    with pytest.raises(ValueError, match="multiple of 4"):
        read_keys(WAYS[0], np.zeros((4, 6), np.float32))
    with pytest.raises(TypeError, match="keys must be float32"):
        read_keys(WAYS[0], np.zeros((4, 8)))
