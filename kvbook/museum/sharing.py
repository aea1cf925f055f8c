"""Room five: blocks that several requests may find."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvbook.museum import guards_stores, looks_shared
from kvbook.museum.exhibit import Exhibit
from kvbook.museum.mutation import Call
from kvlib.caches import BlockPool
from kvlib.caches.allocation.blocks import Blocks
from kvlib.caches.allocation.prefixes import HashIndex
from kvlib.caches.allocation.table import State


def still_listed(allocate: Call, pool: BlockPool, count: int) -> list[int]:
    index: Any = pool.index
    index.remove = lambda block: None  # the index is not told that a block has a new owner
    try:
        blocks: list[int] = allocate(pool, count)
    finally:
        del index.remove
    return blocks


def not_compared(same: Call, index: HashIndex, key: bytes, content: Any) -> int | None:
    return next(iter(index._blocks.get(key, ())), None)  # whatever its tokens are


def last_token_found_too(
    open_: Call, blocks: Blocks, name: Any, tokens: Sequence[int], extra: Any
) -> State:
    state: State = open_(blocks, name, [*tokens, -1], extra)  # `open` leaves out the last one
    return state


EXHIBITS = (
    Exhibit(
        "stale_prefix",
        "kvlib.caches.allocation.pool",
        "BlockPool.allocate",
        still_listed,
        room="sharing",
        cite="nano-vllm #163, vllm #4764",
        happened="A block was given to another request but stayed listed under its old text. The "
        "next request for that text then reads the other request's keys.",
        look=looks_shared.the_same_question_later,
        caught_by=guards_stores.a_pool_agrees_with_a_dict,
    ),
    Exhibit(
        "hash_believed",
        "kvlib.caches.allocation.prefixes",
        "HashIndex._same",
        not_compared,
        room="sharing",
        cite="vllm #12621, #15297, openvino.genai #3722",
        happened="Blocks were found by their hash alone. Two texts with the same hash share keys, "
        "and anyone who can make hashes collide can read what others wrote.",
        look=looks_shared.a_colliding_hash,
        caught_by=guards_stores.equal_hashes_are_not_equal_texts,
    ),
    Exhibit(
        "nothing_left_to_compute",
        "kvlib.caches.allocation.blocks",
        "Blocks.open",
        last_token_found_too,
        room="sharing",
        cite="nano-vllm #114, #144",
        happened="A prompt that fills its blocks exactly was found as a whole. No token was left "
        "to compute, so there were no logits to draw the next token from.",
        look=looks_shared.a_prompt_twice,
        caught_by=guards_stores.a_cached_prompt_leaves_a_token_to_compute,
    ),
)
