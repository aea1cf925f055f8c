"""Attention as a sum over positions: any part of the keys gives a pair (o, lse), and pairs merge.

`direct` is the definition, to teach and to test by. `causal` is the same, fast, where keys are in
order at positions 0, 1, 2, ..., or all are seen; `batched` is for several short texts at once.
"""

from kvlib.attention.causal import attend_causal
from kvlib.attention.direct import attend, attend_tiled
from kvlib.attention.partials import merge_state, merge_states

__all__ = ["attend", "attend_causal", "attend_tiled", "merge_state", "merge_states"]
