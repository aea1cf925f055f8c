"""Checks of eviction by score, chosen blocks, edited requests, and models whose layers differ."""

import numpy as np
import test_editing
import test_editing_ropes
import test_experts
import test_latent_expanded
import test_quest
import test_retention
import test_scored
from models import decoder, text
from peers.running import alone, assert_same_logits

import kvlib
from kvlib import BlockPool, PagedCache
from kvlib.caches import Scored, SnapKV
from kvlib.model import ModelConfig


def scores_by_definition() -> None:
    for policy in test_scored.POLICIES:
        for steps in ([20, *[1] * 6], [7, 9, 1, 5, 1, 1]):
            test_scored.test_each_head_holds_what_the_definition_says(policy, "blocks of 4", steps)
    test_scored.test_each_head_holds_what_the_definition_says("h2o", "rows", [20, *[1] * 6])
    for policy in test_scored.POLICIES:
        test_scored.test_a_step_that_is_undone_was_never_seen(policy, 17)
    test_scored.test_running_twice_counts_once()
    test_scored.test_a_fork_goes_its_own_way_from_the_same_notes()


def rows_are_short() -> None:
    for rule in test_retention.SHORT:
        test_retention.test_a_row_is_as_long_as_what_stays_and_a_quarter_more(rule, None)


def blocks_by_definition() -> None:
    test_quest.test_no_key_of_a_page_scores_more_than_its_bound()
    test_quest.test_bounds_are_those_of_the_keys_that_are_there_now()
    test_quest.test_a_prefix_that_is_found_again_brings_its_bounds()
    test_quest.test_the_first_layers_and_those_with_a_window_read_all()


def edits_are_exact() -> None:
    test_editing.test_every_layer_holds_the_rest_at_its_new_positions("blocks of 4", 3, 7)
    test_editing_ropes.test_only_the_first_layer_is_what_the_shorter_text_gives("qwen3-yarn-old")
    test_editing_ropes.test_an_endless_text_holds_keys_of_where_they_have_arrived(
        "qwen3-yarn-old", "blocks"
    )
    test_editing_ropes.test_a_thousand_turns_are_one("qwen3-yarn-old", -1)
    test_editing.test_two_cuts_without_a_step_between_them_are_one("rows")
    test_editing.test_without_room_for_the_copy_nothing_changes()
    test_editing.test_another_request_keeps_the_blocks_that_both_hold()


def budgets_bound_bytes() -> None:
    """Eviction saves what it claims: bytes of the blocks of a model with grouped heads."""
    model = decoder("llama", seed=1)
    c, pool = model.config, BlockPool(80, 2)
    cache = PagedCache(model.layer_specs, pool, retention=Scored(SnapKV(3, 1), 5), xp=np)
    whole = sum(x.nbytes for x in cache.storage()) / pool.num_blocks
    assert whole == 2 * pool.block_size * c.num_key_value_heads * c.head_dim * 4
    cache.add("a")
    for n in (9, 1, 1, 3, 1, 1, 1):
        model.forward(text(n, n), cache, cache.plan(["a"], [n]))
        held, kept = pool.num_blocks - pool.num_free, 5 + n if n < 9 else n
        assert held <= c.num_hidden_layers * -(-kept // pool.block_size), f"{held} blocks held"
    cache.free("a")
    assert pool.num_free == pool.num_blocks


def layers_that_differ() -> None:
    """Two ropes, learned sinks, experts: what transformers computed for tiny checkpoints."""
    same_as_transformers("gemma3", "gpt-oss", "qwen2-moe")
    test_experts.test_a_token_reads_its_own_experts_alone()


def latents_of_deepseek() -> None:
    """Latent attention, and routers that choose groups of experts first."""
    same_as_transformers("deepseek-v2-lite", "deepseek-v2", "deepseek-v3")


def long_chunks() -> None:
    """Keys that are expanded for a chunk after a chunk, and where they may not be."""
    test_latent_expanded.long_chunks()
    test_latent_expanded.test_scores_are_capped_in_every_piece()
    test_latent_expanded.caches_that_absorb()
    test_latent_expanded.the_cheaper_form()


def same_as_transformers(*names: str) -> None:
    """The longest prompt of these tiny checkpoints, seven tokens per step."""
    for name in names:
        folder = test_editing.GOLDEN / name
        with np.load(folder / "expected.npz") as stored:
            n = int(stored["lengths"][-1])
            prompt, logits = stored["prompts"][-n:].tolist(), stored["logits"][-n:]
        assert ModelConfig.from_folder(folder).num_hidden_layers == 2
        assert_same_logits(alone(kvlib.load_model(folder), prompt, 7), logits, name)


CHECKS = (
    *(scores_by_definition, rows_are_short, blocks_by_definition, edits_are_exact),
    *(budgets_bound_bytes, layers_that_differ, latents_of_deepseek, long_chunks),
)
