"""Every public number, flag and position: any other value gives a clear error, none overflows."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from arguments_integers import (
    attended,
    attention,
    drawn,
    generated,
    kernel_decode,
    kernel_prefill,
    kernel_sample,
    paged,
    streamed,
    submitted,
    with_step,
)
from plainly import check_outcomes, outcome, plain

import kvlib
from kvlib import BlockPool, LayerSpec, caches, kernels, norms
from kvlib.serve import sampling

TILED = kvlib.attention.attend_tiled
LOGITS, X, ONE = drawn(4, 64), drawn(4, 8), np.ones(8, np.float32)


def sampled(**given):
    return kvlib.sample(LOGITS, rngs=np.random.default_rng(0), **given)


# A call with the number, and a good one; 0.5 is a number of every float type, without rounding.
NUMBERS = {
    **{f"{form.__name__} {name}": (lambda x, f=form, n=name: attention(f, **{n: x}))
       for form in (kvlib.attend, kvlib.attend_causal, TILED) for name in ("sm_scale", "softcap")},
    **{f"LayerSpec {name}": (lambda x, n=name: attended(paged(**{n: x})))
       for name in ("sm_scale", "softcap")},
    **{f"{form.__name__} {name}": (lambda x, f=form, n=name: f(**{n: x}))
       for form in (sampled, generated, streamed, submitted)
       for name in ("temperature", "top_p")},
    **{f"{form.__name__} {name}": (lambda x, f=form, n=name: f(**{n: x}))
       for form in (kernel_decode, kernel_prefill) for name in ("sm_scale", "softcap")},
    "sample_tokens temperature": lambda x: kernels.sample_tokens(LOGITS, x),
    "sample_tokens top_p": lambda x: kernel_sample(top_p=x),
    "softmax_topk temperature": lambda x: kernels.softmax_topk(LOGITS, 5, temperature=x),
    "probabilities temperature": lambda x: sampling.probabilities(LOGITS, x),
    "probabilities top_p": lambda x: sampling.probabilities(LOGITS, top_p=x),
    "kernels.rms_norm_forward eps": lambda x: kernels.rms_norm_forward(X, ONE, x),
    "kernels.layer_norm_forward eps": lambda x: kernels.layer_norm_forward(X, ONE, ONE, x),
    "norms.rms_norm_forward eps": lambda x: norms.rms_norm_forward(X, ONE, x),
    "norms.rms_norm eps": lambda x: norms.rms_norm(X, ONE, x),
    "norms.layer_norm_forward eps": lambda x: norms.layer_norm_forward(X, ONE, ONE, x),
}  # fmt: skip
HOSTILE = {
    "10**400": 10**400, "-10**400": -(10**400), "five thousand digits": 10**5000, "nan": math.nan,
    "inf": math.inf, "minus inf": -math.inf, "np.float16 nan": np.float16(math.nan),
    "longdouble past float64": np.longdouble("1e4000"),
    "negative": -0.5, "text": "0.5", "bytes": b"0.5", "Decimal": Decimal("0.5"),
    "Fraction": Fraction(1, 2), "complex": 0.5 + 0j, "np.complex64": np.complex64(0.5),
    "True": True, "np.True_": np.True_, "an array": np.array([0.5]), "a 0-d array": np.array(0.5),
    "a list": [0.5], "object": object(),
}
BEYOND_FLOAT32 = {"too large for float32": 1e39, "too small for float32": 1e-46}
KINDS = (np.float16, np.float32, np.float64, np.longdouble)


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_numpy(name):
    call, needed = NUMBERS[name], plain(NUMBERS[name](0.5))
    for kind in KINDS:
        assert plain(call(kind(0.5))) == needed, kind.__name__


@pytest.mark.parametrize("name", NUMBERS)
def test_what_is_no_number(name):
    hostile = dict(HOSTILE)
    if name.split()[-1] in ("sm_scale", "softcap") or name.startswith("kernels"):
        hostile |= BEYOND_FLOAT32
    check_outcomes(NUMBERS[name], hostile, name)


def run_lse(flag, **_):
    cache, step = with_step((3,))
    return cache.run(0, drawn(3, 2, 64), step, flag)


def cascade_lse(flag, form=caches.run_cascade):
    cache, step = with_step((3,))
    return form(cache, 0, drawn(3, 2, 64), step, flag)


FLAGS = {
    "LayerSpec v_from_k": lambda x: LayerSpec(1, 8, v_from_k=x),
    "BlockPool log": lambda x: BlockPool(4, 4, log=x).events,
    "Cache.run return_lse": run_lse, "run_cascade return_lse": cascade_lse,
    "run_alone return_lse": lambda x: cascade_lse(x, caches.run_alone),
    "attend return_lse": lambda x: attention(kvlib.attend, return_lse=x),
    "attend_causal return_lse": lambda x: attention(kvlib.attend_causal, return_lse=x),
    "attend_tiled return_lse": lambda x: attention(TILED, return_lse=x),
    "decode_attention return_lse": lambda x: kernel_decode(return_lse=x),
    "decode_attention tensor": lambda x: kernel_decode(tensor=x),
    "prefill_attention return_lse": lambda x: kernel_prefill(return_lse=x),
    "H2O mean": lambda x: caches.H2O(mean=x),
    "generate progress": lambda x: generated(progress=x),
}
TRUTHY = {
    "no": "no", "empty": "", "one": 1, "zero": 0, "float": 0.0, "bytes": b"", "list": [],
    "an array": np.array([True]), "two": np.array([True, False]), "object": object(),
    "nan": math.nan,
}  # fmt: skip


@pytest.mark.parametrize("name", FLAGS)
def test_flags(name):
    call = FLAGS[name]
    check_outcomes(call, TRUTHY, name)
    assert plain(call(np.False_)) == plain(call(False))


SINKS = {
    "nan": [0.0, math.nan], "infinite": [math.inf, 0.0], "complex": [0.0, 1j], "texts": ["0", "1"],
    "bools": [True, False], "objects": [None, 0.0],
}


@pytest.mark.parametrize("sinks", SINKS.values(), ids=SINKS)
def test_sinks(sinks):
    x = np.array(sinks)
    for call in (
        lambda s: LayerSpec(1, 8, sinks=s), lambda s: attention(kvlib.attend, sinks=s),
        lambda s: attention(kvlib.attend_causal, sinks=s),
        lambda s: attention(TILED, sinks=s),
    ):
        assert not outcome(call, x, "sinks")


def test_a_sink_of_minus_infinity_takes_no_weight():
    sinks = np.full(2, -np.inf, np.float32)
    for form in (kvlib.attend, kvlib.attend_causal, TILED):
        np.testing.assert_array_equal(attention(form, sinks=sinks), attention(form))


INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("form", (kvlib.attend, TILED))
def test_positions_of_every_type(form, kind):
    """100 - -100 is -56 in int8, and 1 - 2 is 255 in uint8."""
    q, k = drawn(3, 2, 8), drawn(5, 1, 8)
    q_pos, kv_pos = np.array([100, 1, 60]), np.array([-100, 0, 1, 90, 2])
    if np.dtype(kind).kind == "u":
        kv_pos = abs(kv_pos)
    for window in (None, 20, np.uint8(150), 2**63 - 1):
        needed = form(q, k, k, q_pos, kv_pos, window=window)
        got = form(q, k, k, q_pos.astype(kind), kv_pos.astype(kind), window=window)
        np.testing.assert_array_equal(got, needed)
    mixed = form(q, k, k, q_pos.astype(kind), kv_pos.astype(np.int8))
    np.testing.assert_array_equal(mixed, form(q, k, k, q_pos, kv_pos))
