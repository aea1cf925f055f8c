"""Room three: what is held, where, and what it weighs."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

from kvbook.museum import guards, guards_stores, looks, looks_shared
from kvbook.museum.exhibit import Exhibit, by_a_model
from kvbook.museum.mutation import Call
from kvlib.arrays import Array
from kvlib.caches import Cache, Step
from kvlib.caches.allocation.rows import Rows
from kvlib.caches.allocation.table import State
from kvlib.config.shape import Shape
from kvlib.costs.spec import LayerGroup
from kvlib.model.decoder import Embedding

STORED, BILL = "kvlib.caches.stored", "kvlib.costs.spec"


def decoded_tokens_only(
    append: Call, cache: Cache, layer: int, k: Array, v: Array, step: Step
) -> None:
    if step.num_tokens < 3:
        append(cache, layer, k, v, step)
    step.ticket.appended.add(layer)  # so that `run` does not ask where the keys are


def still_free(open_: Call, rows: Rows, *request: Any) -> State:
    state: State = open_(rows, *request)
    rows._free.append(state.row)  # the next request is given this row, too
    return state


def the_whole_row(attend: Call, cache: Cache, layer: int, q: Array, step: Step, *lse: bool) -> Any:
    if step.num_tokens == 1:
        step = copy(step)
        step.seq_lens = (cache.max_seq_len,)  # type: ignore[attr-defined]
    return attend(cache, layer, q, step, *lse)


def back_to_nothing(truncate: Call, cache: Cache, seq_id: str, length: int) -> None:
    truncate(cache, seq_id, 0)


def of_float64(init: Call, fields: Any, xp: Any, *shape: Any) -> None:
    *shape_, _dtype = shape
    init(fields, xp, *shape_, xp.float64)


def times_a_float64(logits: Call, embedding: Embedding, x: Array) -> Any:
    return logits(embedding, x * embedding.xp.float64(1))


def query_heads(layer_groups: Call, shape: Shape) -> list[LayerGroup]:
    groups = layer_groups(shape)
    return [g if g.latent else replace(g, num_kv_heads=g.num_qo_heads) for g in groups]


def hidden_size_over_heads(layer_groups: Call, shape: Shape) -> list[LayerGroup]:
    width = shape.hidden_size // shape.num_attention_heads
    return [g if g.latent else replace(g, head_dim=width) for g in layer_groups(shape)]


def the_latent_alone(layer_groups: Call, shape: Shape) -> list[LayerGroup]:
    return [replace(g, head_dim=g.v_dim) if g.latent else g for g in layer_groups(shape)]


def all_positions(visible: Call, position: float, window: float) -> float:
    return position


EXHIBITS = (
    Exhibit(
        "prompt_never_stored",
        STORED,
        "StoredCache.append",
        decoded_tokens_only,
        room="memory",
        cite=by_a_model("minimax-m2.7/kv"),
        happened="Reading the prompt computed its keys and used them, but only the decode loop "
        "wrote to the cache.",
        look=looks.one_request,
        caught_by=guards.read_gives_back_what_append_took,
    ),
    Exhibit(
        "one_row_for_all",
        "kvlib.caches.allocation.rows",
        "Rows.open",
        still_free,
        room="memory",
        cite=by_a_model("minimax-m2.7/kv"),
        happened="One cache object served all rows of a batch, so each request overwrote the keys "
        "of the others.",
        look=looks.beside_a_longer_one,
        caught_by=guards.a_row_alone_is_the_row_in_a_batch,
    ),
    Exhibit(
        "unused_slot_attended_to",
        STORED,
        "StoredCache.attend",
        the_whole_row,
        room="memory",
        cite="transformers #30400",
        happened="A static cache handed out all its slots, and those that no token had filled yet "
        "were not masked. A key of zeros has score 0, which does not mean weight 0.",
        look=looks.in_a_used_row,
        caught_by=guards.unused_memory_is_never_read,
    ),
    Exhibit(
        "rollback_resets",
        "kvlib.caches.protocol",
        "Cache.truncate",
        back_to_nothing,
        room="memory",
        cite="aprender #2014",
        happened="Checking guessed tokens should first shorten the cache to where the guesses "
        "begin. Here it emptied the cache, so the next step looks back at nothing.",
        look=looks.after_a_rollback,
        caught_by=guards.truncate_removes_no_more_than_it_is_told,
    ),
    Exhibit(
        "float64_in_the_cache",
        "kvlib.attention.pieces",
        "PagedTensor.__init__",
        of_float64,
        room="memory",
        cite="likejazz/llama3.np, gitctrlx/llama.np",
        happened="np.zeros makes float64 unless it is told otherwise. The cache takes twice the "
        "bytes, and everything multiplied with it becomes float64.",
        look=looks.bytes_and_dtype,
        caught_by=guards.every_array_is_float32,
    ),
    Exhibit(
        "float64_in_the_products",
        "kvlib.model.decoder",
        "Embedding.logits",
        times_a_float64,
        room="memory",
        cite="likejazz/llama3.np",
        happened="A float64 array, in llama3.np the table of rotations, met float32 activations, "
        "so everything computed from them became float64.",
        look=looks.bytes_and_dtype,
        caught_by=guards.every_array_is_float32,
    ),
    Exhibit(
        "bill_counts_query_heads",
        BILL,
        "layer_groups",
        query_heads,
        room="memory",
        cite="vllm-fit #2, KolosalAI/model-memory-calculator #2",
        happened="The calculators ignored the number of kv heads: one multiplied by the query "
        "heads, the other by the hidden size. Grouped-query models store keys for fewer heads.",
        look=looks_shared.the_bill,
        caught_by=guards_stores.the_bill_is_what_arrays_weigh,
    ),
    Exhibit(
        "bill_divides_the_width",
        BILL,
        "layer_groups",
        hidden_size_over_heads,
        room="memory",
        cite="LMCache #688",
        happened="The calculator took hidden size over heads for the size of a head. Qwen3 and "
        "Gemma state that size in a field of its own.",
        look=looks_shared.the_bill,
        caught_by=guards_stores.the_bill_is_what_arrays_weigh,
    ),
    Exhibit(
        "bill_knows_no_window",
        "kvlib.costs.formulas",
        "visible",
        all_positions,
        room="memory",
        cite="mlxcel #172",
        happened="The calculator billed every layer for the full length. A layer with a window "
        "holds no more tokens than the window.",
        look=looks_shared.the_bill,
        caught_by=guards_stores.the_bill_is_what_arrays_weigh,
    ),
    Exhibit(
        "bill_forgets_the_rotated_key",
        BILL,
        "layer_groups",
        the_latent_alone,
        room="memory",
        cite="LMCache #694",
        happened="MLA stores a latent vector and, beside it, a key that carries the position. The "
        "calculator left out that key. It also counted the latent vector twice, which is not "
        "planted here.",
        look=looks_shared.the_bill,
        caught_by=guards_stores.the_bill_is_what_arrays_weigh,
    ),
)
