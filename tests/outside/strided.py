"""A retention rule: every n-th token stays, and the newest."""

from dataclasses import dataclass

import numpy as np

from kvlib.caches import Retention


@dataclass(frozen=True)
class Strided(Retention):
    """Keeps positions 0, n, 2n, ... and the `recent` newest, the query's own included."""

    n: int
    recent: int

    def kept(self, positions: np.ndarray, length: int) -> np.ndarray:
        return (positions % self.n == 0) | (positions > length - self.recent)
