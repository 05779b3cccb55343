"""RequestMix: the one table that everything downstream works on (weighted request atoms, never a mean in place of a distribution)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class RequestMix:
    """Weighted request atoms with their arrival process.

    input_tokens L, uncached_tokens u = L - cached at P, md_missing_tokens v = L - cached at MD, output_tokens O: shape (rows,), tokens.
    weight: shape (rows,), sums to 1. class_index: shape (rows,), into class_names. rate_per_s: requests/s (peak, which sizes the plan).
    arrival_scv: squared coefficient of variation of gaps. mean_rate_per_s: requests/s over the day (money is counted over it).
    turns_per_task: mean model calls per agent task of each class (1 for plain requests), shape (classes,).
    """

    input_tokens: FloatArray
    uncached_tokens: FloatArray
    md_missing_tokens: FloatArray
    output_tokens: FloatArray
    weight: FloatArray
    class_index: IntArray
    class_names: tuple[str, ...]
    rate_per_s: float
    arrival_scv: float = 1.0
    mean_rate_per_s: float | None = None
    turns_per_task: tuple[float, ...] = (1.0,)
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        return int(self.weight.size)

    def mean(self, values: FloatArray) -> float:
        """Weighted mean of ``values``, shape (rows,)."""
        return float(np.dot(self.weight, values))
