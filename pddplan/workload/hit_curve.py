"""HitCurve: the hit rate of a prefix cache over its capacity."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class HitCurve:
    """Token-weighted hit rate of an LRU prefix cache over its capacity in tokens.

    capacity_tokens, rates: shape (points,), both rising from 0. idle_s: for session traces the idle time after which a
    cache of that capacity has lost a block, shape (points,).
    """

    capacity_tokens: FloatArray
    rates: FloatArray
    idle_s: FloatArray | None = None

    def hit_rate(self, capacity_tokens: ArrayLike) -> FloatArray:
        """Hit rate at any capacity, straight between points, flat beyond the last."""
        return np.asarray(np.interp(np.asarray(capacity_tokens), self.capacity_tokens, self.rates))

    @property
    def highest(self) -> float:
        """Hit rate of an unlimited cache."""
        return float(self.rates[-1])

    def capacity_for(self, hit_rate: float) -> float:
        """Least capacity in tokens that reaches ``hit_rate``; inf when none does."""
        if hit_rate > self.rates[-1]:
            return math.inf
        i = int(np.searchsorted(self.rates, hit_rate, side="left"))
        if i == 0:
            return float(self.capacity_tokens[0])
        low, high = self.rates[i - 1], self.rates[i]
        step = self.capacity_tokens[i] - self.capacity_tokens[i - 1]
        return float(self.capacity_tokens[i - 1] + step * (hit_rate - low) / (high - low))

    def at_rate(self, factor: float) -> HitCurve:
        """Curve of ``factor`` times as many sessions: the same hits need so many times the capacity."""
        return HitCurve(self.capacity_tokens * factor, self.rates, self.idle_s)

    def idle_at(self, capacity_tokens: float) -> float:
        """Idle time in s that a cache of this capacity bears; inf beyond the last point. Session traces only."""
        if self.idle_s is None:
            raise ValueError("this curve is of a trace with a clock: it has no idle times")
        if capacity_tokens >= self.capacity_tokens[-1]:
            return math.inf
        return float(np.interp(capacity_tokens, self.capacity_tokens, self.idle_s))
