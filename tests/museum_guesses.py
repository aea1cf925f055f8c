"""Mutants of speculative decoding: mistakes that shipped elsewhere, and those that lie near them.
See museum.py."""

import numpy as np
from mutation_kind import Bug, Mutant

ACCEPTANCE, CHECKING = "kvlib.speculation.acceptance", "kvlib.speculation.checking"
DRAFTS, LOOKUP = "kvlib.speculation.draft_model", "kvlib.speculation.lookup"
SCHEDULING = "kvlib.scheduling"


def one_number_for_both(accept, p, draft, q, verdicts, numbers):
    return accept(p, draft, q, verdicts, [*verdicts, numbers[-1]])


def likeliest(draw, writing, logits):
    """The guess is the likeliest token, and q says that it was drawn."""
    before = len(writing.tokens)
    draw(writing, logits)
    if writing.q:
        writing.tokens[before] = int(np.argmax(writing.q[-1]))


def matches_anywhere(agreed, tokens, draft, parents=None):
    n = sum(x == y for x, y in zip(tokens, draft))
    return list(tokens[: n + 1])


MUTANTS = [
    Mutant("after a refusal, the token is drawn from p", ACCEPTANCE, "_accepted",
           "_scaled(np.maximum(left - among, 0), left)", "left * 1.0", "guesses_keep_the_law"),
    Bug("one random number for the verdict and the token", ACCEPTANCE, "accept",
        one_number_for_both, "guesses_keep_the_law"),
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
    Bug("the likeliest token is guessed, and called drawn", DRAFTS, "_Writing.draw", likeliest,
        "guesses_keep_the_law"),
    Mutant("guesses and verdicts share their random numbers", CHECKING, "next_tokens",
           "rng_at(r.seed, r.length, JUDGED)", "rng_at(r.seed, r.length)",
           "guesses_keep_the_law"),
    Mutant("the cache keeps the first wrong guess", SCHEDULING, "Scheduler._note_fed",
           "r.held -= fed - len(tokens)", "r.held -= fed - len(tokens) - 1",
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
]  # fmt: skip
