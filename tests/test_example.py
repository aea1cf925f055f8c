"""The numbers that the chapters compute by hand."""

import numpy as np

import kvlib
from kvbook import example


def test_the_tiny_model_writes_its_sentence() -> None:
    written = example.run(example.TEXT).logits.argmax(axis=-1)
    assert tuple(written[:-1]) == example.TEXT[1:]


def test_its_attention_is_that_of_kvlib() -> None:
    trace = example.run(example.TEXT)
    positions = np.arange(len(example.TEXT))
    q, k, v = (rows[:, None] for rows in (trace.q, trace.k, trace.v))
    o = kvlib.attend(q, k, v, q_pos=positions, kv_pos=positions)
    np.testing.assert_allclose(trace.o, o[:, 0], rtol=1e-5, atol=1e-6)


def test_a_longer_text_changes_no_earlier_number() -> None:
    short, long = example.run(), example.run(example.TEXT)
    for name in ("q", "k", "v", "logits"):
        np.testing.assert_allclose(getattr(short, name), getattr(long, name)[:3], atol=1e-6)
