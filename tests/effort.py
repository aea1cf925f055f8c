"""How much of a long test runs. The environment variable KVLIB_TESTS chooses:

    usual   what `make test` runs (unless the variable says otherwise)
    whole   all of it: the weekly workflow, or KVLIB_TESTS=whole make unit
    quick   every test, each with as little as still makes sense: `make portable`

A test that draws lives, seeds or examples asks for a share of them with `share`; one that is a
product of parameters is marked `pairwise`; one with a long list of cases `every(n)`. All are
recorded for the page at the end of `make test`.
"""

import os
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations
from typing import Any, TypeVar

LEVELS = ("quick", "usual", "whole")
LEVEL = os.environ.get("KVLIB_TESTS") or "usual"
if LEVEL not in LEVELS:
    raise ValueError(f"KVLIB_TESTS must be one of {', '.join(LEVELS)}; got {LEVEL!r}")

# Files whose tests start programs, compile, or draw for seconds: `make check` leaves them out.
SLOW = {
    *("test_grade", "test_course", "test_hidden_draws", "test_any_answer"),
    *("test_explorer", "test_explorers_live", "test_explorer_notebook", "test_notebooks_on_device"),
    *("test_lite", "test_normalise_notebooks", "test_packages", "test_commands", "test_summary"),
    *("test_effort", "test_mutation_run", "test_rounding_edges", "test_scenes", "test_release"),
    *("test_warm_kernels", "test_mutants", "test_speculation", "test_guess_trees"),
    *("test_quality", "test_cache_threads", "test_kernel_catalogue", "test_kernel_sample"),
    *("test_kernel_layernorm", "test_kernel_folder", "test_hostile_mutations"),
    *("test_run_gpu", "test_kernel_compilers"),
}

# Every line these files run is traced in another file, and tracing takes a third longer.
TRACED_ELSEWHERE = {
    *("test_quality", "test_mutants", "test_sixteen_bits", "test_golden", "test_hidden_draws"),
    *("test_chunked_prefill", "test_scenes", "test_device"),
    *("test_kernel_cache", "test_hostile_mutations", "test_policy_golden"),
    *("test_parts_in_pairs", "test_speculation_lossless", "test_quantized_cache", "test_pieces"),
    *("test_eviction_table", "test_retention_lives", "test_costs_live", "test_paged_batched"),
    *("test_explorers_live", "test_draft_weights", "test_dense_batched", "test_editing_ropes"),
    *("test_any_answer", "test_strict", "test_batching", "test_paged_cache"),
    *("test_arguments_integers", "test_arguments_lists", "test_attention"),
    *("test_cross_lives", "test_hostile_keys"),
    *("test_costs_formulas", "test_prefix_sharing", "test_stored_pieces"),
    # these read files, and run hardly a line of kvlib
    *("test_lite", "test_prose", "test_text_files", "test_imports", "test_glossary"),
}

# Short files in which each case has a different error path: all of it is traced.
TRACED_WHOLLY = {
    *("test_figures", "test_frames", "test_exercises", "test_other_forms", "test_right_answers"),
    *("test_causes", "test_gpu", "test_layouts", "test_config", "test_safetensors"),
}

# Seconds for which the cases of one test function are traced; those that follow rarely run a line
# that the first did not (conftest.py).
ENOUGH_TRACED = 0.02

T = TypeVar("T")


@contextmanager
def untraced() -> Iterator[bool]:
    """Coverage traces nothing in here. Gives False where it does not trace; a debugger may stay."""
    here, later = sys.gettrace(), threading.gettrace()
    if not type(here).__module__.startswith("coverage"):
        yield False
        return
    sys.settrace(None)
    threading.settrace(None)
    try:
        yield True
    finally:
        sys.settrace(here)
        threading.settrace(later)


def number(*, quick: int, usual: int, whole: int) -> int:
    """So many examples, seeds or draws at the level that is asked for."""
    assert 0 < quick <= usual <= whole
    return {"quick": quick, "usual": usual, "whole": whole}[LEVEL]


class Effort:
    """Gives a test its share of seeds or cases, and records how many of how many (conftest.py)."""

    def __init__(self, record: Any) -> None:
        self._record = record

    def share(self, what: str, things: Sequence[T], *, usual: int, quick: int = 1) -> Sequence[T]:
        """The first `usual` of the things, all of them at the level `whole`."""
        n = number(quick=min(quick, len(things)), usual=usual, whole=len(things))
        self.ran(what, n, len(things))
        return things[:n]

    def ran(self, what: str, count: int, of: int) -> None:
        """Note that `count` of `of` ran; the summary adds up what has the same name."""
        self._record("sampled", f"{what}: {count} of {of}")


def every(places: Sequence[int], n: int, start: int = 0) -> list[int]:
    """Indices of one case in n, from `start` on; of the first case where none remains.

    places: for each case, the sum of the indices of its parameters in their lists, so that of two
    lists, each value of either meets one value in n of the other.
    """
    return [i for i, place in enumerate(places) if place % n == start] or [0]


def pairwise(cases: Iterable[dict[str, Any]]) -> list[int]:
    """Indices of cases that cover every pair of values that any two parameters take together.

    cases: for each, parameter → value. Greedy: always the case with the most new pairs.
    """
    named = [sorted((name, repr(value)) for name, value in case.items()) for case in cases]
    left = {i: set(combinations(pairs, 2)) for i, pairs in enumerate(named)}
    wanted, taken = set().union(*left.values()) if left else set(), []
    while wanted:
        best = max(left, key=lambda i: (len(left[i] & wanted), -i))
        taken.append(best)
        wanted -= left.pop(best)
    return sorted(taken)
