"""Transfers of KV: over the line between rooms as a shared, capped resource; over RDMA inside a room; overlapped with prefill."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pddplan.pdd.laws import exponential_nodes
from pddplan.pdd.line import Line
from pddplan.pdd.plan import LinkPlan
from pddplan.queueing.processor_sharing import LineLaw, line

FloatArray = NDArray[np.float64]
Overlap = Literal["none", "layer", "chunk"]

SHARED_NODES = 9
SPREAD_NODES = 9
WAIT_NODES = 8


@dataclass(frozen=True)
class LineState:
    """What a transfer meets on a line: with ``probability`` it waits ``wait_s`` for a connection and finds a rate of ``bytes_per_s``.

    Arrays of shape (nodes,). utilisation: of what circuits and pool of connections carry together. relaxation_per_s: how fast the line
    forgets its state, so that long transfers see its mean (0: the rate found is kept), see queueing.processor_sharing.
    """

    utilisation: float
    bytes_per_s: FloatArray
    wait_s: FloatArray
    probability: FloatArray
    active_mean: float
    relaxation_per_s: float = 0.0

    @property
    def stable(self) -> bool:
        return self.utilisation < 1.0

    def wire_s(self, sizes_bytes: FloatArray) -> FloatArray:
        """Seconds on the wire of each size in each state found, shape (sizes, nodes)."""
        pace = 1.0 / self.bytes_per_s
        if self.relaxation_per_s <= 0.0:
            return np.asarray(sizes_bytes[:, None] * pace)
        free = self.wait_s <= 0.0
        mean = float(self.probability[free] @ pace[free]) / float(self.probability[free].sum())
        z = np.maximum(sizes_bytes * mean * self.relaxation_per_s, 1e-6)[:, None]
        theta = np.where(free, 2.0 / z * (1.0 + np.expm1(-z) / z), 1.0)
        return np.asarray(sizes_bytes[:, None] * (mean + np.sqrt(theta) * (pace - mean)))


def flow_cap_bytes_per_s(spec: Line, plan: LinkPlan) -> float:
    """Mean-time-preserving cap of one transfer: the harmonic mean of the log-normal caps, never over the line itself."""
    spread = math.exp(-0.5 * spec.flow_sigma**2)
    return min(spec.flow_bytes_per_s * spread, spec.rate_cap_bytes_per_s(plan))


def line_state(
    spec: Line, plan: LinkPlan, rate_per_s: float, sizes_bytes: FloatArray, weights: FloatArray, queueing: bool = True
) -> LineState:
    """State of the line under ``rate_per_s`` transfers/s of the weighted sizes. Without queueing every transfer runs at the cap."""
    capacity = spec.rate_cap_bytes_per_s(plan)
    if capacity <= 0.0:
        return LineState(math.inf, np.array([1.0]), np.zeros(1), np.ones(1), math.inf)
    cap = flow_cap_bytes_per_s(spec, plan)
    if not queueing:
        total = float(weights.sum())
        load = rate_per_s * float(weights @ sizes_bytes) / total if total > 0.0 else 0.0
        carried = min(capacity, spec.connections * cap)
        return LineState(load / carried, np.array([cap]), np.zeros(1), np.ones(1), load / cap)
    law = line(rate_per_s, sizes_bytes, weights, capacity, cap, spec.connections)
    if not law.stable:
        return LineState(law.utilisation, np.array([cap]), np.zeros(1), np.ones(1), math.inf)
    rates, waits, probability = _joint_nodes(law)
    if spec.flow_sigma > 0.0 and math.isfinite(spec.flow_bytes_per_s):
        caps = spec.flow_bytes_per_s * np.exp(spec.flow_sigma * _normal_nodes(SPREAD_NODES))
        ceiling = np.where(rates >= cap * (1.0 - 1e-9), capacity, rates)
        rates = np.minimum(ceiling[:, None], caps[None, :]).ravel()
        waits = np.repeat(waits, SPREAD_NODES)
        probability = np.repeat(probability, SPREAD_NODES) / SPREAD_NODES
        return LineState(law.utilisation, rates, waits, probability, law.active_mean)
    return LineState(law.utilisation, rates, waits, probability, law.active_mean, law.relaxation_per_s)


def _joint_nodes(law: LineLaw) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Rates, connection waits and probabilities: the rate cap, a few shared rates (pooled by mean time), and waiters in quantiles."""
    rates, weights = law.flow_bytes_per_s[:1], law.probability[:1]
    shared, p = law.flow_bytes_per_s[1:], law.probability[1:]
    if shared.size:
        left = np.sqrt(np.cumsum(p[::-1])[::-1] / max(float(p.sum()), 1e-300))
        bins = np.minimum(((1.0 - left) * SHARED_NODES).astype(int), SHARED_NODES - 1)
        mass = np.bincount(bins, p, SHARED_NODES)
        slow = np.bincount(bins, p / shared, SHARED_NODES)
        kept = mass > 1e-12
        rates, weights = np.concatenate([rates, mass[kept] / slow[kept]]), np.concatenate([weights, mass[kept]])
    waits = np.zeros(rates.size)
    if law.p_pool_wait > 0.0:
        found = law.pool_waits_s
        given = law.pool_wait_given_s * exponential_nodes(WAIT_NODES)
        if found.size:
            given = np.array([part.mean() for part in np.array_split(np.sort(found), WAIT_NODES)])
        rates = np.concatenate([rates, np.full(WAIT_NODES, law.waited_bytes_per_s)])
        waits = np.concatenate([waits, given])
        weights = np.concatenate([weights, np.full(WAIT_NODES, law.p_pool_wait / WAIT_NODES)])
    return rates, waits, weights / weights.sum()


@lru_cache(maxsize=8)
def _normal_nodes(points: int) -> FloatArray:
    """Equal-probability nodes of the standard normal law."""
    return np.asarray(ndtri((np.arange(points) + 0.5) / points))


def visible_transfer_s(
    transfer_s: FloatArray, prefill_s: FloatArray, uncached: FloatArray, overlap: Overlap, layers: int, chunk_tokens: float
) -> FloatArray:
    """What is left of a transfer when prefill ends, if it starts with the first finished layer or chunk.

    layer: KV of a layer can leave once that layer is computed; the last of ``layers`` leaves after prefill.
    chunk: all but the last chunk can leave during prefill. The transfer can never end before it has sent its last piece.
    """
    if overlap == "none":
        return transfer_s
    if overlap == "layer":
        last = np.full_like(transfer_s, 1.0 / layers)
    else:
        chunks = np.maximum(np.ceil(uncached / chunk_tokens), 1.0)
        last = 1.0 / chunks
    return np.maximum(transfer_s * last, transfer_s - prefill_s * (1.0 - last))
