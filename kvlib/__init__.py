"""kvlib: the KV cache of transformer inference, small enough to read and fast enough to use.

Everything is imported on first use, so ``import kvlib`` costs next to nothing. Figures, sliders
and exercises are in the package `kvbook`.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:  # each public name, once: see `kvlib.lazy`
    from kvlib import arrays as arrays
    from kvlib import attention as attention
    from kvlib import caches as caches
    from kvlib import codecs as codecs
    from kvlib import costs as costs
    from kvlib import errors as errors
    from kvlib import kernels as kernels
    from kvlib import machine as machine
    from kvlib import meter as meter
    from kvlib import model as model
    from kvlib import norms as norms
    from kvlib import quality as quality
    from kvlib import reference as reference
    from kvlib import serve as serve
    from kvlib import speculation as speculation
    from kvlib import testing as testing
    from kvlib.attention import attend as attend
    from kvlib.attention import attend_causal as attend_causal
    from kvlib.attention import attend_tiled as attend_tiled
    from kvlib.attention import merge_state as merge_state
    from kvlib.attention import merge_states as merge_states
    from kvlib.caches import BlockPool as BlockPool
    from kvlib.caches import Cache as Cache
    from kvlib.caches import DenseCache as DenseCache
    from kvlib.caches import LayerSpec as LayerSpec
    from kvlib.caches import Memory as Memory
    from kvlib.caches import PagedCache as PagedCache
    from kvlib.caches import QuantizedCache as QuantizedCache
    from kvlib.caches import Step as Step
    from kvlib.errors import CacheFull as CacheFull
    from kvlib.errors import CheckpointError as CheckpointError
    from kvlib.errors import OutOfBlocks as OutOfBlocks
    from kvlib.meter import Meter as Meter
    from kvlib.model import Decoder as Decoder
    from kvlib.model import ModelConfig as ModelConfig
    from kvlib.model import load_model as load_model
    from kvlib.reference import load_draft_model as load_draft_model
    from kvlib.reference import load_reference_model as load_reference_model
    from kvlib.serve.editing import remove_span as remove_span
    from kvlib.serve.generation import generate as generate
    from kvlib.serve.generation import stream as stream
    from kvlib.serve.sampling import sample as sample
    from kvlib.serve.scheduler import Scheduler as Scheduler
else:
    from kvlib.lazy import attach

    __getattr__, __dir__, __all__ = attach(__name__)
