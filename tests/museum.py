"""The museum: bugs that real systems shipped, as one-line changes to kvlib.

Each mutant names the function it changes, the text that is replaced (it must stand in the file
exactly once), what replaces it, and the check of killers.py that must refuse it.
"""

from typing import NamedTuple


class Mutant(NamedTuple):
    """``seen``: where the bug was shipped; empty where it is one that lies near."""

    name: str
    module: str
    function: str
    old: str
    new: str
    killed_by: str
    seen: str = ""


CAUSAL, DIRECT = "kvlib.attention.causal", "kvlib.attention.direct"
TILED, STATES = "kvlib.attention.tiled", "kvlib.attention.states"
DENSE, PROTOCOL = "kvlib.caches.dense", "kvlib.caches.protocol"
ROPE, DECODER = "kvlib.model.rope", "kvlib.model.decoder"
GENERATION, SAMPLING = "kvlib.generation", "kvlib.sampling"

MUTANTS = [
    # Masks
    Mutant("top-left causal mask", CAUSAL, "_prefill", "start = s - t", "start = 0",
           "attention_in_every_form", "FlashAttention before 2.1, pytorch #108108"),
    Mutant("no causal mask", CAUSAL, "_hide", "if n > 1:", "if n > 10**9:",
           "attention_in_every_form"),
    Mutant("mask added as one in place of -inf", CAUSAL, "_hide",
           "xp.full((n, n), -math.inf,", "xp.full((n, n), 1.0,",
           "attention_in_every_form", "sleepyeldrazi/llm_programming_tests"),
    Mutant("window one too wide", DIRECT, "visible", "distance < window", "distance <= window",
           "attention_in_every_form", "transformers #37574"),
    Mutant("window one too wide in prefill", CAUSAL, "_hide", "i - j >= window", "i - j > window",
           "attention_in_every_form"),
    Mutant("window one too narrow in prefill", CAUSAL, "_prefill",
           "start + a - window + 1)", "start + a - window + 2)", "attention_in_every_form"),
    Mutant("window one too wide in decode", CAUSAL, "attend_causal",
           "max(0, s - window)", "max(0, s - window - 1)", "attention_in_every_form"),
    Mutant("diagonal hidden", DIRECT, "visible", "distance >= 0", "distance > 0",
           "attention_in_every_form"),
    # Heads
    Mutant("query heads dealt out in turn", DIRECT, "by_head",
           "(t, num_kv_heads, groups, dim)), (1, 2, 0, 3)",
           "(t, groups, num_kv_heads, dim)), (2, 1, 0, 3)",
           "attention_in_every_form", "GQA by tile in place of repeat, several"),
    Mutant("query heads dealt out in turn in decode", CAUSAL, "_decode",
           "xp.reshape(q, (num_kv_heads, groups, dim))",
           "xp.permute_dims(xp.reshape(q, (groups, num_kv_heads, dim)), (1, 0, 2))",
           "attention_in_every_form"),
    # Partial results
    Mutant("lse to base 2", DIRECT, "finish", "top + xp.log(divisor)",
           "(top + xp.log(divisor)) * 1.4426950408889634",
           "attention_in_every_form", "sglang #35045"),
    Mutant("nothing merged with nothing is NaN", STATES, "merge_state",
           "safe = xp.where(top == -math.inf, xp.zeros_like(top), top)  # −inf", "safe = top  #",
           "states_merge", "flashinfer #4051"),
    Mutant("merge weighs the wrong side", STATES, "merge_state", "share = b /", "share = a /",
           "states_merge"),
    Mutant("softmax divided twice", TILED, "attend_tiled", "xp.matmul(p, vh) * new",
           "xp.matmul(p / xp.where(tile_total == 0, 1.0, tile_total), vh) * new",
           "attention_in_every_form", "sleepyeldrazi/llm_programming_tests"),
    Mutant("old tiles not rescaled", TILED, "attend_tiled", "total = total * old +",
           "total = total +", "attention_in_every_form"),
    Mutant("a tile that sees nothing is NaN", TILED, "attend_tiled",
           "safe = xp.where(new_top == -math.inf, xp.zeros_like(new_top), new_top)",
           "safe = new_top", "attention_in_every_form"),
    Mutant("a second chunk overwrites the first", CAUSAL, "_prefill",
           "whole[a:b, :, :] =", "whole[: b - a, :, :] =", "attention_in_every_form"),
    # Where keys are put
    Mutant("an unused slot is attended to", DENSE, "DenseCache.run",
           "k[row, :, :end, :],\n                v[row, :, :end, :],",
           "k[row, :, : end + 1, :],\n                v[row, :, : end + 1, :],",
           "any_schedule", "transformers #30414"),
    Mutant("a slot is left out at each decode", PROTOCOL, "Cache.plan",
           "request.length += n", "request.length += n + (n == 1)",
           "cached_equals_recomputed", "likejazz/llama3.np"),
    Mutant("one row for all requests", DENSE, "DenseCache._take_row",
           "return self._free_rows.pop()", "return self._free_rows[-1]",
           "cached_equals_recomputed", "sleepyeldrazi/llm_programming_tests"),
    Mutant("append at the longest request's end", DENSE, "DenseCache.append",
           "step.qo_indptr[i + 1], step.seq_lens[i]",
           "step.qo_indptr[i + 1], max(step.seq_lens)",
           "cached_equals_recomputed", "omlx #2172"),
    Mutant("keys of a prompt never stored", DENSE, "DenseCache.append",
           "enumerate(step.places):", "enumerate(step.places if step.num_tokens < 3 else ()):",
           "cached_equals_recomputed", "sleepyeldrazi/llm_programming_tests"),
    Mutant("a fork shares the row", DENSE, "DenseCache._copy",
           "row, copied = self._take_row(seq_id), 0", "row, copied = source.place, 0",
           "any_schedule"),
    Mutant("a freed row is lost", DENSE, "DenseCache._release",
           "self._free_rows.append(request.place)", "pass", "any_schedule"),
    Mutant("a step outlives its truncation", PROTOCOL, "Cache.truncate",
           "request.length = int(length)\n        self._end_step(request)",
           "request.length = int(length)", "any_schedule"),
    # Positions
    Mutant("RoPE one ahead from the first decode on", PROTOCOL, "Cache.plan",
           "starts = [r.length for r in requests]",
           "starts = [r.length + (r.length > 0) for r in requests]",
           "cached_equals_recomputed", "likejazz/llama3.np"),
    Mutant("one position for the whole batch", PROTOCOL, "Cache.plan",
           "starts = [r.length for r in requests]",
           "starts = [max(r.length for r in requests)] * len(requests)",
           "cached_equals_recomputed", "unsloth #3803, transformers #29109"),
    Mutant("learned positions start again in each chunk", DECODER, "Decoder.forward",
           'xp.take(self.weights["pos_embed.weight"], step.positions, axis=0)',
           'self.weights["pos_embed.weight"][: step.num_tokens, :]',
           "cached_equals_recomputed"),
    Mutant("RoPE on neighbours in place of halves", ROPE, "rotate",
           "namespace(x).concat([x[..., half:], x[..., :half]], axis=-1)",
           "x.reshape(*x.shape[:-1], half, 2)[..., ::-1].reshape(x.shape)",
           "cached_equals_recomputed", "the two layouts of RoPE mixed up, several"),
    Mutant("values turned, too", DECODER, "Decoder._project",
           "both[:, num_qo_heads:, :], v\n", "*[both[:, num_qo_heads:, :]] * 2\n",
           "cached_equals_recomputed"),
    Mutant("logits of each request's first row", DECODER, "Decoder.forward",
           "xp.asarray(step.last_rows,", "xp.asarray(step.qo_indptr[:-1],",
           "cached_equals_recomputed"),
    # Dtypes
    Mutant("float64 leaks from RoPE's tables", ROPE, "tables",
           "xp.asarray(full_cos, dtype=dtype)", "xp.asarray(full_cos)",
           "only_float32", "llama3.np, gitctrlx/llama.np"),
    Mutant("float64 within one expression", "kvlib.model.layers", "rms_norm",
           "xp.sqrt(mean_square + eps)", "xp.sqrt(mean_square + xp.float64(eps))", "only_float32"),
    # Generation
    Mutant("last prompt token fed again", GENERATION, "_steps", "feed[i] = [token]",
           "feed[i] = [prompts[i][-1]] if made[i] == 1 else [token]",
           "generated_tokens", "sleepyeldrazi/llm_programming_tests"),
    Mutant("stop token returned", GENERATION, "_steps", "if not stopped:", "if True:",
           "generated_tokens"),
    Mutant("requests left open", GENERATION, "_steps", "cache.free(names.pop(i))", "names.pop(i)",
           "generated_tokens"),
    Mutant("one generator for the whole batch", GENERATION, "_steps",
           "[rngs[i] for i in rows]", "[rngs[0]] * len(rows)", "generated_tokens"),
    Mutant("top-p leaves out the token that reaches it", SAMPLING, "probabilities",
           "np.cumsum(kept, axis=1) - kept < top_p", "np.cumsum(kept, axis=1) < top_p", "samples"),
    Mutant("temperature multiplied", SAMPLING, "probabilities",
           "(x - top) / temperature", "(x - top) * temperature", "samples"),
]  # fmt: skip
