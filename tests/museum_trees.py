"""Mutants of trees of guesses: masks, positions, and what keeping a path moves. See museum.py."""

import numpy as np
from mutation_kind import Bug, Mutant

TREES, STEP = "kvlib.caches.trees", "kvlib.caches.step"
STORED, STORE = "kvlib.caches.stored", "kvlib.caches.store"
BATCHES, UNDO = "kvlib.caches.batches", "kvlib.caches.undo"
MASKS, PROTOCOL = "kvlib.attention.trees", "kvlib.caches.protocol"


def sees_all_before(ancestors, parents):
    return np.tril(np.ones((len(parents),) * 2, bool))


def sees_its_parent_alone(ancestors, parents):
    seen = np.eye(len(parents), dtype=bool)
    for row, parent in enumerate(parents):
        seen[row, parent] |= parent >= 0
    return seen


def in_falling_order(close_up, fields, pages, which, at):
    return sum(close_up(fields, pages, [which[i]], at + i) for i in reversed(range(len(which))))


def keeps_the_first(move, cache, seq, target, sources):
    first = seq.start
    move(cache, seq, first, [first + i for i in range(len(sources))])


MUTANTS = [
    Bug("siblings see each other", TREES, "ancestors", sees_all_before, "trees_see_their_lines"),
    Bug("a guess sees its parent and no other ancestor", TREES, "ancestors",
        sees_its_parent_alone, "trees_see_their_lines"),
    Mutant("each guess stands one position after the one planned before it", STEP,
           "Step._tree_positions", "[start + depth for depth in below]",
           "[start + row for row, _ in enumerate(below)]", "trees_see_their_lines"),
    Mutant("the last rows of a tree stand where the first ones do", STEP, "Step._tree_positions",
           "depths(tree)[-n:]", "depths(tree)[:n]", "trees_see_their_lines"),
    Mutant("the last rows of a tree see what the first ones do", STEP, "Step.ancestors",
           "[-self.q_lens[i] :, :]", "[: self.q_lens[i], :]", "trees_see_their_lines"),
    Mutant("a window counts the guesses, not their positions", MASKS, "_TreeMask.__init__",
           "np.asarray(depths, dtype=np.int64)", "np.arange(len(depths))", "trees_see_their_lines"),
    Mutant("a window hides nothing of what is older", MASKS, "_TreeMask.hidden",
           "self.window is not None and a <=", "False and a <=", "trees_see_their_lines"),
    Mutant("a piece of new tokens alone is taken for seen", MASKS, "_TreeMask.__call__",
           "return hidden.shape[1] == m", "return False", "trees_see_their_lines"),
    Mutant("the last guess of a tree decodes in a batch", BATCHES, "batches",
           " and step.parents is None", "", "trees_see_their_lines"),
    Bug("tokens move in falling order", UNDO, "pull_up", in_falling_order,
        "trees_leave_their_path"),
    Bug("the first guesses stay, whichever the path", UNDO, "close_up",
        keeps_the_first, "trees_leave_their_path"),
    Mutant("the token ids of the first guesses stay", UNDO, "keep",
           "state.tokens[start + number] for number in path",
           "state.tokens[start + i] for i in range(len(path))", "trees_are_found_and_refused"),
    Mutant("a path does not move where a layer has given tokens back", UNDO, "close_up",
           "number - table.freed for number in sources", "number for number in sources",
           "trees_leave_their_path"),
    Mutant("guesses are encoded before they are right", STORED, "StoredCache._begin_step",
           "if seq.tree is None or not self.codec.waits:", "if True:", "trees_leave_their_path"),
    Mutant("a path that fills a group waits to be encoded", UNDO, "keep",
           "max(state.num_paged, cache.codec.coded(end))", "state.num_paged",
           "trees_leave_their_path"),
    Mutant("a chain that filled a group cannot be cut", UNDO, "paged_after_cut",
           "seq.length - state.undo_length <= GUESSES", "False", "trees_leave_their_path"),
    Mutant("room for the tree stays after it", STORE, "Residual.roll_back",
           "elif self.waiting[0].shape[1] > room:", "elif False:", "trees_leave_their_path"),
    Mutant("free publishes the guesses", PROTOCOL, "Cache.free",
           "if seq.tree is not None:", "if False:", "trees_are_found_and_refused"),
    Mutant("a tree that had no room is still waited for", PROTOCOL, "Cache._reserve_trees",
           "seq.tree = None", "pass", "trees_are_found_and_refused"),
    Mutant("a path may begin below a root", TREES, "check_path",
           "kept, before = [], -1", "kept, before = [], 0", "trees_are_found_and_refused"),
]  # fmt: skip
