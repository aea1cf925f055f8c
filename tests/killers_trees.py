"""Checks of trees of guesses: what each node sees, and what remains when a path is kept."""

import test_tree as t


def trees_see_their_lines() -> None:
    t.test_what_a_step_says_of_its_trees()
    for name in ("rows", "blocks of 4", "int4, residual 3"):
        t.test_trees_are_read_in_pieces(name)
    t.lives("cascade")


def trees_leave_their_path() -> None:
    t.test_a_long_tree_leaves_no_long_residual()
    for codec in t.GROUPED:
        t.test_a_chain_is_cut_after_any_guess(codec)
    names = ("rows", "blocks of 4", "blocks, windows", "int4, residual 3", "int8, residual 5")
    for name in ("scored by keys", *names):
        for seed in range(3):
            t.play(name, seed)


def trees_are_found_and_refused() -> None:
    t.test_nothing_of_a_tree_is_found_before_it_is_kept()
    t.test_a_tree_is_kept_before_anything_else("blocks of 4")
    t.test_no_room_for_a_tree_changes_nothing()
    for what in t.BAD_PATHS:
        t.test_bad_paths_change_nothing("blocks of 4", what)


CHECKS = (trees_see_their_lines, trees_leave_their_path, trees_are_found_and_refused)
