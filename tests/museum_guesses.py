"""Mutants of speculative decoding, which lie near the exhibits of room seven. See museum.py."""

from mutation_kind import Bug, Mutant

ACCEPTANCE, CHECKING = "kvlib.speculation.acceptance", "kvlib.speculation.checking"
DRAFTS, LOOKUP = "kvlib.speculation.draft_model", "kvlib.speculation.lookup"
WRITING, GAIN = "kvlib.speculation.writing", "kvlib.speculation.gain"


def matches_anywhere(agreed, tokens, draft, parents=None):
    n = sum(x == y for x, y in zip(tokens, draft))
    return list(tokens[: n + 1])


MUTANTS = [
    Mutant("after a refusal, the token is drawn from p", ACCEPTANCE, "_accepted",
           "_scaled(np.maximum(left - among, 0), left)", "left * 1.0", "guesses_keep_the_law"),
    Mutant("what is left of p comes from the next row", ACCEPTANCE, "_accepted",
           "np.maximum(left - among, 0)", "np.maximum(p[at + 2] - among, 0)",
           "guesses_keep_the_law"),
    Mutant("a guess is accepted with probability p", ACCEPTANCE, "_accepted",
           "verdicts[j] * among[token]", "verdicts[j]", "guesses_keep_the_law"),
    Mutant("no token after guesses that are all right", ACCEPTANCE, "_spelt",
           "[*(int(draft[j]) for j in path), token]",
           "[*(int(draft[j]) for j in path), token][: max(1, len(path))]",
           "guesses_change_nothing"),
    Bug("right guesses behind a wrong one are kept", ACCEPTANCE, "agreed", matches_anywhere,
        "guesses_change_nothing"),
    Mutant("guesses and verdicts share their random numbers", CHECKING, "_accepted",
           "JUDGED + 2 * k", "2 * k",
           "guesses_keep_the_law"),
    Mutant("the cache keeps the first wrong guess", CHECKING, "keep_right",
           "r.held -= fed - used", "r.held -= fed - used - 1",
           "guesses_change_nothing"),
    Mutant("the drafter keeps its wrong guesses", DRAFTS, "_Fed.agreeing",
           "next((i for i in range(self.sure, most) if self.tokens[i] != text[i]), most)", "most",
           "guesses_are_fed_the_text"),
    Mutant("a lookup finds the text's own end", LOOKUP, "PromptLookup._noted",
           "range(max(known, self.shortest), len(text.tokens))",
           "range(max(known, self.shortest), len(text.tokens) + 1)", "guesses_are_fed_the_text"),
    Mutant("the last token of a text is guessed past its end", CHECKING, "guess",
           "r.max_new_tokens - len(r.new) - 1", "r.max_new_tokens - len(r.new)",
           "guesses_change_nothing"),
    Mutant("the second sibling is judged by the old p", ACCEPTANCE, "_accepted",
           "< left[token]", "< p[at + 1][token]", "trees_keep_the_law"),
    Mutant("q keeps the sibling that was refused", ACCEPTANCE, "_accepted",
           "among[token] = 0", "among[token] *= 1", "trees_keep_the_law"),
    Mutant("the token after a path comes from the guess before", ACCEPTANCE, "_accepted",
           "left = p[at + 1]", "left = p[max(at, 0)]", "trees_keep_the_law"),
    Mutant("one verdict for all siblings", CHECKING, "_accepted",
           "[by_rank[k][at - 1] for k,", "[by_rank[0][at - 1] for k,", "trees_keep_the_law"),
    Mutant("a tree is drawn by its numbers, not its depths", CHECKING, "_ahead",
           "depth + 1 for depth in draft.depths()", "1 + j for j in range(len(draft.tokens))",
           "trees_change_nothing"),
    Mutant("guesses follow the text, and not its last token", CHECKING, "_parents",
           "parent + 1 for parent", "parent + (parent >= 0) for parent", "trees_change_nothing"),
    Mutant("the cache keeps the guess before the right one", CHECKING, "keep_right",
           "*(j + 1 for j in path)", "*(max(1, j) for j in path)", "trees_change_nothing"),
    Mutant("the first guesses of a tree are kept", CHECKING, "keep_right",
           "cache.keep(r.name, [0, *(j + 1 for j in path)])",
           "cache.keep(r.name, [0]); cache.truncate(r.name, r.held - len(path))",
           "trees_change_nothing"),
    Mutant("each wrong sibling is a verdict", CHECKING, "keep_right",
           "[0.0] * missed", "[0.0] * (fed - len(tokens))", "trees_change_nothing"),
    Mutant("siblings are drawn with replacement", WRITING, "without_replacement",
           "left[found[-1]] = 0", "left[found[-1]] *= 1", "trees_are_what_the_drafter_says"),
    Mutant("a sibling states what was left of q", WRITING, "Writing.draw",
           "dict.fromkeys(siblings[: len(tokens)], q[row])",
           "{j: q[row] * (q[row] != q[row][tokens[0]]) for j in siblings[1:]}",
           "trees_are_what_the_drafter_says"),
    Mutant("logits come from the last guesses fed", WRITING, "Writing.fed",
           "place.get(j, 1) for j in self.level", "n for n in range(len(self.level), 0, -1)",
           "trees_are_what_the_drafter_says"),
    Mutant("guesses after a chain follow the text", DRAFTS, "DraftModel._forward",
           "parent - held for parent in tree[held:]",
           "max(parent - held - 1, -1) for parent in tree[held:]",
           "trees_are_what_the_drafter_says"),
    Mutant("a lookup forgets the earlier places", LOOKUP, "PromptLookup._noted",
           "ends.get(run, ())[: self.places - 1]", "ends.get(run, ())[:0]",
           "trees_are_what_the_drafter_says"),
    Mutant("the best tree grows below the root only", GAIN, "best_tree",
           "above = 1.0 if parent < 0 else likely[parent]", "above = 1.0",
           "trees_are_what_the_drafter_says"),
]  # fmt: skip
