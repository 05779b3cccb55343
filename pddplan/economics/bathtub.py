"""The hit-rate bathtub in closed form: the mechanistic one (work saved against discount) and the published empirical one.

Mechanistic, for an input of L tokens, output O, prices p, d p (cached), p_out, hit rate h:
    V(h) = L p [(1 - h) + d h] + O p_out
    T(h) = a (1 - h) L + q L^2 (1 - h^2) / 2 + b + s (ceil(u / c) - u / c),   u = (1 - h) L
with a s per token, q s per token pair, b s for decode and all that hits do not save, and s s of overhead per serial chunk of c
(at least one chunk: the last token is always computed).
Empirical: R(x) = TPS_miss(x) [p_miss + p_hit x / (1 - x)], TPS_miss(x) = TPS(0) (1 - k x): throughput of uncached tokens falls
linearly. It is a law of one service's measurements (-20 % from x = 0.4 to 0.7), more than attention alone can give.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pddplan.economics.benefit_curve import TAIL, BenefitCurve, Valley
from pddplan.economics.tokens import MILLION, TokenPrices
from pddplan.errors import InputError, Problem

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Mechanistic:
    """Closed form of section's first kind. Times in GPU-seconds per request; ``price_per_gpu_h`` of the chips.

    chunk_tokens, chunk_overhead_s: serial chunks of c tokens with s seconds of overhead each; None: tails are packed.
    """

    input_tokens: float
    output_tokens: float
    prices: TokenPrices
    linear_s_per_token: float
    attention_s_per_pair: float
    fixed_s: float
    price_per_gpu_h: float = 1.0
    chunk_tokens: float | None = None
    chunk_overhead_s: float = 0.0

    def revenue(self, hit_rate: ArrayLike) -> FloatArray:
        """V(h), per request."""
        h = np.asarray(hit_rate, dtype=np.float64)
        per_input = (1 - h) * self.prices.miss + h * self.prices.hit
        return (self.input_tokens * per_input + self.output_tokens * self.prices.output) / MILLION

    def curve(self, hit_rate: ArrayLike) -> BenefitCurve:
        """The form on a grid of hit rates, shape (points,)."""
        h = np.asarray(hit_rate, dtype=np.float64)
        L = self.input_tokens
        uncached = (1 - h) * L
        seconds = {
            "prefill work": self.linear_s_per_token * uncached,
            "attention": self.attention_s_per_pair * L**2 * (1 - h**2) / 2,
            "decode": np.full_like(h, self.fixed_s),
        }
        if self.chunk_tokens is not None:
            part = np.round(uncached / self.chunk_tokens, 9)
            seconds["prefill work"] = seconds["prefill work"] + self.chunk_overhead_s * part
            seconds[TAIL] = self.chunk_overhead_s * (np.maximum(np.ceil(part), 1.0) - part)
        gpu_s: FloatArray = np.sum(list(seconds.values()), axis=0)
        price_per_s = self.price_per_gpu_h / 3600.0
        ttft: FloatArray = gpu_s - self.fixed_s
        return BenefitCurve(h, self.revenue(h), {name: value * price_per_s for name, value in seconds.items()}, gpu_s, ttft)

    def benefit(self, hit_rate: ArrayLike) -> FloatArray:
        """V(h) / (T(h) x price)."""
        return self.curve(hit_rate).benefit

    def _coefficients(self) -> tuple[float, float, float, float, float]:
        """(v0, v1, t0, t1, t2) of V = v0 - v1 h and T = t0 - t1 h - t2 h^2, tails packed."""
        L = self.input_tokens
        v0 = (L * self.prices.miss + self.output_tokens * self.prices.output) / MILLION
        v1 = L * (self.prices.miss - self.prices.hit) / MILLION
        work = self.linear_s_per_token * L
        if self.chunk_tokens is not None:
            work += self.chunk_overhead_s * L / self.chunk_tokens
        t2 = self.attention_s_per_pair * L**2 / 2
        return v0, v1, work + t2 + self.fixed_s, work, t2

    def valley(self) -> Valley | None:
        """Bottom, edges and depth with tails packed; None where the benefit has no interior minimum.

        Bottom: V' T = V T' is quadratic in h, v1 t2 h^2 - 2 v0 t2 h + (v1 t0 - v0 t1) = 0, lower root. Right edge: V(h) / T(h) =
        V(0) / T(0) at h = (v1 t0 - v0 t1) / (v0 t2).
        """
        v0, v1, t0, t1, t2 = self._coefficients()
        slope = v1 * t0 - v0 * t1
        if v1 <= 0 or t2 <= 0 or slope <= 0:
            return None
        inside = v0**2 - v1 * slope / t2
        if inside < 0:
            return None
        bottom = (v0 - sqrt(inside)) / v1
        if not 0 < bottom < 1:
            return None
        edge = slope / (v0 * t2)
        depth = (v0 - v1 * bottom) / (t0 - t1 * bottom - t2 * bottom**2) * t0 / v0
        return Valley(bottom, 0.0, edge if edge <= 1 else None, depth)


def losing_price_ratio(curve: BenefitCurve, hit_rate: float, prices: TokenPrices, input_tokens: float, output_tokens: float) -> float:
    """Cached over uncached price below which a rise of the hit rate at ``hit_rate`` loses benefit.

    d V / dh / V = d T / dh / T solved for d, with tau = -T'(h) / T(h) from the curve and w = O p_out / (L p):
    d = (1 - tau (1 - h + w)) / (1 + tau h). 0 or less: a rise never loses at any price.
    """
    h, cost = curve.hit_rate, curve.cost
    slope = np.gradient(cost, h)
    tau = -float(np.interp(hit_rate, h, slope)) / float(np.interp(hit_rate, h, cost))
    w = output_tokens * prices.output / (input_tokens * prices.miss)
    return (1 - tau * (1 - hit_rate + w)) / (1 + tau * hit_rate)


@dataclass(frozen=True)
class Empirical:
    """R(x) / (TPS(0) p_miss) for cached-price ratio ``price_ratio`` and a relative fall ``fall`` of uncached throughput at x = 1."""

    price_ratio: float
    fall: float

    @classmethod
    def from_drop(cls, price_ratio: float, drop: float = 0.20, from_hit: float = 0.4, to_hit: float = 0.7) -> Empirical:
        """The line on which throughput drops by ``drop`` from one hit rate to another: k = drop / (to - (1 - drop) from)."""
        if not (0 < drop < 1 and 0 <= from_hit < to_hit <= 1 and price_ratio >= 0):
            found = f"drop {drop} from {from_hit} to {to_hit} at price ratio {price_ratio}"
            accepted = "0 < drop < 1, 0 <= from < to <= 1 and a price ratio of at least 0"
            raise InputError(Problem("bathtub", found, accepted, "0.2 from 0.4 to 0.7"))
        return cls(price_ratio, drop / (to_hit - (1 - drop) * from_hit))

    def revenue(self, hit_rate: ArrayLike) -> FloatArray:
        """R(x) over R(0), shape of ``hit_rate``; x under 1."""
        x = np.asarray(hit_rate, dtype=np.float64)
        return (1 - self.fall * x) * (1 + self.price_ratio * x / (1 - x))

    def valley(self) -> Valley | None:
        """With y = 1 - x, R = A / y + B y + C, A = (1 - k) d, B = k (1 - d): bottom at y^2 = A / B, recovery at y = A / B.

        None where the bottom lies outside (0, 1): the discount is too small to lose money.
        """
        A, B = (1 - self.fall) * self.price_ratio, self.fall * (1 - self.price_ratio)
        if B <= 0 or not 0 < A / B < 1:
            return None
        bottom = 1 - sqrt(A / B)
        return Valley(bottom, 0.0, 1 - A / B, float(self.revenue(bottom)))
