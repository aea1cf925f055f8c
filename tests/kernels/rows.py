"""What a row of the table of kernels holds (table.py), for the tests of test_kernels.py."""

import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from engines import HOSTS, back, given

Case = dict[str, Any]  # sizes and settings; in a product, a list is a choice


@dataclass(frozen=True)
class Row:
    """The kernels of one public function.

    case     sizes → (the function's inputs by name, in order; what the oracle has to know)
    call     (*inputs, run_on, **settings) → results
    compare  (inputs, reference, results, run_on, **settings); AssertionError where they differ
    units    CUDA unit → a small case that launches it, for every compiler and order of threads
    cases    products of sizes and settings, and of engines ("run_on"): HOSTS by default
    traffic  (case, what each launch on the processor does: bytes "read" and "written" by the number
             of the array, the "grid", and the least "efficiency")
    refused  (case, [(changes by name of input or setting, error, words)])
    hosts    engines without a GPU that it runs on   device: whether it also runs on a GPU
    """

    case: Callable[..., tuple[dict[str, Any], Any]]
    call: Callable[..., Any]
    compare: Callable[..., None]
    units: dict[str, Case]
    cases: Sequence[Case]
    traffic: Sequence[tuple[Case, list[dict[str, Any]]]] = ()
    refused: Sequence[tuple[Case, Sequence[tuple[dict[str, Any], type[Exception], str]]]] = ()
    hosts: Sequence[str] = HOSTS
    device: bool = True

    def parts(self, case: Case) -> tuple[Case, Case]:
        """Sizes and settings: what `call` has a name for is a setting."""
        names = inspect.signature(self.call).parameters
        settings = {name: x for name, x in case.items() if name in names}
        return {name: x for name, x in case.items() if name not in names}, settings

    def run(self, case: Case, run_on: str) -> Any:
        """The results of a case, as NumPy arrays."""
        sizes, settings = self.parts(case)
        inputs, _ = self.case(**sizes)
        handed = [given(run_on, x) for x in inputs.values()]
        return back(self.call(*handed, **{**settings, "run_on": run_on}))

    def check(self, case: Case, run_on: str) -> None:
        """Compare the results of a case with the oracle."""
        sizes, settings = self.parts(case)
        inputs, reference = self.case(**sizes)
        results = self.run(case, run_on)
        self.compare(inputs, reference, results, **{**settings, "run_on": run_on})

    def products(self, run_on: Sequence[str] | None = None) -> Iterator[list[Case]]:
        """The cases of each product."""
        for product in self.cases:
            product = {"run_on": list(self.hosts), **product}
            if run_on is not None:
                product["run_on"] = list(run_on)
            choices = [x if isinstance(x, list) else [x] for x in product.values()]
            yield [dict(zip(product, c, strict=True)) for c in itertools.product(*choices)]
