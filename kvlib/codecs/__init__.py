"""Codecs: how a cache stores numbers, as they are or as codes of a few bits with scales.

A cache takes one by name or as an object: ``codec="int8"``, ``codec=kivi(4, group=64)``.
"""

from typing import TYPE_CHECKING, Any

from kvlib.codecs.base import PLAIN, Codec, Field, Plain, TensorCodec
from kvlib.codecs.bfloat16 import BFloat16, bfloat16
from kvlib.codecs.fp8 import Fp8, fp8
from kvlib.codecs.groups import PerChannel, PerToken, int8_per_channel, kivi
from kvlib.codecs.int8 import Int8, int8
from kvlib.codecs.names import codec, register_codec
from kvlib.codecs.packing import pack, unpack

if TYPE_CHECKING:
    from kvlib.costs.catalogue import Catalogue

    NAMES: Catalogue[Codec]

__all__ = [
    "NAMES",
    "PLAIN",
    "BFloat16",
    "Codec",
    "Field",
    "Fp8",
    "Int8",
    "PerChannel",
    "PerToken",
    "Plain",
    "TensorCodec",
    "bfloat16",
    "codec",
    "fp8",
    "int8",
    "int8_per_channel",
    "kivi",
    "pack",
    "register_codec",
    "unpack",
]


def __getattr__(name: str) -> Any:
    if name == "NAMES":  # made on first use
        from kvlib.codecs.names import names

        return names()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
