"""Attention as a sum over positions: any part of the keys gives a pair (o, lse), and pairs merge.

`partials`  partial results, their merge, and the steps that all forms of attention share
`direct`    attention from absolute positions, to teach and to test by: the definition, and the same
            by online softmax, a tile of keys at a time
`causal`    the same, fast, where keys are in order at positions 0, 1, 2, ..., or all are seen
`pieces`    what `causal` reads: slices of arrays, or pages in which codecs write
`batched`   one query for each of several short texts, in one product: up to four times as fast
"""

from kvlib.attention.causal import attend_causal
from kvlib.attention.direct import attend, attend_tiled
from kvlib.attention.partials import merge_state, merge_states

__all__ = ["attend", "attend_causal", "attend_tiled", "merge_state", "merge_states"]
