"""A package apart that adds parts to kvlib: two families, a codec, a rule, attention and a cache.

It imports public names of kvlib and nothing else of it. Each part is one file; families and the
codec, which are found by name, are one line more in `register`.
"""

from kvlib.codecs import register_codec
from kvlib.config import register_family
from outside.gpt_neox import GPT_NEOX
from outside.signs import SIGNS
from outside.stablelm import STABLELM


def register() -> None:
    """Make kvlib know the names; the entry point of pyproject.toml, for kvlib's command line."""
    register_family("stablelm", STABLELM)
    register_family("gpt_neox", GPT_NEOX)
    register_codec(SIGNS, aliases=("1bit",))
