"""Laws of request latencies: atoms (a request row in one state of the system) with a deterministic delay and an independent wait.

P(T <= t) = sum_i w_i F_W(t - d_i). Percentiles are read off the whole; stage percentiles are never added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pddplan.pdd.plan import Law
from pddplan.queueing.grid import TimeGrid

FloatArray = NDArray[np.float64]

GRID = TimeGrid()
"""Every latency law lives on this grid: 2 us to 4.6 h, cells of at most 0.4 % of the time."""

NO_WAIT = GRID.immediate()
NEVER = GRID.never()


@dataclass(frozen=True)
class Part:
    """Atoms that share one wait: ``delay_s`` and ``weight`` of shape (atoms,); ``wait_cdf`` on GRID."""

    delay_s: FloatArray
    weight: FloatArray
    wait_cdf: FloatArray

    @property
    def mass(self) -> float:
        return float(self.weight.sum())

    def cdf(self) -> FloatArray:
        """P(T <= t) x mass on GRID."""
        delays = GRID.law(self.delay_s, self.weight)
        return delays if self.wait_cdf is NO_WAIT else scaled_convolution(delays, self.wait_cdf)


def scaled_convolution(measure: FloatArray, wait_cdf: FloatArray) -> FloatArray:
    """Convolution of a law with one that may have total mass below 1."""
    total = float(measure[-1])
    return GRID.convolve(measure / total, wait_cdf) * total if total > 0.0 else measure


def law_of(cdf: FloatArray) -> Law:
    """The cdf as a Law, without the grid's points at which nothing happens; never falling, as sums of laws may by a rounding step."""
    cdf = np.maximum.accumulate(cdf)
    inside = (cdf > 0.0) & (cdf < cdf[-1])
    keep = inside.copy()
    keep[:-1] |= inside[1:] | (np.diff(cdf) > 0.0)
    keep[1:] |= np.diff(cdf) > 0.0
    if not keep.any():
        keep[0] = True
    return Law(GRID.seconds[keep], cdf[keep])


def repeated(cdf: FloatArray, times: int) -> FloatArray:
    """Law of the sum of ``times`` independent copies, by repeated doubling. Raises ValueError for times below 1."""
    if times < 1:
        raise ValueError(f"times is {times}; at least 1 is needed")
    result: FloatArray | None = None
    power = cdf
    while True:
        if times & 1:
            result = power if result is None else GRID.convolve(result, power)
        times >>= 1
        if not times:
            break
        power = GRID.convolve(power, power)
    assert result is not None
    return result


def cells(weight: FloatArray, columns: Sequence[FloatArray], most: int) -> tuple[FloatArray, tuple[FloatArray, ...]]:
    """At most about ``most`` atoms in place of many: neighbours in the ranks of all columns are merged, total weight and means kept.

    ``columns`` are finite, shape (atoms,). The last tenth of each column's mass is cut as finely as the rest together.
    """
    if weight.size <= most:
        return weight, tuple(columns)
    varied = [column for column in columns if column.max() > column.min()]
    per_column = max(int(most ** (1.0 / max(len(varied), 1))), 2)
    key = np.zeros(weight.size, dtype=np.int64)
    for column in varied:
        order = np.argsort(column, kind="stable")
        rank = np.empty(weight.size)
        rank[order] = np.cumsum(weight[order]) - 0.5 * weight[order]
        share = rank / weight.sum()
        warped = np.where(share < 0.9, share / 1.8, 0.5 + (share - 0.9) * 5.0)
        key = key * per_column + np.minimum((warped * per_column).astype(np.int64), per_column - 1)
    used = np.bincount(key) > 0
    mass = np.asarray(np.bincount(key, weight)[used], dtype=np.float64)
    safe = np.where(mass > 0.0, mass, 1.0)
    return mass, tuple(np.bincount(key, weight * column)[used] / safe for column in columns)


@lru_cache(maxsize=8)
def exponential_nodes(points: int) -> FloatArray:
    """Means of the ``points`` equal-probability slices of the exponential law of mean 1."""
    edges = np.arange(points) / points
    upper = np.append(edges[1:], 1.0)

    def partial(q: FloatArray) -> FloatArray:
        left = 1.0 - q
        return q + np.where(left > 0.0, left * np.log(np.where(left > 0.0, left, 1.0)), 0.0)

    return np.asarray((partial(upper) - partial(edges)) * points)
