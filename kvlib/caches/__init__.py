"""Caches: one protocol, and one cache made of four parts that are chosen apart.

`allocation` decides where tokens are stored, `retention` which tokens stay, `kvlib.codecs` how
numbers are written, and `kvlib.attention` how the answer is computed.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # each public name, once: see `kvlib.lazy`
    from kvlib.caches import layouts as layouts
    from kvlib.caches.allocation.blocks import Blocks as Blocks
    from kvlib.caches.allocation.pool import BlockPool as BlockPool
    from kvlib.caches.allocation.prefixes import HashIndex as HashIndex
    from kvlib.caches.allocation.radix import RadixIndex as RadixIndex
    from kvlib.caches.allocation.rows import Rows as Rows
    from kvlib.caches.batches import run_alone as run_alone
    from kvlib.caches.cascade import run_cascade as run_cascade
    from kvlib.caches.constructors import DenseCache as DenseCache
    from kvlib.caches.constructors import PagedCache as PagedCache
    from kvlib.caches.constructors import QuantizedCache as QuantizedCache
    from kvlib.caches.cross import cross_step as cross_step
    from kvlib.caches.protocol import Cache as Cache
    from kvlib.caches.retention.base import Retention as Retention
    from kvlib.caches.retention.policies import H2O as H2O
    from kvlib.caches.retention.policies import ExpectedAttention as ExpectedAttention
    from kvlib.caches.retention.policies import KNorm as KNorm
    from kvlib.caches.retention.policies import SnapKV as SnapKV
    from kvlib.caches.retention.policies import Tova as Tova
    from kvlib.caches.retention.quest import Quest as Quest
    from kvlib.caches.retention.rules import KeepAll as KeepAll
    from kvlib.caches.retention.rules import Sinks as Sinks
    from kvlib.caches.retention.rules import Window as Window
    from kvlib.caches.retention.rules import layer_groups as layer_groups
    from kvlib.caches.retention.scored import Policy as Policy
    from kvlib.caches.retention.scored import Scored as Scored
    from kvlib.caches.retention.scored import Seen as Seen
    from kvlib.caches.retention.scored import pyramid as pyramid
    from kvlib.caches.spec import LayerSpec as LayerSpec
    from kvlib.caches.spec import Memory as Memory
    from kvlib.caches.step import CachedSequence as CachedSequence
    from kvlib.caches.step import Step as Step
    from kvlib.caches.stored import StoredCache as StoredCache
else:
    from kvlib.lazy import attach

    __getattr__, __dir__, __all__ = attach(__name__)
