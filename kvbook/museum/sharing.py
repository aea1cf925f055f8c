"""Blocks that several requests may find."""

from collections.abc import Sequence
from typing import Any

from kvbook.museum import guards_stores, looks
from kvbook.museum.exhibit import Exhibit, collector
from kvbook.museum.mutation import Call
from kvlib.caches import BlockPool
from kvlib.caches.allocation.blocks import Blocks
from kvlib.caches.allocation.prefixes import HashIndex
from kvlib.caches.allocation.table import State

EXHIBITS: list[Exhibit] = []
shipped = collector("sharing", EXHIBITS)


@shipped(
    "kvlib.caches.allocation.pool",
    "BlockPool.allocate",
    cite="nano-vllm #163, vllm #4764",
    caught_by=guards_stores.a_pool_agrees_with_a_dict,
    look=looks.the_same_question_later,
    lines=("index.remove = lambda block: None", "self.index.remove(block)"),
)
def stale_prefix(allocate: Call, pool: BlockPool, count: int) -> list[int]:
    """A block was given to another request but stayed listed under its old text."""
    index: Any = pool.index
    index.remove = lambda block: None  # the index is not told that a block has a new owner
    try:
        blocks: list[int] = allocate(pool, count)
    finally:
        del index.remove
    return blocks


@shipped(
    "kvlib.caches.allocation.prefixes",
    "HashIndex._same",
    cite="vllm #11829, #12621, #15297, openvino.genai #3722",
    caught_by=guards_stores.equal_hashes_are_not_equal_texts,
    look=looks.a_colliding_hash,
    lines=(
        "next(iter(index._blocks.get(key, ())), None)",
        "next((block for block in blocks if self._content[block] == content), None)",
    ),
)
def hash_believed(same: Call, index: HashIndex, key: bytes, content: Any) -> int | None:
    """Blocks were found by their hash alone, so two texts with the same hash shared keys."""
    return next(iter(index._blocks.get(key, ())), None)  # whatever its tokens are


@shipped(
    "kvlib.caches.allocation.blocks",
    "Blocks.open",
    cite="nano-vllm #114, #144",
    caught_by=guards_stores.a_cached_prompt_leaves_a_token_to_compute,
    look=looks.a_prompt_twice,
)
def nothing_left_to_compute(
    open_: Call, blocks: Blocks, name: Any, tokens: Sequence[int], extra: Any
) -> State:
    """A prompt that fills its blocks was found as a whole, so no token was left to compute logits
    from."""
    state: State = open_(blocks, name, [*tokens, -1], extra)  # `open` leaves out the last one
    return state
