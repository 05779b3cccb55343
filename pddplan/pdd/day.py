"""The day of several deployments as periods of equal demand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pddplan.workload.demand import DemandProfile

FloatArray = NDArray[np.float64]

LEVELS = 24
"""Profiles of more distinct factors are rounded up to multiples of one over this."""
STEPS_MOST = 8640


@dataclass(frozen=True)
class Day:
    """Periods of equal demand. time_share: of each, shape (periods,), sums to 1. factors: deployment -> demand over the demand that
    the plan is sized for, at most 1, shape (periods,).
    """

    time_share: FloatArray
    factors: Mapping[str, FloatArray]

    @property
    def together(self) -> bool:
        """Whether all deployments rise and fall alike."""
        first, *others = self.factors.values()
        return all(np.array_equal(first, other) for other in others)


def day_of(profiles: Mapping[str, DemandProfile | None]) -> Day:
    """The day of deployments that each have a profile or none (a constant demand). Profiles of different step are laid over each
    other by their share of the day.
    """
    steps = min(math.lcm(*(p.factors.size for p in profiles.values() if p is not None)), STEPS_MOST)
    rows = []
    for profile in profiles.values():
        factors = np.ones(1) if profile is None else np.minimum(profile.factors / profile.sizing_factor, 1.0)
        laid = factors[np.arange(steps) * factors.size // steps]
        rows.append(laid if np.unique(laid).size <= LEVELS else np.ceil(laid * LEVELS - 1e-9) / LEVELS)
    periods, counts = np.unique(np.array(rows), axis=1, return_counts=True)
    return Day(counts / counts.sum(), dict(zip(profiles, periods, strict=True)))
