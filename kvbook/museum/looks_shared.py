"""Looks at what requests share, at a server, at the bill. See `kvbook.museum.looks`."""

from __future__ import annotations

from dataclasses import replace

from kvbook.museum.looks import ANSWER, ASKED, LONGER, PROMPT, paged, text
from kvlib.caches.allocation.prefixes import HashIndex
from kvlib.model.decoder import Decoder
from kvlib.serve import Scheduler


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


def too_little_room(model: Decoder) -> str:
    """a server with blocks for one and a half requests: what the preempted request says"""
    server = Scheduler(model, paged(model, 21), stop_tokens=())
    for name, prompt in (("a", LONGER), ("b", PROMPT)):
        server.add(name, model.tokenizer.encode(prompt), max_new_tokens=24)
    return repr(model.tokenizer.decode(server.run()["b"]))


def the_bill(model: Decoder) -> str:
    """bytes per token of Qwen3-0.6B and DeepSeek-V3; Gemma-3-27B at 131,072 tokens (bfloat16)"""
    from kvlib.costs import MODELS

    qwen, deepseek, gemma = (
        replace(MODELS[name]) for name in ("qwen3-0.6b", "deepseek-v3", "gemma-3-27b")
    )
    return (
        f"{int(qwen.kv_bytes_per_token()):,} B, {int(deepseek.kv_bytes_per_token()):,} B, "
        f"{gemma.kv_bytes(1, 131_072).GiB:.1f} GiB"
    )
