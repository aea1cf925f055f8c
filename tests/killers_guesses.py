"""Checks of guessed tokens: which are kept, what is drawn, and what the cache holds afterwards."""

import test_guess_trees as trees
import test_speculation as t


def guesses_change_nothing() -> None:
    t.test_any_number_of_guesses_and_of_requests("rehearsed", 2, 3)
    t.test_any_number_of_guesses_and_of_requests("rehearsed", 5, 1)
    t.test_tokens_are_those_without_guesses("lower layers", "dense")
    t.test_tokens_are_those_without_guesses("rehearsed", "blocks of 4, room for 2 of 8")
    t.test_right_guesses_cost_no_step(4)
    t.test_a_stop_token_among_the_guesses_ends_the_text()


def guesses_keep_the_law() -> None:
    trees.test_first_and_second_tokens_are_distributed_as_p(8_000)
    t.test_each_guess_is_judged_by_its_own_row_and_stream()
    t.test_a_drawn_guess_comes_from_the_distribution_it_states(400)
    t.test_the_numbers_of_a_request_are_independent(8_000)


def guesses_are_fed_the_text() -> None:
    t.test_a_draft_model_guesses_as_if_it_had_read_the_text_anew(t.MODEL, 0.0)
    t.test_a_lookup_merges_what_followed_at_several_places(1)


def trees_keep_the_law() -> None:
    for p, q in trees.PAIRS[:4]:
        trees.test_the_first_token_is_distributed_as_p_exactly(p, q, 2)
    trees.test_two_tokens_are_distributed_as_p_exactly((-1, -1, 1, 0))
    t.test_no_random_number_of_a_step_is_used_twice()
    t.test_each_guess_is_judged_by_its_own_row_and_stream()


def trees_change_nothing() -> None:
    t.test_what_was_right_is_counted_by_level()
    t.test_the_cache_holds_what_it_would_hold_without_guesses("blocks of 4")
    t.test_any_number_of_guesses_and_of_requests("sower", 40, 2)
    t.test_guesses_that_were_not_drawn_change_no_draw("sower")


def trees_are_what_the_drafter_says() -> None:
    for tree in (trees.best_tree((0.5, 0.3, 0.2), 14), trees.branches(1, 1, 1, 2, 2)):
        t.test_a_draft_model_makes_the_likeliest_guesses(t.HYBRID, tree)
    t.test_drawn_siblings_differ_and_state_their_distribution()
    t.test_a_lookup_merges_what_followed_at_several_places(3)
    trees.test_no_tree_is_better_than_the_best((0.5, 0.2, 0.2), 2)


CHECKS = (
    *(guesses_change_nothing, guesses_keep_the_law, guesses_are_fed_the_text),
    *(trees_change_nothing, trees_are_what_the_drafter_says, trees_keep_the_law),
)
