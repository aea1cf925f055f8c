"""Checks of guessed tokens: which are kept, what is drawn, and what the cache holds afterwards."""

import test_speculation as t
import test_tree


def guesses_change_nothing() -> None:
    t.test_any_number_of_guesses_and_of_requests(2, 3)
    t.test_any_number_of_guesses_and_of_requests(5, 1)
    t.test_tokens_are_those_without_guesses("lower layers", "dense")
    t.test_tokens_are_those_without_guesses("rehearsed", "blocks of 4, room for 2 of 8")
    t.test_right_guesses_cost_no_step(4)
    t.test_a_stop_token_among_the_guesses_ends_the_text()


def guesses_keep_the_law() -> None:
    t.test_first_and_second_tokens_are_distributed_as_the_model_says(8_000)
    for seed in range(6):
        t.test_each_request_is_judged_by_its_own_rows(seed)
    t.test_a_drawn_guess_comes_from_the_distribution_it_states(400)
    t.test_the_numbers_of_a_request_are_independent(8_000)


def guesses_are_fed_the_text() -> None:
    t.test_a_draft_model_guesses_as_if_it_had_read_the_text_anew(t.MODEL, 0.0)
    t.test_a_lookup_guesses_what_followed_last()


def trees_equal_their_paths() -> None:
    test_tree.test_a_path_of_a_tree_is_what_it_would_be_alone("dense")


CHECKS = (
    guesses_change_nothing,
    guesses_keep_the_law,
    guesses_are_fed_the_text,
    trees_equal_their_paths,
)
