"""M/G/1: one server, Poisson arrivals, any service law.

Sources: Pollaczek-Khinchine (Kleinrock 1975, eq. 5.62 mean, 5.105 transform), second moment by Takacs 1962, heavy
tail by Pakes 1975. Valid for every service variability; an unstable queue (rho >= 1) has infinite moments and a law
that never ends.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pddplan.queueing.erlang import require_non_negative
from pddplan.queueing.grid import TimeGrid

FloatArray = NDArray[np.float64]

_ALIAS = 1e-9  # mass that the damped transform lets wrap around


def mean_wait_s(rate: ArrayLike, service_mean_s: ArrayLike, service_scv: ArrayLike) -> FloatArray:
    """E[W] = rho E[S] (1 + c_s^2) / (2 (1 - rho)); inf when rho >= 1. Shapes broadcast."""
    require_non_negative(rate=rate, service_mean_s=service_mean_s, service_scv=service_scv)
    lam, es, scv = (np.asarray(x, dtype=float) for x in (rate, service_mean_s, service_scv))
    rho = lam * es
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(rho < 1.0, rho * es * (1.0 + scv) / (2.0 * (1.0 - rho)), np.inf)


def second_moment_wait_s2(rate: ArrayLike, es: ArrayLike, es2: ArrayLike, es3: ArrayLike) -> FloatArray:
    """E[W^2] = 2 E[W]^2 + lambda E[S^3] / (3 (1 - rho)) from the service's first three moments.

    Inf when rho >= 1 (Takacs).
    """
    lam, m1, m2, m3 = (np.asarray(x, dtype=float) for x in (rate, es, es2, es3))
    rho = lam * m1
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = lam * m2 / (2.0 * (1.0 - rho))
        return np.where(rho < 1.0, 2.0 * mean**2 + lam * m3 / (3.0 * (1.0 - rho)), np.inf)


def batch_mean_wait_s(rate: float, es: float, es2: float, batch_mean: float, batch_second_moment: float) -> float:
    """Mean wait in M^[X]/G/1: ``rate`` customers/s that come in batches of the given moments (Burke 1975).

    E[W] = [lambda E[S^2] + E[S] (E[X^2]/E[X] - 1)] / (2 (1 - rho)).
    """
    rho = rate * es
    if rho >= 1.0:
        return float("inf")
    return (rate * es2 + es * (batch_second_moment / batch_mean - 1.0)) / (2.0 * (1.0 - rho))


def heavy_tail(rate: float, service_samples_s: FloatArray, service_weights: FloatArray, seconds: ArrayLike) -> FloatArray:
    """P(W > t) ~ rho/(1 - rho) P(S_e > t) for subexponential service and large t (Pakes); one server only."""
    mean = float(service_weights @ service_samples_s)
    rho = rate * mean
    if rho >= 1.0:
        return np.ones(np.shape(seconds))
    return np.minimum(rho / (1.0 - rho) * (1.0 - residual_cdf(service_samples_s, service_weights, seconds)), 1.0)


def residual_cdf(samples_s: FloatArray, weights: FloatArray, seconds: ArrayLike) -> FloatArray:
    """P(S_e <= t) = E[min(S, t)] / E[S], the remaining service found by a random arrival, exact for weighted atoms."""
    order = np.argsort(samples_s)
    x, w = samples_s[order], weights[order]
    below_sum, below_mass = np.concatenate([[0.0], np.cumsum(w * x)]), np.concatenate([[0.0], np.cumsum(w)])
    t = np.asarray(seconds, dtype=float)
    index = np.searchsorted(x, t, side="right")
    return np.asarray((below_sum[index] + t * (below_mass[-1] - below_mass[index])) / below_sum[-1])


def _residual_mean_below(samples_s: FloatArray, weights: FloatArray, seconds: FloatArray) -> FloatArray:
    """E[min(S_e, t)] = E[m S - m^2 / 2] / E[S] with m = min(S, t), exact for weighted atoms."""
    order = np.argsort(samples_s)
    x, w = samples_s[order], weights[order]
    moments = [np.concatenate([[0.0], np.cumsum(w * x**k)]) for k in range(3)]
    mass, first, second = (m[np.searchsorted(x, seconds, side="right")] for m in moments)
    above = seconds * (moments[1][-1] - first) - 0.5 * seconds**2 * (moments[0][-1] - mass)
    return np.asarray((0.5 * second + above) / moments[1][-1])


def waiting_cdf(rate: float, samples_s: FloatArray, weights: FloatArray, grid: TimeGrid) -> FloatArray:
    """Exact law of the wait, by the Pollaczek-Khinchine transform (1 - rho) / (1 - rho S_e*) on each rung of the grid.

    S_e is put on the rung's points so that its mean stays; the geometric series is inverted by a damped FFT (Abate and
    Whitt 1992), and half of the mass at a point counts as below it.
    """
    rho = rate * float(weights @ samples_s)
    if rho >= 1.0:
        return grid.never()
    if rho == 0.0:
        return grid.immediate()
    points = grid.intervals + 1
    step = grid.rung_seconds()[:, 1:2]
    below = _residual_mean_below(samples_s, weights, step * np.arange(points + 1))
    lattice_cdf = 1.0 - np.diff(below, axis=1) / step
    lattice = np.diff(lattice_cdf, axis=1, prepend=0.0)
    size = 4 * grid.intervals
    damping = _ALIAS ** (np.arange(points) / size)
    transform = np.fft.rfft(lattice * damping, size)
    series = np.fft.irfft((1.0 - rho) / (1.0 - rho * transform), size)[:, :points] / damping
    rungs = np.cumsum(series, axis=1) - 0.5 * series
    rungs[:, 0] = 1.0 - rho
    return grid.stitch(rungs)
