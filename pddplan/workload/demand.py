"""DemandProfile: how the rate moves over the day."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class DemandProfile:
    """Factors on the stated rate at equal steps of time, shape (steps,).

    sizing_quantile: quantile of time that the plan is sized for; 1 is the peak.
    """

    factors: FloatArray
    step_s: float
    sizing_quantile: float = 1.0

    def __post_init__(self) -> None:
        if self.factors.size == 0 or not np.all(np.isfinite(self.factors)) or self.factors.min() < 0:
            raise ValueError("a demand profile needs factors that are finite and not negative")
        if self.sizing_factor <= 0:
            raise ValueError(f"the demand is 0 for more than {self.sizing_quantile:.0%} of time, so no plan can be sized for it")

    @property
    def mean_factor(self) -> float:
        return float(self.factors.mean())

    @property
    def peak_factor(self) -> float:
        return float(self.factors.max())

    @property
    def sizing_factor(self) -> float:
        """Factor at the sizing quantile of time: the smallest that covers that share of the steps."""
        return float(np.quantile(self.factors, self.sizing_quantile, method="inverted_cdf"))

    @property
    def peak_to_mean(self) -> float:
        return self.peak_factor / self.mean_factor

    def share_of_time_over(self, factor: float) -> float:
        """Share of time with the rate over ``factor`` times the stated rate."""
        return float(np.mean(self.factors > factor))

    def mean_over(self, factor: float) -> float:
        """Mean over time of max(0, factor(t) - ``factor``): what on-demand capacity above a reserved base serves."""
        return float(np.maximum(self.factors - factor, 0.0).mean())

    def scaled(self, mean: float) -> DemandProfile:
        """The same shape with mean factor ``mean``."""
        return DemandProfile(self.factors * (mean / self.mean_factor), self.step_s, self.sizing_quantile)
