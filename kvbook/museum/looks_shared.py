"""Looks at what requests share, at a server, at the bill. See `kvbook.museum.looks`."""

from __future__ import annotations

from kvbook.museum.looks import ANSWER, ASKED, paged, text
from kvlib.caches.allocation.prefixes import HashIndex
from kvlib.model.decoder import Decoder


def the_same_question_later(model: Decoder) -> str:
    """a prompt that binds 'tfre', two others that take its blocks, then the first prompt again"""
    cache = paged(model, 3, 32)  # the name is bound in the first block, the only one that is full
    for value in ("tfre", "wqpl", "onhs"):
        text(model, [ASKED.format(value)], cache, ANSWER)
    return text(model, [ASKED.format("tfre")], cache, ANSWER)


def a_colliding_hash(model: Decoder) -> str:
    """a prompt that binds 'tfre' after one that binds 'wqpl'; the hash only counts blocks"""
    cache = paged(model, index=HashIndex(lambda before, tokens, extra: before + b"."))
    text(model, [ASKED.format("wqpl")], cache, ANSWER)
    return text(model, [ASKED.format("tfre")], cache, ANSWER)


def a_prompt_twice(model: Decoder) -> str:
    """a prompt that fills its blocks exactly, sent a second time"""
    cache = paged(model)
    text(model, [ASKED.format("tfre")], cache, ANSWER)
    return text(model, [ASKED.format("tfre")], cache, ANSWER)
