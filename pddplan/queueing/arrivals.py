"""Arrival streams: gaps of a given rate and squared coefficient of variation, and services drawn from a weighted mix.

Gaps are gamma (shape 1/scv), the family measured for LLM traffic (BurstGPT, Wang et al. 2024): scv 0 is a clock, 1
Poisson, above 1 bursts. All draws are seeded, so the same question has the same answer.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

SEED = 20260731
RELAXATIONS = 15_000
CUSTOMERS_LEAST = 300_000
CUSTOMERS_MOST = 3_000_000


def customers_needed(utilisation: float, variability: float) -> int:
    """Customers that span RELAXATIONS memories of the queue, (c_a^2 + c_s^2) / (1 - rho)^2 customers each; ``variability`` is the sum."""
    memory = variability / (1.0 - utilisation) ** 2
    return int(min(max(RELAXATIONS * memory, CUSTOMERS_LEAST), CUSTOMERS_MOST))


def gaps_s(rate: float, scv: float, customers: int, rng: np.random.Generator) -> FloatArray:
    """Inter-arrival times of ``customers`` customers, shape (customers,)."""
    if scv == 0.0:
        return np.full(customers, 1.0 / rate)
    return rng.gamma(1.0 / scv, scv / rate, customers)


def batch_gaps_s(rate: float, scv: float, customers: int, sizes: IntArray, weights: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Gaps when customers come in batches: ``rate`` counts customers, ``scv`` is of the gaps between batches."""
    mean = float(weights @ sizes)
    batches = int(np.ceil(customers / mean * 1.2)) + 10
    drawn = sizes[draw_rows(weights, batches, rng)]
    firsts = np.concatenate([[0], np.cumsum(drawn)])
    gaps = np.zeros(int(firsts[-1]))
    gaps[firsts[:-1]] = gaps_s(rate / mean, scv, batches, rng)
    return gaps[:customers]


def draw_rows(weights: FloatArray, customers: int, rng: np.random.Generator) -> IntArray:
    """Row of each customer, in random order, each row as often as its weight says (to one customer)."""
    edges = np.cumsum(weights)
    strata = (np.arange(customers) + rng.random(customers)) / customers * edges[-1]
    rows = np.minimum(np.searchsorted(edges, strata, side="right"), weights.size - 1)
    rng.shuffle(rows)
    return np.asarray(rows)
