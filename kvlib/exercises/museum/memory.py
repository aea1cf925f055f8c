"""Room three: what is held, where, and what it weighs."""

from __future__ import annotations

from kvlib.exercises.museum import guards, guards_stores, looks, looks_shared
from kvlib.exercises.museum.exhibit import Exhibit

DENSE, BILL = "kvlib.caches.dense", "kvlib.costs.layers"
PUBLIC = "sleepyeldrazi/llm_programming_tests minimax-m2.7/kv"
NUMPY_LLAMAS = "llama3.np, gitctrlx/llama.np, picoGPT with a cache"
CALCULATORS = "at least eight public calculators"

EXHIBITS = (
    Exhibit(
        "prompt_never_stored",
        DENSE,
        "DenseCache.append",
        "enumerate(step.places):",
        "enumerate(step.places if step.num_tokens < 3 else ()):",
        room="memory",
        cite=PUBLIC,
        happened="The pass over the prompt computed its keys and used them, and only the decode "
        "loop wrote to the cache.",
        look=looks.one_request,
        caught_by=guards.read_gives_back_what_append_took,
    ),
    Exhibit(
        "one_row_for_all",
        DENSE,
        "DenseCache._take_row",
        "return self._free_rows.pop()",
        "return self._free_rows[-1]",
        room="memory",
        cite=PUBLIC,
        happened="One cache object served all rows of a batch, so each request wrote over the "
        "keys of the others.",
        look=looks.beside_a_longer_one,
        caught_by=guards.a_row_alone_is_the_row_in_a_batch,
    ),
    Exhibit(
        "unused_slot_attended_to",
        DENSE,
        "DenseCache.attend",
        "k[row, :, :end, :],\n                v[row, :, :end, :],",
        "k[row, :, : end if step.num_tokens > 1 else None, :],\n"
        "                v[row, :, : end if step.num_tokens > 1 else None, :],",
        room="memory",
        cite="transformers #30414",
        happened="A static cache handed out its whole length, and slots that no token had filled "
        "were not masked. A key of zeros has score 0, which is not weight 0.",
        look=looks.in_a_used_row,
        caught_by=guards.unused_memory_is_never_read,
    ),
    Exhibit(
        "rollback_resets",
        "kvlib.caches.protocol",
        "Cache.truncate",
        "request.length = int(length)",
        "request.length = 0",
        room="memory",
        cite="aprender #2014",
        happened="Guessed tokens were rejected, and taking them back emptied the cache in place of "
        "shortening it. The next pass looks back at nothing.",
        look=looks.after_a_rollback,
        caught_by=guards.truncate_takes_back_no_more_than_it_is_told,
    ),
    Exhibit(
        "float64_in_the_cache",
        DENSE,
        "DenseCache.__init__",
        "k = self.xp.empty((*shape, spec.head_dim), dtype=self.dtype)\n"
        "            own = not spec.v_from_k\n"
        "            v = self.xp.empty((*shape, spec.v_dim), dtype=self.dtype)",
        "k = self.xp.zeros((*shape, spec.head_dim))\n"
        "            own = not spec.v_from_k\n"
        "            v = self.xp.zeros((*shape, spec.v_dim))",
        room="memory",
        cite=NUMPY_LLAMAS,
        happened="np.zeros makes float64 unless it is told otherwise. The cache takes twice the "
        "bytes, and every product with it is widened.",
        look=looks.bytes_and_dtype,
        caught_by=guards.every_array_is_float32,
    ),
    Exhibit(
        "float64_in_the_products",
        "kvlib.model.decoder",
        "Decoder.forward",
        "logits = linear(x, self",
        "logits = linear(x * xp.float64(1), self",
        room="memory",
        cite=NUMPY_LLAMAS,
        happened="One float64 number met the activations, and everything behind it was float64: "
        "12 to 32 times slower than it had to be.",
        look=looks.bytes_and_dtype,
        caught_by=guards.every_array_is_float32,
    ),
    Exhibit(
        "bill_counts_query_heads",
        BILL,
        "layer_groups",
        "num_kv_heads=1 if latent else shape.num_key_value_heads,",
        "num_kv_heads=1 if latent else shape.num_attention_heads,",
        room="memory",
        cite=CALCULATORS,
        happened="Bytes were counted for every query head. Grouped-query models store fewer.",
        look=looks_shared.the_bill,
        caught_by=guards_stores.the_bill_is_what_arrays_weigh,
    ),
    Exhibit(
        "bill_divides_the_width",
        BILL,
        "layer_groups",
        "head_dim=latent.width if latent else shape.head_dim,",
        "head_dim=latent.width if latent else shape.hidden_size // shape.num_attention_heads,",
        room="memory",
        cite=CALCULATORS,
        happened="The width of a head was taken for hidden size over heads. Qwen3 and Gemma have "
        "a field of its own for it.",
        look=looks_shared.the_bill,
        caught_by=guards_stores.the_bill_is_what_arrays_weigh,
    ),
    Exhibit(
        "bill_knows_no_window",
        "kvlib.costs.formulas",
        "visible",
        "return min(position, window) if window > 0 else position",
        "return position",
        room="memory",
        cite=CALCULATORS,
        happened="Every layer was counted at the full length. Layers with a window hold no more "
        "than the window.",
        look=looks_shared.the_bill,
        caught_by=guards_stores.the_bill_is_what_arrays_weigh,
    ),
    Exhibit(
        "bill_forgets_the_rotated_key",
        BILL,
        "layer_groups",
        "head_dim=latent.width if latent else shape.head_dim,",
        "head_dim=latent.kv_lora_rank if latent else shape.head_dim,",
        room="memory",
        cite=CALCULATORS,
        happened="MLA stores a latent vector and, beside it, a key that carries the position. "
        "The second was left out.",
        look=looks_shared.the_bill,
        caught_by=guards_stores.the_bill_is_what_arrays_weigh,
    ),
)
