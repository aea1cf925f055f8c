"""A model's bytes and operations, and what they allow on a GPU: arithmetic, no arrays.

The formulas are in `kvlib.costs.formulas`, models and GPUs with their sources in `MODELS` and
`GPUS`. Everything is imported on first use; nothing here needs NumPy.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # each public name, once: see `kvlib.lazy`
    from kvlib.config.quantised import Format as Format
    from kvlib.costs.bill import ASSUMPTIONS as ASSUMPTIONS
    from kvlib.costs.bill import Assumption as Assumption
    from kvlib.costs.bill import ContextRange as ContextRange
    from kvlib.costs.bill import Fit as Fit
    from kvlib.costs.bill import Plan as Plan
    from kvlib.costs.bill import fit as fit
    from kvlib.costs.bill import gpus_needed as gpus_needed
    from kvlib.costs.bill import kv_on_one as kv_on_one
    from kvlib.costs.bill import max_context as max_context
    from kvlib.costs.catalogue import CODECS as CODECS
    from kvlib.costs.catalogue import GPUS as GPUS
    from kvlib.costs.catalogue import Catalogue as Catalogue
    from kvlib.costs.catalogue import Gpu as Gpu
    from kvlib.costs.catalogue import UnknownName as UnknownName
    from kvlib.costs.catalogue import Value as Value
    from kvlib.costs.spec import MODELS as MODELS
    from kvlib.costs.spec import RESERVES as RESERVES
    from kvlib.costs.spec import ModelSpec as ModelSpec
    from kvlib.costs.units import Bytes as Bytes
    from kvlib.costs.units import BytesPerSecond as BytesPerSecond
    from kvlib.costs.units import Flops as Flops
    from kvlib.costs.units import FlopsPerByte as FlopsPerByte
    from kvlib.costs.units import FlopsPerSecond as FlopsPerSecond
    from kvlib.costs.units import Seconds as Seconds
    from kvlib.costs.units import Tokens as Tokens
    from kvlib.costs.units import TokensPerSecond as TokensPerSecond
    from kvlib.costs.work import Comparison as Comparison
    from kvlib.costs.work import Cost as Cost
    from kvlib.costs.work import Floor as Floor
    from kvlib.costs.work import Work as Work
    from kvlib.costs.work import decode as decode
    from kvlib.costs.work import prefill as prefill
    from kvlib.costs.work import uncached as uncached
else:
    from kvlib.lazy import attach

    __getattr__, __dir__, __all__ = attach(__name__)
