"""Laws of lengths and hit rates as quantile functions on plain numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincinv, ndtr, ndtri

FloatArray = NDArray[np.float64]


class QuantileLaw(Protocol):
    """A one-dimensional law known by its quantile function."""

    def quantile(self, level: ArrayLike) -> FloatArray:
        """Smallest x with P(X <= x) >= level; ``level`` in (0, 1), any shape."""
        ...


@dataclass(frozen=True)
class Fixed:
    value: float

    def quantile(self, level: ArrayLike) -> FloatArray:
        return np.full(np.shape(level), self.value)


@dataclass(frozen=True)
class LogNormal:
    """ln X is normal(mu, sigma), conditioned on low <= X <= high (truncated, not clipped: no mass gathers at the ends).

    Raises ValueError when [low, high] holds no mass.
    """

    mu: float
    sigma: float
    low: float = 0.0
    high: float = math.inf

    def __post_init__(self) -> None:
        below, above = self._levels()
        if not above > below:
            raise ValueError(f"the log-normal (median {math.exp(self.mu):g}) has no mass between {self.low:g} and {self.high:g}")

    def _levels(self) -> tuple[float, float]:
        if self.sigma == 0:
            return (0.0, 1.0) if self.low <= math.exp(self.mu) <= self.high else (0.0, 0.0)
        below = float(ndtr((math.log(self.low) - self.mu) / self.sigma)) if self.low > 0 else 0.0
        above = float(ndtr((math.log(self.high) - self.mu) / self.sigma)) if math.isfinite(self.high) else 1.0
        return below, above

    def quantile(self, level: ArrayLike) -> FloatArray:
        below, above = self._levels()
        normal: FloatArray = ndtri(below + np.asarray(level, dtype=np.float64) * (above - below))
        return np.clip(np.exp(self.mu + self.sigma * normal) if self.sigma else np.exp(self.mu) + 0 * normal, self.low, self.high)


def lognormal_parameters(
    *,
    mu: float | None = None,
    sigma: float | None = None,
    mean: float | None = None,
    p50: float | None = None,
    p90: float | None = None,
    p99: float | None = None,
    cv: float | None = None,
) -> tuple[float, float]:
    """(mu, sigma) of the log-normal that two of its parameters determine: mean = exp(mu + sigma^2 / 2), p50 = exp(mu),
    cv^2 = exp(sigma^2) - 1, p90 = exp(mu + 1.2816 sigma). Raises ValueError when they do not determine one.
    """
    if sigma is None and cv is not None:
        sigma = math.sqrt(math.log1p(cv * cv))
    if mu is None and p50 is not None:
        mu = math.log(p50)
    if sigma is None and mu is not None:
        for value, level in ((p90, 0.90), (p99, 0.99)):
            if value is not None:
                sigma = (math.log(value) - mu) / float(ndtri(level))
        if mean is not None:
            sigma = math.sqrt(max(2 * (math.log(mean) - mu), 0.0))
    if mu is None and mean is not None and sigma is not None:
        mu = math.log(mean) - sigma * sigma / 2
    if mu is None or sigma is None or sigma < 0:
        raise ValueError("a log-normal needs two parameters that agree: mu and sigma, or two of mean, p50, p90, p99, cv")
    return mu, sigma


@dataclass(frozen=True)
class Quantiles:
    """Straight between given quantiles, flat outside them; levels rise in [0, 1], values do not fall."""

    levels: tuple[float, ...]
    values: tuple[float, ...]

    def quantile(self, level: ArrayLike) -> FloatArray:
        return np.interp(np.asarray(level, dtype=np.float64), self.levels, self.values)


@dataclass(frozen=True)
class Bucket:
    """Share of the mass between two edges; spread by beta(a, b) stretched over them (1, 1 is uniform)."""

    low: float
    high: float
    share: float
    a: float = 1.0
    b: float = 1.0


@dataclass(frozen=True)
class Histogram:
    """Buckets with a law inside each; shares are normalised to 1."""

    buckets: tuple[Bucket, ...]

    def quantile(self, level: ArrayLike) -> FloatArray:
        level = np.asarray(level, dtype=np.float64)
        buckets = sorted((b for b in self.buckets if b.share > 0), key=lambda b: b.low)
        ends = np.cumsum([b.share for b in buckets], dtype=np.float64)
        ends /= ends[-1]
        starts = np.concatenate(([0.0], ends[:-1]))
        index = np.minimum(np.searchsorted(ends, level, side="left"), len(buckets) - 1)
        result = np.empty_like(level)
        for i, bucket in enumerate(buckets):
            inside = index == i
            part = np.clip((level[inside] - starts[i]) / (ends[i] - starts[i]), 0.0, 1.0)
            shape = part if (bucket.a, bucket.b) == (1.0, 1.0) else betaincinv(bucket.a, bucket.b, part)
            result[inside] = bucket.low + (bucket.high - bucket.low) * shape
        return result


@dataclass(frozen=True)
class BetaMixture:
    """Mixture of beta laws on [0, 1]: parts are (weight, a, b), weights normalised to 1."""

    parts: tuple[tuple[float, float, float], ...]

    def quantile(self, level: ArrayLike) -> FloatArray:
        level = np.asarray(level, dtype=np.float64)
        total = sum(weight for weight, _, _ in self.parts)
        if len(self.parts) == 1:
            return np.asarray(betaincinv(self.parts[0][1], self.parts[0][2], level), dtype=np.float64)
        low, high = np.zeros_like(level), np.ones_like(level)
        for _ in range(60):  # bisection to 2^-60: the mixture's quantile has no closed form
            middle = (low + high) / 2
            below = sum(weight / total * betainc(a, b, middle) for weight, a, b in self.parts) < level
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.asarray((low + high) / 2)
