"""Caches: one protocol, one file for each way to hold keys and values."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # each public name, once: see `kvlib.lazy`
    from kvlib.caches import layouts as layouts
    from kvlib.caches.blocks import BlockPool as BlockPool
    from kvlib.caches.cascade import run_cascade as run_cascade
    from kvlib.caches.cross import cross_step as cross_step
    from kvlib.caches.dense import DenseCache as DenseCache
    from kvlib.caches.dense import QuantizedCache as QuantizedCache
    from kvlib.caches.expected import ExpectedAttention as ExpectedAttention
    from kvlib.caches.paged import PagedCache as PagedCache
    from kvlib.caches.paging import Blocks as Blocks
    from kvlib.caches.policies import H2O as H2O
    from kvlib.caches.policies import KNorm as KNorm
    from kvlib.caches.policies import Policy as Policy
    from kvlib.caches.policies import SnapKV as SnapKV
    from kvlib.caches.policies import Tova as Tova
    from kvlib.caches.prefixes import HashIndex as HashIndex
    from kvlib.caches.prefixes import RadixIndex as RadixIndex
    from kvlib.caches.protocol import Cache as Cache
    from kvlib.caches.quest import Quest as Quest
    from kvlib.caches.retention import KeepAll as KeepAll
    from kvlib.caches.retention import Retention as Retention
    from kvlib.caches.retention import Sinks as Sinks
    from kvlib.caches.retention import Window as Window
    from kvlib.caches.retention import layer_groups as layer_groups
    from kvlib.caches.rows import Rows as Rows
    from kvlib.caches.scored import Scored as Scored
    from kvlib.caches.scored import pyramid as pyramid
    from kvlib.caches.seen import Seen as Seen
    from kvlib.caches.spec import LayerSpec as LayerSpec
    from kvlib.caches.spec import Memory as Memory
    from kvlib.caches.step import Step as Step
    from kvlib.caches.stored import StoredCache as StoredCache
    from kvlib.caches.stored_attention import run_alone as run_alone
else:
    from kvlib.lazy import attach

    __getattr__, __dir__, __all__ = attach(__name__)
