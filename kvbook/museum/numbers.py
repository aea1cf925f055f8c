"""Room four: softmax in parts, and codes."""

from __future__ import annotations

import math
from typing import Any

from kvbook.museum import guards_stores, looks
from kvbook.museum.exhibit import Exhibit, by_a_model
from kvbook.museum.mutation import Call
from kvlib.arrays import Array, namespace

DIRECT, GROUPS = "kvlib.attention.direct", "kvlib.codecs.groups"


def log2_of_the_sum(
    attend: Call, *tensors: Array, return_lse: bool = False, **settings: Any
) -> Any:
    if not return_lse:
        return attend(*tensors, **settings)
    o, lse = attend(*tensors, return_lse=True, **settings)
    return o, lse / math.log(2)


def minus_infinity_from_itself(merge: Call, *states: Array) -> tuple[Array, Array]:
    o, lse = merge(*states)
    nothing = lse - lse  # 0, and NaN where neither part sees a key
    return o + nothing[..., None], lse + nothing


def divided_at_once(softmax_parts: Call, xp: Any, s: Array) -> tuple[Array, Array, Array]:
    p, top, total = softmax_parts(xp, s)
    return p / xp.where(total == 0, 1.0, total), top, total  # by which `finish` divides, too


def an_int8_in_between(quantise: Call, x: Array, bits: int, axis: int) -> tuple[Array, ...]:
    codes, scale, zero = quantise(x, bits, axis)
    xp = namespace(x)
    wrapped = xp.astype(codes, xp.int8)  # 128 is -128 here
    return xp.astype(xp.clip(wrapped, 0, 127), xp.uint8), scale, zero


def divided_by_its_range(quantise: Call, x: Array, bits: int, axis: int) -> tuple[Array, ...]:
    codes, scale, zero = quantise(x, bits, axis)
    xp = namespace(x)
    offset = (zero - zero) / scale  # 0, and 0/0 where a group holds one number only
    return xp.astype(codes + xp.expand_dims(offset, axis=axis), xp.uint8), scale, zero


def high_bits_first(unpack: Call, packed: Array, bits: int, dtype: Any) -> Array:
    codes = unpack(packed, bits, dtype)
    xp = namespace(codes)
    parts = xp.reshape(codes, (*codes.shape[:-1], 8 // bits, packed.shape[-1]))
    return xp.reshape(xp.flip(parts, axis=-2), codes.shape)


EXHIBITS = (
    Exhibit(
        "lse_to_base_2",
        DIRECT,
        "attend",
        log2_of_the_sum,
        room="numbers",
        cite="sglang #35045, #40903",
        happened="FlashInfer gives the logarithm of the sum to base 2, and SGLang merged it as one "
        "to base e. Both parts of the context then get the wrong share.",
        look=looks.in_two_parts,
        caught_by=guards_stores.lse_is_the_log_of_the_sum,
    ),
    Exhibit(
        "nothing_merged_is_nan",
        "kvlib.attention.partials",
        "merge_state",
        minus_infinity_from_itself,
        room="numbers",
        cite="flashinfer #4051",
        happened="If neither part sees a key, both sums have the logarithm -inf, and -inf minus "
        "-inf is NaN. The NaN then spreads to everything it touches.",
        look=looks.nothing_seen,
        caught_by=guards_stores.nothing_merged_with_nothing_is_nothing,
    ),
    Exhibit(
        "softmax_divided_twice",
        DIRECT,
        "softmax_parts",
        divided_at_once,
        room="numbers",
        cite=by_a_model("qwen36/kv"),
        happened="Each tile of an online softmax was divided by its own sum, and the result by the "
        "whole sum once more.",
        look=looks.tile_by_tile,
        caught_by=guards_stores.tiles_of_any_size_equal_the_whole,
    ),
    Exhibit(
        "cast_before_the_clip",
        GROUPS,
        "quantise",
        an_int8_in_between,
        room="numbers",
        cite=by_a_model("qwen36/kv at 72fa1f8"),
        happened="A number was cast to int8 first and clipped to the range of int8 afterwards. "
        "Codes above 127 had wrapped round by then: an error of 5.1 in place of 0.0099.",
        look=looks.in_eight_bits,
        caught_by=guards_stores.codes_are_off_by_half_a_step_at_most,
    ),
    Exhibit(
        "constant_group_is_0_over_0",
        GROUPS,
        "quantise",
        divided_by_its_range,
        room="numbers",
        cite="KIVI's quant/new_pack.py, openvino #28326",
        happened="The scale of a group is its range divided by the number of steps. A group of "
        "equal numbers has range 0, so 0 is divided by 0. The result is NaN, and which "
        "integer a cast makes of NaN is up to the processor.",
        look=looks.with_a_silent_head,
        caught_by=guards_stores.groups_of_one_number_survive,
    ),
    Exhibit(
        "nibbles_in_the_other_order",
        "kvlib.codecs.packing",
        "unpack",
        high_bits_first,
        room="numbers",
        cite="openvino #25827 (4-bit weights)",
        happened="Two codes share a byte. The writer put the first code into the low bits, and the "
        "reader took it from the high bits.",
        look=looks.in_four_bits,
        caught_by=guards_stores.packed_codes_come_back_in_their_order,
    ),
)
