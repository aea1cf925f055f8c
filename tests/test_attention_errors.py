"""What attention refuses, and that the message names the quantity, what came, what was needed."""


import numpy as np
import pytest
from test_attention import attend, attend_causal, attend_tiled, draw

Q, K, V, Q_POS, KV_POS = draw(0, 2, 5)  # q (2, 4, 4), k (5, 2, 4), v (5, 2, 3)


def change(**given):
    return {"q": Q, "k": K, "v": V, "q_pos": Q_POS, "kv_pos": KV_POS, **given}


REFUSED = {
    "q of two axes": (change(q=Q[0]), ValueError, r"q must be .*got shape \(4, 4\)"),
    "k of two axes": (change(k=K[0]), ValueError, r"k must be .*got shape \(2, 4\)"),
    "v of four axes": (change(v=V[None]), ValueError, r"v must be .*got shape \(1, 5, 2, 3\)"),
    "integer q": (change(q=Q.astype(int)), TypeError, "q must be floating, got dtype int64"),
    "integer v": (change(v=V.astype(int)), TypeError, "v must be floating, got dtype int64"),
    "v in float64": (change(v=V.astype(float)), TypeError, "float32 and float64"),
    "fewer values": (change(v=V[:4]), ValueError, r"\(5, 2, 4\) and \(4, 2, 3\)"),
    "other head_dim": (change(k=K[..., :3]), ValueError, "share head_dim, got 4 and 3"),
    "heads not a multiple": (change(q=Q[:, :3]), ValueError, "num_qo_heads .*got 3 and 2"),
    "no kv heads": (change(k=K[:, :0], v=V[:, :0]), ValueError, "got 4 and 0"),
    "q_pos too long": (change(q_pos=np.arange(3)), ValueError, r"q_pos .*\(2,\), got \(3,\)"),
    "kv_pos too short": (change(kv_pos=np.arange(4)), ValueError, r"kv_pos .*\(5,\).*got \(4,\)"),
    "kv_pos of 3 heads": (change(kv_pos=np.zeros((3, 5), int)), ValueError, r"got \(3, 5\)"),
    "positions as bools": (
        change(kv_pos=KV_POS > 2), TypeError, "kv_pos .*integers, got dtype bool",
    ),
    "positions past int64": (
        change(kv_pos=KV_POS.astype(np.uint64) + np.uint64(2**63)), ValueError,
        r"kv_pos must hold positions between -2\^62 and 2\^62, got 9223372036854775812",
    ),
    "positions as floats": (change(q_pos=Q_POS.astype(float)), TypeError, "q_pos .*float64"),
    "sinks for 3 heads": (change(sinks=np.zeros(3)), ValueError, r"sinks .*\(4,\), got \(3,\)"),
    "a list": (change(v=V.tolist()), TypeError, "list"),
}
# What is no integer and no number is in test_arguments_integers.py and _numbers.py.
SETTINGS = {
    "window 0": ({"window": 0}, "window .*at least 1, got 0"),
    "sm_scale 0": ({"sm_scale": 0.0}, "sm_scale .*got 0"),
    "softcap 0": ({"softcap": 0}, "softcap .*got 0"),
}


@pytest.mark.parametrize("form", [attend, attend_tiled])
@pytest.mark.parametrize("given, error, words", REFUSED.values(), ids=REFUSED)
def test_refused(form, given, error, words):
    with pytest.raises(error, match=words):
        form(**given)


def test_no_tile():
    with pytest.raises(ValueError, match="tile .*got 0"):
        attend_tiled(Q, K, V, Q_POS, KV_POS, tile=0)


@pytest.mark.parametrize("form", [attend, attend_tiled, attend_causal])
@pytest.mark.parametrize("setting, words", SETTINGS.values(), ids=SETTINGS)
def test_settings_refused(form, setting, words):
    inputs = (Q, K, V, Q_POS, KV_POS)
    if form is attend_causal:
        inputs = (Q, K.transpose(1, 0, 2), V.transpose(1, 0, 2))
    with pytest.raises(ValueError, match=words):
        form(*inputs, **setting)


KH, VH = K.transpose(1, 0, 2), V.transpose(1, 0, 2)
CAUSAL = {
    "more queries than keys": (Q.repeat(3, axis=0), KH, VH, r"\(6, 4, 4\), \(2, 5, 4\)"),
    "tokens first": (Q, K, V, r"\(5, 2, 4\)"),
    "q of two axes": (Q[0], KH, VH, r"got \(4, 4\), \(2, 5, 4\)"),
    "k of two axes": (Q, KH[0], VH, r"got \(2, 4, 4\), \(5, 4\)"),
    "v of two axes": (Q, KH, VH[0], r"\(5, 3\)"),
    "no kv heads": (Q, KH[:0], VH[:0], r"\(0, 5, 4\)"),
    "other head_dim": (Q, KH[..., :3], VH, r"\(2, 5, 3\)"),
    "fewer values": (Q, KH, VH[:, :4], r"\(2, 4, 3\)"),
}


@pytest.mark.parametrize("q, k, v, words", CAUSAL.values(), ids=CAUSAL)
def test_causal_refused(q, k, v, words):
    with pytest.raises(ValueError, match=words):
        attend_causal(q, k, v)


def test_causal_refuses_other_dtypes_and_sinks():
    with pytest.raises(TypeError, match="q must be floating, got dtype int64"):
        attend_causal(Q.astype(int), KH, VH)
    with pytest.raises(TypeError, match="float32 and float64"):
        attend_causal(Q, KH, VH.astype(float))
    with pytest.raises(ValueError, match=r"sinks .*\(4,\), got \(1,\)"):
        attend_causal(Q, KH, VH, sinks=np.zeros(1, dtype=np.float32))
