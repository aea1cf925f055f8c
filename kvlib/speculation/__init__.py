"""Speculative decoding: guess several tokens, and check all of them in one step of the model.

A drafter guesses how a text goes on. The model is fed the last token and the guesses in one step,
which gives it one row of logits per guess, and one more. The guesses up to the first that is
refused are accepted, the others are removed from the cache. A text gets the same tokens as without
guesses or, where tokens are drawn, gets them with the same probabilities (arXiv:2211.17192). Or
guesses are a tree, of which the text gets one path (SpecInfer, arXiv:2305.09781).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # each public name, once: see `kvlib.lazy`
    from kvlib.speculation.acceptance import accept as accept
    from kvlib.speculation.acceptance import accept_tree as accept_tree
    from kvlib.speculation.draft import Draft as Draft
    from kvlib.speculation.draft import Drafter as Drafter
    from kvlib.speculation.draft import Text as Text
    from kvlib.speculation.draft import branches as branches
    from kvlib.speculation.draft_model import DraftModel as DraftModel
    from kvlib.speculation.draft_model import lower_layers as lower_layers
    from kvlib.speculation.gain import adaptive as adaptive
    from kvlib.speculation.gain import best_gamma as best_gamma
    from kvlib.speculation.gain import best_tree as best_tree
    from kvlib.speculation.gain import checking_time as checking_time
    from kvlib.speculation.gain import expected_tokens as expected_tokens
    from kvlib.speculation.gain import expected_tree_tokens as expected_tree_tokens
    from kvlib.speculation.gain import speed_up as speed_up
    from kvlib.speculation.lookup import PromptLookup as PromptLookup
    from kvlib.speculation.lookup import Rehearsed as Rehearsed
else:
    from kvlib.lazy import attach

    __getattr__, __dir__, __all__ = attach(__name__)
