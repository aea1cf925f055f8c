"""A compact core check, the same every time: what each mutant and exhibit must not survive."""

import math
from unittest.mock import patch

import killers_guesses
import killers_scored
import killers_stored
import killers_trees
import numpy as np
import oracle
import test_cache_steps
import test_cross
from dtypes import Watched, watch
from models import config, decoder, text
from schedules import Schedule, close, seeded

from kvlib import (
    Decoder,
    Scheduler,
    attend,
    attend_causal,
    attend_tiled,
    blas,
    generate,
    merge_state,
)
from kvlib.attention import causal, merge_states
from kvlib.model import random_weights
from kvlib.serve import probabilities, sample


def any_schedule() -> None:
    # Of single lives of the dense cache, one in three shows rows that are out of order.
    for name, lives in (("dense", 16), ("attention over read", 4)):
        for seed in range(lives):
            Schedule(name, seeded(seed), np).play(25)


def steps_used_once() -> None:
    for name in ("dense", "int4, residual 0, rows"):
        test_cache_steps.test_a_layer_appends_once_in_a_step(test_cache_steps.opened(name))
        cache = test_cache_steps.opened(name)
        test_cache_steps.test_a_pass_that_one_layer_missed_is_not_attended_to(cache)
    test_cross.test_a_text_that_is_filled_in_two_steps("rows")


def cached_equals_recomputed() -> None:
    for kind in ("llama3", "hybrid", "gemma2", "gpt2", "qwen3"):
        model, texts = decoder(kind, seed=1), [text(1, 14), text(2, 9)]
        cache = model.new_cache(2, 20)
        for x in cache.storage():
            x[...] = math.nan
        needed = [oracle.decoder_logits(model.config, model.weights, t) for t in texts]
        cache.add(0)
        cache.add(1)
        done = [0, 0]
        for q_lens in ([6, 3], [1, 1], [3, 2], [1, 1], [2, 1]):
            parts = [t[a : a + n] for t, a, n in zip(texts, done, q_lens)]
            done = [a + n for a, n in zip(done, q_lens)]
            logits = model.forward(sum(parts, []), cache, cache.plan([0, 1], q_lens))
            for row, wanted, end in zip(logits, needed, done):
                close(row, wanted[end - 1], f"{kind} at {end}")
        assert [cache.seq_len(i) for i in (0, 1)] == done


def generated_tokens() -> None:
    model, prompts = decoder("mistral", seed=3), [text(1, 7), text(2, 2)]
    needed = []
    for prompt in prompts:
        tokens = list(prompt)
        for _ in range(7):
            logits = oracle.decoder_logits(model.config, model.weights, tokens)
            tokens.append(int(np.argmax(logits[-1])))
        needed.append(tokens[len(prompt) :])
    cache = model.new_cache(2, 20)
    assert generate(model, prompts, max_new_tokens=7, cache=cache) == needed
    assert cache.seq_ids == ()
    stop = needed[0][3]
    ended = [t[: t.index(stop)] if stop in t else t for t in needed]
    assert generate(model, prompts, max_new_tokens=7, stop_tokens=[stop]) == ended
    drawn = generate(model, prompts, max_new_tokens=7, temperature=1.0, seed=[3, 4])
    for i, prompt in enumerate(prompts):
        longer, settings = prompt + drawn[i][:2], {"temperature": 1.0, "seed": 3 + i}
        assert generate(model, [longer], max_new_tokens=5, **settings) == [drawn[i][2:]]
        scheduler = Scheduler(model, model.new_cache(1, 20))
        scheduler.add(i, prompt, 7, **settings)
        assert scheduler.run() == {i: drawn[i]}


def attention_in_every_form() -> None:
    rng = np.random.default_rng(7)
    for t, s, window in ((1, 9, None), (4, 9, 3), (5, 5, None), (30, 40, 7), (1, 9, 4), (1, 9, 1)):
        q, k, v = (
            rng.standard_normal((n, h, 4)).astype(np.float32) for n, h in ((t, 4), (s, 2), (s, 2))
        )
        q_pos, kv_pos = np.arange(s - t, s), np.arange(s)
        settings = dict(window=window, softcap=3.0, sinks=np.asarray([0, 1, -1, 2], np.float32))
        for kept in ({"window": window}, settings):
            o, lse = oracle.attention(q, k, v, q_pos, kv_pos, **kept)
            results = [attend(q, k, v, q_pos, kv_pos, return_lse=True, **kept)]
            for tile in (1, 4, 64):
                tiled = attend_tiled(q, k, v, q_pos, kv_pos, tile=tile, return_lse=True, **kept)
                results.append(tiled)
            heads_first = (k.transpose(1, 0, 2), v.transpose(1, 0, 2))
            for rows in (causal.CHUNK_ROWS, 6):  # as it is, and with seams in every prompt
                seams = patch.object(causal, "CHUNK_ROWS", rows)
                with seams, patch.object(blas, "CHUNK_PIECE", rows):
                    results.append(attend_causal(q, *heads_first, return_lse=True, **kept))
            for got in results:
                close(got[0], o, "o")
                close(got[1], lse, "lse")
    by_head = np.stack([kv_pos, kv_pos[::-1] + 1])
    needed = oracle.attention(q, k, v, q_pos, by_head, window=4)
    for form in (attend, attend_tiled):
        for got, wanted in zip(form(q, k, v, q_pos, by_head, window=4, return_lse=True), needed):
            close(got, wanted, "positions by head")
        for n, where in ((len(k), q_pos - 99), (0, q_pos)):  # no key seen, no key there
            o, lse = form(q, k[:n], v[:n], where, kv_pos[:n], return_lse=True)
            assert (o == 0).all() and (lse == -math.inf).all()


def states_merge() -> None:
    rng = np.random.default_rng(1)
    o = rng.standard_normal((3, 5, 2, 4)).astype(np.float32)
    lse = (5 * rng.standard_normal((3, 5, 2))).astype(np.float32)
    lse[:, 0], o[:, 0], lse[1, 1:3], o[1, 1:3] = -math.inf, 0, -math.inf, 0
    share = np.exp(lse.astype(float))
    total = share.sum(axis=0)
    with np.errstate(divide="ignore"):
        whole = (o * share[..., None]).sum(axis=0) / np.where(total, total, 1)[..., None]
        for merged in (
            merge_states(o, lse),
            merge_state(*merge_state(o[0], lse[0], o[1], lse[1]), o[2], lse[2]),
        ):
            close(merged[0], whole, "merged o")
            close(merged[1], np.log(total), "merged lse")


def only_float32() -> None:
    for kind in ("llama", "gpt2", "qwen3"):
        c = config(kind)
        weights = {n: w.view(Watched) for n, w in random_weights(c).items()}
        model = Decoder(c, weights)
        cache = model.new_cache(1, 20)
        assert {x.dtype for x in cache.storage()} == {np.dtype(np.float32)}
        cache.add("a")
        with watch() as found:
            model.forward([1, 2, 3], cache, cache.plan(["a"], [3]))
            logits = model.forward([4], cache, cache.plan(["a"], [1]))
        assert not found and logits.dtype == np.float32, f"float64 in {sorted(found)}"


def samples() -> None:
    logits = np.log([[0.1, 0.4, 0.15, 0.3, 0.05]])
    for settings, needed in (
        ({"temperature": 0.5}, [0.01, 0.16, 0.0225, 0.09, 0.0025]),
        ({"top_k": 2}, [0, 0.4, 0, 0.3, 0]), ({"top_p": 0.8}, [0, 0.4, 0.15, 0.3, 0]),
        ({"top_p": 0.1}, [0, 1, 0, 0, 0]),
    ):
        p = probabilities(logits, **settings)[0]
        close(p, np.asarray(needed) / sum(needed), f"probabilities under {settings}")
    drawn = sample(np.repeat(logits, 4000, axis=0), rngs=np.random.default_rng(3))
    close(np.bincount(drawn) / 4000, np.exp(logits[0]), "frequencies", 0.03)


CHECKS = (
    attention_in_every_form, states_merge, samples, any_schedule, steps_used_once,
    cached_equals_recomputed, generated_tokens, only_float32, *killers_stored.CHECKS,
    *killers_scored.CHECKS, *killers_guesses.CHECKS, *killers_trees.CHECKS,
)
