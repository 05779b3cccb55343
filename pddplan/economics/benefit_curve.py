"""Benefit over the prefix-hit rate: its class, the term that makes it so, its valley and its singular points.

benefit(h) = V(h) / cost(h): revenue of a request over the chip time it needs. A ratio of two straight lines is monotonic, so only
what bends the cost (or the revenue) over h can make a valley; each part of the cost is kept apart to name the one that does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pddplan.errors import InputError, Problem

FloatArray = NDArray[np.float64]
Shape = Literal["rising", "falling", "valley", "sawtooth"]
TAIL = "tail chunk"
NOTICEABLE_DIP = 0.05  # walls under 5 % are no valley: prices and chip times are not known better than that
NOTICEABLE_TOOTH = 0.01
SMALLEST_DIP = 0.001


@dataclass(frozen=True)
class BenefitCurve:
    """A deployment over the hit rate; every array has shape (points,), ``hit_rate`` rising from 0 to 1 (or just under).

    revenue: per request. terms: cost per request by what causes it. gpu_s: GPU-seconds per request, P and D together at a free
    P:D ratio. ttft_s: of a request alone.
    """

    hit_rate: FloatArray
    revenue: FloatArray
    terms: Mapping[str, FloatArray]
    gpu_s: FloatArray
    ttft_s: FloatArray

    @property
    def cost(self) -> FloatArray:
        """Cost of the chip time of one request."""
        total: FloatArray = np.sum(list(self.terms.values()), axis=0)
        return total

    @property
    def benefit(self) -> FloatArray:
        """Revenue per unit of cost."""
        return self.revenue / self.cost

    @property
    def throughput_rps_per_gpu(self) -> FloatArray:
        return 1.0 / self.gpu_s

    @property
    def bcr(self) -> FloatArray:
        """Requests/s per currency per hour."""
        return 1.0 / self.cost / 3600.0

    def without_bend(self, term: str) -> BenefitCurve:
        """The curve with one term replaced by the straight line between its ends."""
        h, value = self.hit_rate, self.terms[term]
        chord = value[0] + (value[-1] - value[0]) * (h - h[0]) / (h[-1] - h[0])
        return BenefitCurve(h, self.revenue, {**self.terms, term: chord}, self.gpu_s, self.ttft_s)

    def upto(self, hit_rate: float) -> BenefitCurve:
        """The part of the curve up to a hit rate (at least three points)."""
        n = max(3, int(np.searchsorted(self.hit_rate, hit_rate, side="right")))
        terms = {name: value[:n] for name, value in self.terms.items()}
        return BenefitCurve(self.hit_rate[:n], self.revenue[:n], terms, self.gpu_s[:n], self.ttft_s[:n])

    def without(self, term: str) -> BenefitCurve:
        """The curve with one term taken away."""
        terms = {name: value for name, value in self.terms.items() if name != term}
        return BenefitCurve(self.hit_rate, self.revenue, terms, self.gpu_s, self.ttft_s)


@dataclass(frozen=True)
class Valley:
    """The deepest dip. left_edge: last hit rate before it where the benefit is that of h = 0; right_edge: first one after it
    (None: it never comes back). depth: benefit at the bottom over that at h = 0."""

    bottom: float
    left_edge: float
    right_edge: float | None
    depth: float


@dataclass(frozen=True)
class SingularPoint:
    """Hit rate at which the uncached tokens just exceed whole chunks, and the share of benefit lost there."""

    hit_rate: float
    loss: float


@dataclass(frozen=True)
class Classification:
    """``term``: what makes the curve what it is. underlying: its class without teeth (tails packed). valley: the deepest dip of
    that smooth curve, also where it is too shallow to be called a valley; None where there is none of 0.1 %."""

    shape: Shape
    term: str
    valley: Valley | None
    underlying: Shape

    @property
    def valley_present(self) -> bool:
        return self.underlying == "valley"


def classify(curve: BenefitCurve, noticeable: float = NOTICEABLE_DIP) -> Classification:
    """Class of the curve.

    sawtooth: packing the tails would save 1 % or more at some whole number of chunks, or (without a tail term) several dips.
    valley: one dip below the benefit at h = 0, with walls of ``noticeable`` (relative to its bottom) on both sides. Otherwise by
    the ends: rising or falling.
    Raises InputError for a curve of fewer than three points.
    """
    if curve.hit_rate.size < 3:
        raise InputError(Problem("hit rates", f"{curve.hit_rate.size} points", "at least 3", "101"))
    toothed = TAIL in curve.terms and _largest_tooth(curve) >= NOTICEABLE_TOOTH
    smooth = curve.without(TAIL) if toothed else curve
    dips = _dips(smooth.benefit, noticeable)
    below = [i for i in dips if smooth.benefit[i] < smooth.benefit[0]]
    underlying: Shape = "valley" if below else "rising" if smooth.benefit[-1] >= smooth.benefit[0] else "falling"
    valley = _valley(smooth)
    if toothed:
        return Classification("sawtooth", TAIL, valley, underlying)
    if len(dips) > 1:
        return Classification("sawtooth", _bending_term(smooth, noticeable), valley, underlying)
    term = _bending_term(smooth, noticeable) if below else _slope_term(smooth, underlying)
    return Classification(underlying, term, valley, underlying)


def _largest_tooth(curve: BenefitCurve) -> float:
    """Largest share of the cost that the tail drops by from one point to the next, before the last (all is cached there)."""
    tail, cost = curve.terms[TAIL], curve.cost
    return float(np.max((tail[:-2] - tail[1:-1]) / cost[:-2]))


def singular_points(
    benefit_at: Callable[[FloatArray], FloatArray], input_tokens: float, chunk_tokens: float, block_tokens: float = 1.0
) -> tuple[SingularPoint, ...]:
    """Hit rates where one more block of uncached tokens starts another chunk, with the benefit lost against whole chunks.

    benefit_at: hit rates, shape (points,), to benefits. Losses under 0.1 % are left out: with packed tails there are none.
    """
    whole = np.arange(1.0, np.floor((input_tokens - block_tokens) / chunk_tokens) + 1.0) * chunk_tokens
    if whole.size == 0:
        return ()
    at, over = 1.0 - whole / input_tokens, 1.0 - (whole + block_tokens) / input_tokens
    loss = 1.0 - benefit_at(over) / benefit_at(at)
    points = [SingularPoint(float(h), float(lost)) for h, lost in zip(over, loss, strict=True) if lost > SMALLEST_DIP]
    return tuple(sorted(points, key=lambda point: point.hit_rate))


def _dips(benefit: FloatArray, wall: float) -> list[int]:
    """Interior minima between walls: on both sides the benefit rises to (1 + ``wall``) times the minimum before it dips again."""
    dips: list[int] = []
    high, low, sinking = benefit[0], 0, False
    for i, value in enumerate(benefit):
        if sinking:
            if value < benefit[low]:
                low = i
            elif value >= benefit[low] * (1 + wall) and value > benefit[low]:
                dips.append(low)
                high, sinking = value, False
        elif value > high:
            high = value
        elif value * (1 + wall) <= high and value < high:
            low, sinking = i, True
    return dips


def _valley(curve: BenefitCurve) -> Valley | None:
    h, benefit = curve.hit_rate, curve.benefit
    dips = [i for i in _dips(benefit, SMALLEST_DIP) if benefit[i] < benefit[0]]
    if not dips:
        return None
    lowest = min(dips, key=lambda i: float(benefit[i]))
    bottom, value = _parabola(h, benefit, lowest)
    start = benefit[0]
    before = np.flatnonzero(benefit[:lowest] >= start)
    left = float(h[before[-1]]) if before.size else float(h[0])
    after = np.flatnonzero(benefit[lowest:] >= start)
    right = None
    if after.size and lowest > 0:
        i = lowest + int(after[0])
        rise = benefit[i] - benefit[i - 1]
        right = float(h[i] - (h[i] - h[i - 1]) * (benefit[i] - start) / rise) if rise > 0 else float(h[i])
    return Valley(bottom, left, right, value / float(start))


def _parabola(h: FloatArray, benefit: FloatArray, i: int) -> tuple[float, float]:
    """Vertex of the parabola through the minimum and its neighbours."""
    if not 0 < i < h.size - 1:
        return float(h[i]), float(benefit[i])
    a, b, c = np.polyfit(h[i - 1 : i + 2] - h[i], benefit[i - 1 : i + 2], 2)
    if not a > 0:
        return float(h[i]), float(benefit[i])
    step = float(np.clip(-b / (2 * a), h[i - 1] - h[i], h[i + 1] - h[i]))
    return float(h[i]) + step, float(c + b * step + a * step**2)


def _bending_term(curve: BenefitCurve, noticeable: float) -> str:
    """The cost term whose bend makes the valley: straightened, the valley goes or shrinks most."""

    def depth_left(term: str) -> float:
        straight = curve.without_bend(term)
        left = _valley(straight)
        return left.depth if left is not None and _dips(straight.benefit, noticeable) else 1.0

    return max(curve.terms, key=depth_left)


def _slope_term(curve: BenefitCurve, shape: Shape) -> str:
    """Rising: prefill work saved outruns the discount. Falling: what hits do not save (decode), or else the discount itself."""
    if shape == "rising":
        return "prefill work"
    constant = [name for name, value in curve.terms.items() if value[0] > 0 and value[-1] >= 0.5 * value[0]]
    for name in sorted(constant, key=lambda name: -float(curve.terms[name][-1])):
        cost = curve.cost - curve.terms[name]
        if curve.revenue[-1] * cost[0] >= curve.revenue[0] * cost[-1]:
            return name
    return "price discount"
