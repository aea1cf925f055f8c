"""A package apart that adds parts to kvlib from public names: families, a codec, a rule, ..."""

from kvlib.codecs import register_codec
from kvlib.config import register_family
from outside.gpt_neox import GPT_NEOX
from outside.signs import SIGNS
from outside.stablelm import STABLELM


def register() -> None:
    """Make kvlib know the names; the entry point of pyproject.toml, for kvlib's command line."""
    register_family("own_stablelm", STABLELM)
    register_family("own_gpt_neox", GPT_NEOX)
    register_codec(SIGNS, aliases=("1bit",))
