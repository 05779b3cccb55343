"""The cheapest mix of reserved, on-demand and spot GPUs for a use that changes over the day."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pddplan.scenario.schema import TermPrices

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class TermMix:
    """GPUs held by term, on-demand and spot as means over time, and what they cost. per_hour is inf where the terms on offer do
    not reach as many GPUs as are used.
    """

    reserved: float
    on_demand: float
    spot: float
    per_hour: float

    @property
    def held(self) -> float:
        """GPUs paid for, as a mean over time."""
        return self.reserved + self.on_demand + self.spot


def cheapest_mix(prices: TermPrices, used: FloatArray, time_share: FloatArray) -> TermMix:
    """Least mean cost per hour of ``used`` GPUs, shape (periods,), in periods of ``time_share`` of the time, which sum to 1.

    Reserved GPUs are paid all the time, the others while in use; spot is at most ``spot_share_max`` of the GPUs in use. The cost is
    piecewise linear in the reservation, with bends where a period is covered by it, or by it and spot: one of those is the least.
    """
    return _cheapest(prices, used, np.floor(prices.spot_share_max * used + 1e-9), time_share, prices.reserved_max)


def price_per_gpu(prices: TermPrices, factors: FloatArray, time_share: FloatArray) -> float:
    """What a GPU of the full fleet costs per hour when GPUs follow ``factors`` (of 1) without rounding and any number can be
    reserved: no whole fleet is cheaper per GPU.
    """
    return _cheapest(prices, factors, prices.spot_share_max * factors, time_share, None).per_hour


def _cheapest(prices: TermPrices, used: FloatArray, spot_most: FloatArray, time_share: FloatArray, reserved_max: int | None) -> TermMix:
    offered, spot_price = prices.on_demand, prices.spot
    spot = np.zeros_like(used) if spot_price is None or (offered is not None and offered <= spot_price) else spot_most
    levels = np.zeros(1)
    if prices.reserved is not None:
        most = math.inf if reserved_max is None else float(reserved_max)
        levels = np.unique(np.minimum(np.concatenate((levels, used, used - spot)), most))
    rest = np.maximum(used - levels[:, None], 0.0)
    on_spot = np.minimum(rest, spot)
    on_demand = rest - on_spot
    cost = levels * (prices.reserved or 0.0) + (on_spot * (spot_price or 0.0) + on_demand * (offered or 0.0)) @ time_share
    if offered is None:
        cost[np.any(on_demand > 1e-9, axis=1)] = math.inf
    best = int(np.argmin(cost))
    return TermMix(float(levels[best]), float(on_demand[best] @ time_share), float(on_spot[best] @ time_share), float(cost[best]))
