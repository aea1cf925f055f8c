"""Codecs: how many bits a key has, and where its scale lies."""

from kvlib.codecs.base import PLAIN, Codec, Field, Plain, TensorCodec
from kvlib.codecs.bfloat16 import BFloat16, bfloat16
from kvlib.codecs.fp8 import Fp8, fp8
from kvlib.codecs.groups import PerChannel, PerToken, int8_per_channel, kivi
from kvlib.codecs.int8 import Int8, int8

__all__ = [
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
    "fp8",
    "int8",
    "int8_per_channel",
    "kivi",
]
