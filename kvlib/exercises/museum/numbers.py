"""Room four: softmax in parts, and codes."""

from __future__ import annotations

from kvlib.exercises.museum import guards_stores, looks
from kvlib.exercises.museum.exhibit import Exhibit

GROUPS = "kvlib.codecs.groups"
PUBLIC = "sleepyeldrazi/llm_programming_tests"
ROUND = "xp.round((x - xp.astype(zero, xp.float32)) / steps)"

EXHIBITS = (
    Exhibit(
        "lse_to_base_2",
        "kvlib.attention.direct",
        "finish",
        "top + xp.log(divisor)",
        "(top + xp.log(divisor)) * 1.4426950408889634",
        room="numbers",
        cite="sglang #35045",
        happened="Two libraries met. One gives the log of the sum to base 2, the other merges "
        "with e: the parts of a context get the wrong share.",
        look=looks.in_two_parts,
        caught_by=guards_stores.lse_is_the_log_of_the_sum,
    ),
    Exhibit(
        "nothing_merged_is_nan",
        "kvlib.attention.states",
        "merge_state",
        "safe = xp.where(top == -math.inf, xp.zeros_like(top), top)  # −inf",
        "safe = top  #",
        room="numbers",
        cite="flashinfer #4051",
        happened="Where neither part sees a key both sums are -inf, and -inf minus -inf is NaN. "
        "From there NaN spreads to everything.",
        look=looks.nothing_seen,
        caught_by=guards_stores.nothing_merged_with_nothing_is_nothing,
    ),
    Exhibit(
        "softmax_divided_twice",
        "kvlib.attention.tiled",
        "attend_tiled",
        "xp.matmul(p, vh) * new",
        "xp.matmul(p / xp.where(tile_total == 0, 1.0, tile_total), vh) * new",
        room="numbers",
        cite=f"{PUBLIC} qwen36/kv",
        happened="Each tile of an online softmax was divided by its own sum, and the result by "
        "the whole sum once more.",
        look=looks.tile_by_tile,
        caught_by=guards_stores.tiles_of_any_size_equal_the_whole,
    ),
    Exhibit(
        "cast_before_the_clip",
        GROUPS,
        "quantise",
        ROUND,
        f"xp.astype({ROUND}, xp.int8)",
        room="numbers",
        cite=f"{PUBLIC} at 72fa1f8, qwen36/kv",
        happened="A number was made an int8 first and clipped to the range of int8 then. Above "
        "127 it had wrapped round already: an error of 5.1 in place of 0.0099.",
        look=looks.in_eight_bits,
        caught_by=guards_stores.codes_are_off_by_half_a_step_at_most,
    ),
    Exhibit(
        "constant_group_is_0_over_0",
        GROUPS,
        "quantise",
        "codes = xp.where(wide == 0, xp.zeros_like(codes), codes)",
        "codes = codes + (wide - wide) / wide",
        room="numbers",
        cite="KIVI's published code, openvino #28326",
        happened="The scale of a group is its range over the number of steps. A group whose "
        "numbers are all the same has range 0, and 0 was divided by it: NaN, and what a cast to "
        "an integer makes of NaN is up to the processor.",
        look=looks.with_a_silent_head,
        caught_by=guards_stores.groups_of_one_number_survive,
    ),
    Exhibit(
        "nibbles_in_the_other_order",
        "kvlib.codecs.packing",
        "unpack",
        "codes[..., i * n : (i + 1) * n] =",
        "codes[..., (fold - 1 - i) * n : (fold - i) * n] =",
        room="numbers",
        cite="several",
        happened="Two codes share a byte. The writer put the first into the low bits, the reader "
        "took it from the high ones.",
        look=looks.in_four_bits,
        caught_by=guards_stores.packed_codes_come_back_in_their_order,
    ),
)
