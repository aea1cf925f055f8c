"""Softmax in parts, and codes."""

import math
from typing import Any

from kvbook.museum import guards_stores, looks
from kvbook.museum.exhibit import Exhibit, collector
from kvbook.museum.mutation import Call
from kvlib.arrays import Array, namespace

DIRECT, GROUPS = "kvlib.attention.direct", "kvlib.codecs.groups"

EXHIBITS: list[Exhibit] = []
shipped = collector("numbers", EXHIBITS)


@shipped(
    DIRECT,
    "attend",
    cite="sglang #35045, #40903, vllm #47079",
    caught_by=guards_stores.lse_is_the_log_of_the_sum,
    look=looks.in_two_parts,
    lines=("lse / math.log(2)", "top + xp.log(total)"),
)
def lse_to_base_2(attend: Call, *tensors: Array, return_lse: bool = False, **settings: Any) -> Any:
    """One library returned the logarithm of the sum to base 2, another merged it as one to base
    e."""
    if not return_lse:
        return attend(*tensors, **settings)
    o, lse = attend(*tensors, return_lse=True, **settings)
    return o, lse / math.log(2)


@shipped(
    "kvlib.attention.partials",
    "merge_state",
    cite="flashinfer #4051",
    caught_by=guards_stores.nothing_merged_with_nothing_is_nothing,
)
def nothing_merged_is_nan(merge: Call, *states: Array) -> tuple[Array, Array]:
    """Merging two parts in which a query sees no key gave -inf minus -inf, which is NaN."""
    o, lse = merge(*states)
    nothing = lse - lse  # 0, and NaN where neither part sees a key
    return o + nothing[..., None], lse + nothing


@shipped(
    DIRECT,
    "softmax_parts",
    cite="sleepyeldrazi/llm_programming_tests, qwen36/kv",
    caught_by=guards_stores.tiles_of_any_size_equal_the_whole,
)
def softmax_divided_twice(softmax_parts: Call, xp: Any, s: Array) -> tuple[Array, Array, Array]:
    """Each tile of an online softmax was divided by its own sum, and the result by the whole sum
    again."""
    p, top, total = softmax_parts(xp, s)
    return p / xp.where(total == 0, 1.0, total), top, total  # by which `finish` divides, too


@shipped(
    GROUPS,
    "quantise",
    cite="sleepyeldrazi/llm_programming_tests, qwen36/kv at 72fa1f8",
    caught_by=guards_stores.codes_are_off_by_half_a_step_at_most,
)
def cast_before_the_clip(quantise: Call, x: Array, bits: int, axis: int) -> tuple[Array, ...]:
    """Numbers were cast to int8 before they were clipped, so codes above 127 wrapped round."""
    codes, scale, zero = quantise(x, bits, axis)
    xp = namespace(x)
    wrapped = xp.astype(codes, xp.int8)  # 128 is -128 here
    return xp.astype(xp.clip(wrapped, 0, 127), xp.uint8), scale, zero


@shipped(
    GROUPS,
    "quantise",
    cite="KIVI's quant/new_pack.py, openvino #28326",
    caught_by=guards_stores.groups_of_one_number_survive,
)
def constant_group_is_0_over_0(quantise: Call, x: Array, bits: int, axis: int) -> tuple[Array, ...]:
    """A group of equal numbers has range 0, so its scale was 0 and its codes were 0/0."""
    codes, scale, zero = quantise(x, bits, axis)
    xp = namespace(x)
    offset = (zero - zero) / scale  # 0, and 0/0 where a group holds one number only
    return xp.astype(codes + xp.expand_dims(offset, axis=axis), xp.uint8), scale, zero


@shipped(
    "kvlib.codecs.packing",
    "unpack",
    cite="openvino #25827 (4-bit weights)",
    caught_by=guards_stores.packed_codes_come_back_in_their_order,
)
def nibbles_in_the_other_order(unpack: Call, packed: Array, bits: int, dtype: Any) -> Array:
    """The writer put the first 4-bit code into the low half of a byte, and the reader took it from
    the high half."""
    codes = unpack(packed, bits, dtype)
    xp = namespace(codes)
    parts = xp.reshape(codes, (*codes.shape[:-1], 8 // bits, packed.shape[-1]))
    return xp.reshape(xp.flip(parts, axis=-2), codes.shape)
