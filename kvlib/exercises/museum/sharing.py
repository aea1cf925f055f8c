"""Room five: blocks that several requests may find."""

from __future__ import annotations

from kvlib.exercises.museum import guards_stores, looks_shared
from kvlib.exercises.museum.exhibit import Exhibit

EXHIBITS = (
    Exhibit(
        "stale_prefix",
        "kvlib.caches.blocks",
        "BlockPool.allocate",
        "self.index.remove(block)",
        "pass",
        room="sharing",
        cite="nano-vllm #163, vllm #4761",
        happened="A block was given to another request and stayed listed under its old text. "
        "Whoever asks for that text gets the other request's keys.",
        look=looks_shared.the_same_question_later,
        caught_by=guards_stores.a_pool_agrees_with_a_dict,
    ),
    Exhibit(
        "hash_believed",
        "kvlib.caches.prefixes",
        "HashIndex._same",
        "if self._content[block] == content:",
        "if True:",
        room="sharing",
        cite="vllm #12621, #15297, openvino.genai #3722",
        happened="Blocks were found by their hash alone. Two texts with one hash share keys, and "
        "whoever can make hashes collide reads what others wrote.",
        look=looks_shared.a_colliding_hash,
        caught_by=guards_stores.equal_hashes_are_not_equal_texts,
    ),
    Exhibit(
        "nothing_left_to_compute",
        "kvlib.caches.paged",
        "PagedCache._open",
        "self.pool.lookup(tokens[:-1], extra)",
        "self.pool.lookup(tokens, extra)",
        room="sharing",
        cite="nano-vllm #144, #199",
        happened="A prompt that fills its blocks exactly was found as a whole, and the pass had no "
        "token to compute, so no logits to draw from.",
        look=looks_shared.a_prompt_twice,
        caught_by=guards_stores.a_cached_prompt_leaves_a_token_to_compute,
    ),
)
