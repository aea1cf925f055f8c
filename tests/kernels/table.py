"""The table of kernels. A new kernel gets a row here, and `test_kernels.py` tests it."""

import numpy as np
from rows import Row
from rows_attention import CODES, DECODE, PREFILL, TREE
from rows_logits import SAMPLE, TOPK
from rows_norms import LAYER, RMS
from rows_product import PRODUCT
from rows_token import APPEND, CHOICE, EMBED

from kvlib.kernels import read_keys
from kvlib.kernels.custom import WAYS


def keys(rows=256):
    return {"keys": np.random.default_rng(0).standard_normal((rows, 128)).astype(np.float32)}, None


def total(keys, *, way, run_on):
    return read_keys(way, keys)[0]


def compare(inputs, _, found, run_on, way):
    assert abs(found - inputs["keys"].sum(dtype=np.float64)) < 1e-2


KEYS = 256 * 128 * 4
LOADS = Row(
    keys, total, compare, hosts=("processor",), device=False, units={"loads": {"way": WAYS[1]}},
    cases=({"way": list(WAYS)},),
    traffic=tuple(({"way": way}, [{"read": {1: KEYS}}]) for way in WAYS),
    refused=(
        ({"way": WAYS[0]}, (
            ({"way": "fast"}, ValueError, "way must be one of"),
            ({"keys": lambda x: x[:, :6].copy()}, ValueError, "multiple of 4"),
            ({"keys": lambda x: x.astype(float)}, TypeError, "keys must be float32"),
        )),
    ),
)  # fmt: skip
TABLE = {
    "decode": DECODE, "codes": CODES, "prefill": PREFILL, "tree": TREE, "topk": TOPK,
    "sample": SAMPLE, "layer norm": LAYER, "rms norm": RMS, "embed": EMBED, "append": APPEND,
    "choice": CHOICE, "loads": LOADS, "product": PRODUCT,
}
