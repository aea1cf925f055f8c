"""Attention as a sum over places: any part of the keys gives a pair (o, lse), and pairs merge.

`states`    what a partial result is, and how two or many merge
`direct`    attention from absolute positions: the definition
`tiled`     the same by online softmax, a tile of keys at a time
`causal`    the same, fast, where keys lie in order at positions 0, 1, 2, ...
`batched`   one query for each of several texts, in one product
`pieces`    the same where keys lie in blocks or as codes, a piece at a time
"""

from kvlib.attention.causal import attend_causal
from kvlib.attention.direct import attend
from kvlib.attention.states import merge_state, merge_states
from kvlib.attention.tiled import attend_tiled

__all__ = ["attend", "attend_causal", "attend_tiled", "merge_state", "merge_states"]
