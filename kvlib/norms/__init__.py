"""LayerNorm and RMSNorm, forward and backward, along the last axis of x (..., D).

A decoder runs :func:`rms_norm` and :func:`layer_norm`. Training also needs gradients: the
``_forward`` functions return y and exactly the arrays that the gradients need (:class:`Saved`), and
the ``_backward`` functions turn ∂loss/∂y into ∂loss/∂x and the gradients of the weights.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # each public name, once: see `kvlib.lazy`
    from kvlib.norms.backward import layer_norm_backward as layer_norm_backward
    from kvlib.norms.backward import rms_norm_backward as rms_norm_backward
    from kvlib.norms.differences import row_differences as row_differences
    from kvlib.norms.forward import Saved as Saved
    from kvlib.norms.forward import layer_norm as layer_norm
    from kvlib.norms.forward import layer_norm_forward as layer_norm_forward
    from kvlib.norms.forward import rms_norm as rms_norm
    from kvlib.norms.forward import rms_norm_forward as rms_norm_forward
else:
    from kvlib.lazy import attach

    __getattr__, __dir__, __all__ = attach(__name__)
