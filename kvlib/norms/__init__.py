"""LayerNorm and RMSNorm, forward and backward, along the last axis of x (..., D).

:func:`rms_norm` and :func:`layer_norm` are what a decoder runs. Training needs the way back, too:
the ``_forward`` functions return what it needs beside y, and no more (:class:`Saved`), the
``_backward`` functions turn ∂loss/∂y into ∂loss/∂x and the gradients of the weights.
"""

from kvlib.norms.backward import layer_norm_backward, rms_norm_backward
from kvlib.norms.differences import row_differences
from kvlib.norms.forward import (
    Saved,
    layer_norm,
    layer_norm_forward,
    rms_norm,
    rms_norm_forward,
)

__all__ = [
    "Saved",
    "layer_norm",
    "layer_norm_backward",
    "layer_norm_forward",
    "rms_norm",
    "rms_norm_backward",
    "rms_norm_forward",
    "row_differences",
]
