"""Reading config.json: the one parser that `kvlib.costs` and `kvlib.model` share. Needs no NumPy.

`read` makes a `Shape` (how large a model is) of it, or a shape with the fields of `ModelConfig`
that say how a forward pass computes. `families` has a file for each family. The names below are
what a custom family needs; `register_family` makes kvlib read it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # each public name, once: see `kvlib.lazy`
    from kvlib.config.families import Conversion as Conversion
    from kvlib.config.families import Family as Family
    from kvlib.config.families import Names as Names
    from kvlib.config.families import classes as classes
    from kvlib.config.families import register_family as register_family
    from kvlib.config.families import transposed as transposed
    from kvlib.config.keys import Keys as Keys
    from kvlib.config.parts import common_fields as common_fields
    from kvlib.config.parts import decoder as decoder
    from kvlib.config.parts import listed as listed
    from kvlib.config.parts import llama_fields as llama_fields
    from kvlib.config.parts import routing as routing
    from kvlib.config.parts import uniform as uniform
    from kvlib.config.parts import window as window
    from kvlib.config.rope import read_rope as read_rope
    from kvlib.config.shape import Experts as Experts
    from kvlib.config.shape import Latent as Latent
    from kvlib.config.shape import Router as Router
    from kvlib.config.shape import Shape as Shape
else:
    from kvlib.lazy import attach

    __getattr__, __dir__, __all__ = attach(__name__)
