"""A line shared by transfers, each at most ``per_flow`` bytes/s, with a pool of connections in front.

With n transfers under way each runs at rate(n) = min(r, C / n). Poisson arrivals of any size law give the product form
pi(n) ~ prod_{i <= n} lambda E[x] / (i rate(i)) (Cohen 1979), insensitive to the sizes; the mean of a transfer of x bytes is exactly
x E[N] / (lambda E[x]), which is (x / r) [1 + ErlangC(c, c rho) / (c (1 - rho))] for integer c = C / r.

Law: the number of others changes while a transfer runs. With N the number it finds, a transfer of x bytes takes about
    E[T | x] + sqrt(theta) (x / rate(N + 1) - E[T | x]),  theta = (2 / z) (1 - (1 - e^-z) / z),  z = E[T | x] (1 - rho)^2 C / E[x],
theta the variance of a time average, exact for M/M/1 processor sharing (Coffman, Muntz and Trotter 1970). Simulated for rho 0.3 to 0.9,
c 1 to 30 and size CV 0.5 to 3: within 4 % at P50, P90 and P99 (x / rate(N + 1) alone: 12 %). Sizes all equal on a line without cap
move in lock-step: there P50 is up to a third low.

A pool of K connections is first-come-first-served: the state N >= K waits. Its wait is exponential as for exponential sizes, with the
mean scaled by (1 + c_x^2) / 2 (limited processor sharing, Avi-Itzhak and Halfin 1988). Where more than 2 % wait and the sizes' CV is
over 1.5 the wait's law comes from a seeded recursion on the actual sizes instead, and is labelled so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from pddplan.errors import InputError, Problem
from pddplan.queueing import arrivals
from pddplan.queueing.erlang import require_non_negative
from pddplan.queueing.grid import TimeGrid

FloatArray = NDArray[np.float64]
Method = Literal["product-form", "recursion", "unstable"]

NODES = 96  # distinct flow rates kept in the law of a transfer
POOL_SIZE_CV = 1.5
POOL_WAITING = 0.02
_WAIT_NODES = 512
_TAIL = 1e-12
_STATES_MOST = 2_000_000
_TAIL_GROUPS = 20_000


@dataclass(frozen=True)
class LineLaw:
    """What a transfer meets on the line.

    utilisation: lambda E[x] over what the line and its pool can carry, min(C, K r). active_mean: transfers under way.
    flow_bytes_per_s, probability: the rate of a transfer that finds a free connection in the state it finds, shape (nodes,).
    Those that wait for one (probability ``p_pool_wait``, mean ``pool_wait_given_s``) get ``waited_bytes_per_s``; pool_waits_s are
    their waits, equally likely, when the recursion found them, else empty (exponential). seconds_per_byte_mean: exact mean.
    relaxation_per_s: how fast the number of transfers forgets itself, (1 - rho)^2 C / E[x].
    """

    utilisation: float
    active_mean: float
    flow_bytes_per_s: FloatArray
    probability: FloatArray
    p_pool_wait: float
    pool_wait_given_s: float
    waited_bytes_per_s: float
    seconds_per_byte_mean: float
    relaxation_per_s: float = 0.0
    method: Method = "product-form"
    pool_waits_s: FloatArray = field(default_factory=lambda: np.empty(0))

    @property
    def stable(self) -> bool:
        return self.utilisation < 1.0

    @property
    def pool_wait_mean_s(self) -> float:
        return self.p_pool_wait * self.pool_wait_given_s if self.p_pool_wait > 0 else 0.0

    def mean_s(self, sizes_bytes: ArrayLike) -> FloatArray:
        """Mean transfer time of each size, pool wait excluded."""
        sizes = np.asarray(sizes_bytes, dtype=float)
        return np.where(sizes > 0, sizes * self.seconds_per_byte_mean, 0.0) if self.stable else np.where(sizes > 0, np.inf, 0.0)

    def seconds(self, sizes_bytes: FloatArray) -> FloatArray:
        """Transfer times of each size (over 0) in each state found, shape (rows, nodes)."""
        pace = 1.0 / self.flow_bytes_per_s
        mean = float(self.probability @ pace) / float(self.probability.sum())
        z = np.maximum(sizes_bytes[:, None] * mean * self.relaxation_per_s, 1e-6)
        theta = 2.0 / z * (1.0 + np.expm1(-z) / z)
        return np.asarray(sizes_bytes[:, None] * (mean + np.sqrt(theta) * (pace - mean)))

    def pool_wait_cdf(self, grid: TimeGrid) -> FloatArray:
        """Law of the wait for a connection."""
        return 1.0 - self.p_pool_wait * (1.0 - self._given_wait_cdf(grid))

    def _given_wait_cdf(self, grid: TimeGrid) -> FloatArray:
        if self.pool_waits_s.size:
            return grid.law(self.pool_waits_s)
        return grid.exponential(1.0, self.pool_wait_given_s)

    def time_cdf(
        self,
        sizes_bytes: ArrayLike,
        weights: ArrayLike,
        grid: TimeGrid,
        offset_s: ArrayLike = 0.0,
        *,
        pool_wait: bool = True,
    ) -> FloatArray:
        """Law of offset + pool wait + transfer, mixed over rows; all shape (rows,).

        Rows of 0 bytes use no connection.
        """
        sizes, weight, offset = (np.asarray(x, dtype=float) for x in np.broadcast_arrays(sizes_bytes, weights, offset_s))
        moving = sizes > 0
        still = _partial_law(grid, offset[~moving], weight[~moving])
        if not self.stable:
            return still
        sizes, weight, offset = sizes[moving], weight[moving], offset[moving]
        at_once = _partial_law(grid, offset[:, None] + self.seconds(sizes), weight[:, None] * self.probability)
        if self.p_pool_wait <= 0.0:
            return still + at_once
        waited = _partial_law(grid, offset + sizes / self.waited_bytes_per_s, weight * self.p_pool_wait)
        if pool_wait:
            waited = grid.convolve(waited, self._given_wait_cdf(grid))
        return np.minimum(still + at_once + waited, 1.0)


def _partial_law(grid: TimeGrid, values: FloatArray, weights: FloatArray) -> FloatArray:
    return grid.law(values, weights) if values.size else grid.never()


def stable_rate(mean_bytes: float, capacity: float, per_flow: float, connections: float = np.inf) -> float:
    """Largest stable arrival rate, requests/s: lambda E[x] < min(C, K r)."""
    return min(capacity, connections * per_flow) / mean_bytes if mean_bytes > 0 else np.inf


def line(
    rate: float,
    sizes_bytes: ArrayLike,
    weights: ArrayLike,
    capacity: float,
    per_flow: float = np.inf,
    connections: float = np.inf,
) -> LineLaw:
    """State of a line of ``capacity`` bytes/s that ``rate`` transfers/s of the weighted sizes share (sizes of 0 do
    not use it).

    An overloaded line (or starved pool) is an answer: utilisation >= 1, and times that never end.
    """
    sizes, weight = np.asarray(sizes_bytes, dtype=float), np.asarray(weights, dtype=float)
    require_non_negative(rate=rate, sizes_bytes=sizes, weights=weight, capacity=capacity, per_flow=per_flow, connections=connections)
    if per_flow == 0 or connections < 1:
        raise InputError(Problem("per_flow, connections", f"{per_flow} bytes/s, {connections}", "more than 0 and at least 1", "1e9, 256"))
    moving = sizes > 0
    share = float(weight[moving].sum() / weight.sum()) if weight.sum() > 0 else 0.0
    flows = rate * share
    r = min(per_flow, capacity)
    if flows == 0.0:
        return LineLaw(0.0, 0.0, np.array([r]), np.ones(1), 0.0, 0.0, r, 1.0 / r if r > 0 else np.inf)
    mean = float(weight[moving] @ sizes[moving]) / float(weight[moving].sum())
    scv = max(float(weight[moving] @ sizes[moving] ** 2) / float(weight[moving].sum()) / mean**2 - 1.0, 0.0)
    carried = min(capacity, connections * r)
    rho = flows * mean / carried if carried > 0 else np.inf
    if rho >= 1.0:
        return LineLaw(rho, np.inf, np.array([0.0]), np.ones(1), 1.0, np.inf, 0.0, np.inf, method="unstable")
    log_pi, n, step = _log_states(flows * mean, capacity, r, connections, rho)
    pi = np.exp(log_pi - log_pi.max())
    fall = rho**step
    last = pi[-1] / (1.0 - fall)  # geometric from the last state on
    total = pi[:-1].sum() + last
    pi, tail = pi / total, float(last / total)
    bounded = np.isfinite(connections)
    p_wait = tail if bounded else 0.0
    flow_rate = np.minimum(r, capacity / (n + 1.0))
    active = float(pi[:-1] @ n[:-1]) + tail * (float(n[-1]) if bounded else float(n[-1]) + step * fall / (1.0 - fall))
    found = pi[:-1] if bounded else np.append(pi[:-1], tail)
    seen = flow_rate[:-1] if bounded else flow_rate
    nodes, probability = _nodes(seen, found)
    wait_given = mean / (carried * (1.0 - rho)) * (1.0 + scv) / 2.0 if bounded else 0.0
    method: Method = "product-form"
    waits = np.empty(0)
    if p_wait > POOL_WAITING and scv > POOL_SIZE_CV**2:
        every = _recursion_waits(
            flows,
            sizes[moving],
            weight[moving],
            capacity,
            r,
            int(connections),
            arrivals.customers_needed(rho, 1.0 + scv),
        )
        waits = np.quantile(every[every > 0.0], (np.arange(_WAIT_NODES) + 0.5) / _WAIT_NODES)
        probability = probability * float(np.mean(every <= 0.0)) / probability.sum()
        p_wait, wait_given, method = float(np.mean(every > 0.0)), float(every[every > 0.0].mean()), "recursion"
    return LineLaw(
        utilisation=rho,
        active_mean=active,
        flow_bytes_per_s=nodes,
        probability=probability,
        p_pool_wait=p_wait,
        pool_wait_given_s=wait_given,
        waited_bytes_per_s=float(min(r, capacity / connections)) if bounded else r,
        seconds_per_byte_mean=active / (flows * mean),
        relaxation_per_s=(1.0 - rho) ** 2 * carried / mean,
        method=method,
        pool_waits_s=waits,
    )


def _recursion_waits(
    rate: float,
    sizes: FloatArray,
    weights: FloatArray,
    capacity: float,
    per_flow: float,
    connections: int,
    transfers: int,
) -> FloatArray:
    """Waits of successive transfers for a connection, after a warm-up of a tenth."""
    from pddplan.queueing import _recursion

    rng = np.random.default_rng(arrivals.SEED)
    n = np.arange(connections + 1)
    warm = transfers // 10
    total = transfers + warm
    drawn = sizes[arrivals.draw_rows(weights, total, rng)]
    gaps = arrivals.gaps_s(rate, 1.0, total, rng)
    waits, _ = _recursion.shared_times(gaps, drawn, np.minimum(per_flow, capacity / np.maximum(n, 1)))
    return np.asarray(waits[warm:])


def _log_states(offered: float, capacity: float, r: float, connections: float, rho: float) -> tuple[FloatArray, FloatArray, int]:
    """Unnormalised log pi(n) of states n = 0..K, or of so many that little is left; beyond the last they fall by ``rho`` each.

    A full line without a pool falls by ``rho`` from state C / r on: those states go in groups of the third value returned, each with its
    mass and its mean n, so that a line next to saturation is answered too.
    """
    bounded = np.isfinite(connections)
    full = int(min(capacity // r, _STATES_MOST + 1.0))
    most = connections if bounded else full
    if most > _STATES_MOST:
        raise InputError(Problem("connections", f"{most:g} transfers at once", f"at most {_STATES_MOST}", "1000"))
    slope, step = np.log(offered / capacity), 1
    if bounded:
        n = np.arange(int(connections) + 1, dtype=float)
    else:
        beyond = np.ceil(np.log(_TAIL) / np.log(rho)) + 1.0
        step = int(np.ceil(beyond / _TAIL_GROUPS))
        n = np.concatenate([np.arange(full + 1.0), full + 1.0 + step * np.arange(np.ceil(beyond / step))])
    capped = np.minimum(n, capacity // r)
    log_pi = capped * np.log(offered / r) - gammaln(capped + 1.0) + (n - capped) * slope
    if step > 1:
        log_pi[full + 1 :] += np.log(np.expm1(step * slope) / np.expm1(slope))
        n[full + 1 :] += 1.0 / np.expm1(-slope) - step / np.expm1(-step * slope)
    return log_pi, n, step


def _nodes(flow_rate: FloatArray, probability: FloatArray) -> tuple[FloatArray, FloatArray]:
    """At most NODES + 1 rates in place of all states: those at the cap are one.

    The others are pooled by equal probability of mean 1/rate.
    """
    free = flow_rate >= flow_rate[0] * (1.0 - 1e-12)
    shared, p = flow_rate[~free], probability[~free]
    rates, weights = [flow_rate[:1]], [np.array([probability[free].sum()])]
    if shared.size:
        # bins equal in the square root of the mass left, so that the tail keeps its detail
        left = np.sqrt(np.maximum(np.cumsum(p[::-1])[::-1] / max(p.sum(), 1e-300), 0.0))
        bins = np.minimum(((1.0 - left) * NODES).astype(int), NODES - 1)
        mass = np.bincount(bins, p, NODES)
        slow = np.bincount(bins, p / shared, NODES)
        kept = slow > 0
        rates.append(mass[kept] / slow[kept])
        weights.append(mass[kept])
    return np.concatenate(rates), np.concatenate(weights)
