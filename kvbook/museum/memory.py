"""What is stored, in which slot, and how many bytes it takes."""

from copy import copy
from dataclasses import replace
from typing import Any

from kvbook.museum import guards, guards_stores, looks
from kvbook.museum.exhibit import Exhibit, collector
from kvbook.museum.mutation import Call
from kvlib.arrays import Array
from kvlib.caches import Cache, Step
from kvlib.caches.allocation.rows import Rows
from kvlib.caches.allocation.table import State
from kvlib.config.shape import Shape
from kvlib.costs.spec import LayerGroup
from kvlib.model.decoder import Embedding

STORED, BILL = "kvlib.caches.stored", "kvlib.costs.spec"

EXHIBITS: list[Exhibit] = []
shipped = collector("memory", EXHIBITS)


@shipped(
    STORED,
    "StoredCache.append",
    cite="sleepyeldrazi/llm_programming_tests, minimax-m2.7/kv",
    caught_by=guards.read_gives_back_what_append_took,
    look=looks.one_request,
)
def prompt_never_stored(
    append: Call, cache: Cache, layer: int, k: Array, v: Array, step: Step
) -> None:
    """Reading the prompt computed its keys and used them, but only the decode loop wrote to the
    cache."""
    if step.num_tokens < 3:
        append(cache, layer, k, v, step)
    step.ticket.appended.add(layer)  # so that `run` does not ask where the keys are


@shipped(
    "kvlib.caches.allocation.rows",
    "Rows.open",
    cite="sleepyeldrazi/llm_programming_tests, minimax-m2.7/kv",
    caught_by=guards.a_row_alone_is_the_row_in_a_batch,
    look=looks.beside_a_longer_one,
)
def one_row_for_all(open_: Call, rows: Rows, *request: Any) -> State:
    """All rows of a batch shared one cache, so each request overwrote the keys of the others."""
    state: State = open_(rows, *request)
    rows._free.append(state.row)  # the next request is given this row, too
    return state


@shipped(
    STORED,
    "StoredCache.attend",
    cite="transformers #30400",
    caught_by=guards.unused_memory_is_never_read,
    look=looks.in_a_used_row,
    lines=("(cache.max_seq_len,)", "table, n = placement.tables[i], placement.stored_lens[i]"),
)
def unused_slot_attended_to(
    attend: Call, cache: Cache, layer: int, q: Array, step: Step, *lse: bool
) -> Any:
    """A static cache didn't mask slots that no token had filled yet; a key of zeros has score 0,
    not weight 0."""
    if step.num_tokens == 1:
        step = copy(step)
        step.seq_lens = (cache.max_seq_len,)  # type: ignore[attr-defined]
    return attend(cache, layer, q, step, *lse)


@shipped(
    "kvlib.caches.protocol",
    "Cache.truncate",
    cite="aprender #2014",
    caught_by=guards.truncate_removes_no_more_than_it_is_told,
)
def rollback_resets(truncate: Call, cache: Cache, seq_id: str, length: int) -> None:
    """Instead of removing refused guesses, the cache was emptied."""
    truncate(cache, seq_id, 0)


@shipped(
    "kvlib.attention.pieces",
    "PagedTensor.__init__",
    cite="likejazz/llama3.np, gitctrlx/llama.np",
    caught_by=guards.every_array_is_float32,
)
def float64_in_the_cache(init: Call, fields: Any, xp: Any, *shape: Any) -> None:
    """np.zeros made the cache float64, which takes twice the bytes."""
    *shape_, _dtype = shape
    init(fields, xp, *shape_, xp.float64)


@shipped(
    "kvlib.model.decoder",
    "Embedding.logits",
    cite="likejazz/llama3.np",
    caught_by=guards.every_array_is_float32,
)
def float64_in_the_products(logits: Call, embedding: Embedding, x: Array) -> Any:
    """A table of rotations in float64 turned everything computed from it into float64."""
    return logits(embedding, x * embedding.xp.float64(1))


@shipped(
    BILL,
    "layer_groups",
    cite="vllm-fit #2, KolosalAI/model-memory-calculator #2",
    caught_by=guards_stores.the_bill_is_what_arrays_weigh,
)
def bill_counts_query_heads(layer_groups: Call, shape: Shape) -> list[LayerGroup]:
    """A calculator of cache bytes counted query heads instead of kv heads."""
    groups = layer_groups(shape)
    return [g if g.latent else replace(g, num_kv_heads=g.num_qo_heads) for g in groups]


@shipped(
    BILL,
    "layer_groups",
    cite="LMCache #688",
    caught_by=guards_stores.the_bill_is_what_arrays_weigh,
)
def bill_divides_the_width(layer_groups: Call, shape: Shape) -> list[LayerGroup]:
    """A calculator divided the hidden size by the heads, although the config states head_dim."""
    width = shape.hidden_size // shape.num_attention_heads
    return [g if g.latent else replace(g, head_dim=width) for g in layer_groups(shape)]


@shipped(
    BILL,
    "layer_groups",
    cite="LMCache #694",
    caught_by=guards_stores.the_bill_is_what_arrays_weigh,
)
def bill_forgets_the_rotated_key(layer_groups: Call, shape: Shape) -> list[LayerGroup]:
    """A calculator left out the rotated key that MLA stores beside its latent vector."""
    return [replace(g, head_dim=g.v_dim) if g.latent else g for g in layer_groups(shape)]


@shipped(
    "kvlib.costs.formulas",
    "visible",
    cite="mlxcel #172",
    caught_by=guards_stores.the_bill_is_what_arrays_weigh,
)
def bill_knows_no_window(visible: Call, position: float, window: float) -> float:
    """A calculator counted the whole text in layers that have a window."""
    return position
