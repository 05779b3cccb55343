"""What to do about a bathtub, in numbers: a larger cache, other chunks, another price."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pddplan.economics.bathtub import losing_price_ratio
from pddplan.economics.benefit_curve import BenefitCurve, Classification
from pddplan.economics.cost import cache_per_hour
from pddplan.economics.tokens import TokenPrices
from pddplan.units import GB, HOURS_PER_MONTH

FloatArray = NDArray[np.float64]
NOTICEABLE_GAIN = 0.001


@dataclass(frozen=True)
class Traffic:
    """Requests on the curve: hit rate, weight (requests, sums to 1) and input tokens of each atom, shape (rows,)."""

    hit_rate: FloatArray
    weight: FloatArray
    input_tokens: FloatArray

    @property
    def mean_hit_rate(self) -> float:
        """Token-weighted: cached tokens over input tokens."""
        tokens = self.weight * self.input_tokens
        return float(np.dot(tokens, self.hit_rate) / tokens.sum())

    def share_between(self, low: float, high: float) -> float:
        """Share of requests whose hit rate lies in [low, high)."""
        return float(self.weight[(self.hit_rate >= low) & (self.hit_rate < high)].sum())

    def histogram(self, edges: FloatArray) -> FloatArray:
        """Share of requests per bin of hit rate, the last bin closed; shape (edges - 1,)."""
        counts, _ = np.histogram(self.hit_rate, edges, weights=self.weight)
        return np.asarray(counts, dtype=np.float64)

    def benefit(self, curve: BenefitCurve) -> float:
        """Revenue over cost of this traffic, each request taken from the curve at its own hit rate."""
        revenue = np.interp(self.hit_rate, curve.hit_rate, curve.revenue)
        cost = np.interp(self.hit_rate, curve.hit_rate, curve.cost)
        return float(np.dot(self.weight, revenue) / np.dot(self.weight, cost))


@dataclass(frozen=True)
class CacheTierPrice:
    """A place for cached KV and its price per GB and month."""

    name: str
    price_per_gb_month: float


@dataclass(frozen=True)
class CacheMarket:
    """What a hit rate takes: bytes of cache for a hit rate (None where the traffic does not tell), and tiers to buy it in.

    highest: the hit rate that an unlimited cache would reach with this traffic; 1 where it does not tell.
    """

    bytes_for: Callable[[float], float | None]
    bytes_per_context: Callable[[float], float]
    tiers: Sequence[CacheTierPrice] = ()
    highest: float = 1.0


@dataclass(frozen=True)
class Advice:
    """kind: cache, chunk, price or none. numbers: what the text says, in base units."""

    kind: str
    text: str
    numbers: Mapping[str, float | str | None] = field(default_factory=dict)


def advise(
    curve: BenefitCurve,
    found: Classification,
    traffic: Traffic,
    prices: TokenPrices,
    input_tokens: float,
    output_tokens: float,
    cache: CacheMarket,
    chunks: Mapping[str, BenefitCurve],
) -> tuple[Advice, ...]:
    """Advice for ``traffic`` on ``curve``.

    chunks: the curve under other chunking, by what would be changed (``tails packed``, ``chunks of 16384 tokens``).
    """
    advice = [_cache_advice(curve, found, traffic, cache), _price_advice(curve, traffic, prices, input_tokens, output_tokens)]
    if chunks:
        advice.append(_chunk_advice(curve, traffic, chunks))
    return tuple(advice)


def _at(curve: BenefitCurve, hit_rate: float) -> float:
    return float(np.interp(hit_rate, curve.hit_rate, curve.benefit))


def _cache_advice(curve: BenefitCurve, found: Classification, traffic: Traffic, cache: CacheMarket) -> Advice:
    now = traffic.mean_hit_rate
    if now >= cache.highest - 0.005:
        text = f"the prefixes of this traffic reach a hit rate of {cache.highest:.1%} at most (now {now:.1%}): more cache finds nothing"
        return Advice("cache", text, {"hit_rate": now, "target_hit_rate": None})
    curve = curve.upto(cache.highest)
    valley = found.valley if found.valley_present else None
    if valley is not None and valley.left_edge <= now and (valley.right_edge is None or now < valley.right_edge):
        target, why = valley.right_edge, "climbs out of the valley on the far side"
        if target is None or target > cache.highest:
            text = f"the mean hit rate {now:.1%} lies in the valley, and none within reach brings the benefit back: more cache does not pay"
            return Advice("cache", text, {"hit_rate": now, "target_hit_rate": None})
    else:
        target, why = now + 0.5 * (cache.highest - now), "goes half of the way that is left"
        if _at(curve, target) < _at(curve, now) * (1 + NOTICEABLE_GAIN):
            text = f"at the mean hit rate {now:.1%} a higher one brings no benefit at these prices: more cache does not pay"
            return Advice("cache", text, {"hit_rate": now, "target_hit_rate": None})
    gain = _at(curve, target) / _at(curve, now) - 1
    needed, per_context = cache.bytes_for(target), cache.bytes_per_context(target)
    numbers: dict[str, float | str | None] = {"hit_rate": now, "target_hit_rate": target, "gain": gain, "bytes": needed}
    numbers["bytes_per_context"] = per_context
    text = f"a hit rate of {target:.1%} (now {now:.1%}) {why}: benefit {gain:+.1%}; "
    if needed is None:
        text += f"its size follows from the live contexts, {per_context / GB:.2f} GB each (the scenario does not tell how many there are)"
        size, what = per_context, "per live context"
    else:
        text += f"it takes {needed / GB:,.0f} GB of cache"
        size, what = needed, "in all"
    bills = {tier.name: cache_per_hour(size, tier.price_per_gb_month) * HOURS_PER_MONTH for tier in cache.tiers}
    if bills:
        text += "; a month costs " + ", ".join(f"{bill:,.2f} in {name}" for name, bill in bills.items()) + f" {what}"
        numbers |= {f"per_month_in_{name}": bill for name, bill in bills.items()}
    return Advice("cache", text, numbers)


def _price_advice(curve: BenefitCurve, traffic: Traffic, prices: TokenPrices, input_tokens: float, output_tokens: float) -> Advice:
    now = traffic.mean_hit_rate
    ratio = losing_price_ratio(curve, now, prices, input_tokens, output_tokens)
    numbers = {"hit_rate": now, "losing_price_ratio": max(ratio, 0.0), "price_ratio": prices.hit_ratio}
    if ratio <= 0:
        return Advice("price", f"at a hit rate of {now:.1%} a rise pays even if cached tokens were free", numbers)
    verdict = "below it: a rise loses" if prices.hit_ratio < ratio else "above it: a rise pays"
    text = f"at a hit rate of {now:.1%} a rise loses benefit while cached tokens cost under {ratio:.3g} of uncached ones; "
    return Advice("price", text + f"the price is {prices.hit_ratio:.3g}, {verdict}", numbers)


def _chunk_advice(curve: BenefitCurve, traffic: Traffic, chunks: Mapping[str, BenefitCurve]) -> Advice:
    gains = {name: traffic.benefit(other) / traffic.benefit(curve) - 1 for name, other in chunks.items()}
    best = max(gains, key=lambda name: gains[name])
    numbers: dict[str, float | str | None] = {f"gain_{name}": gain for name, gain in gains.items()}
    if gains[best] < NOTICEABLE_GAIN:
        return Advice("chunk", "no other chunking gains 0.1 % on this traffic", numbers)
    return Advice("chunk", f"{best} would raise this traffic's benefit by {gains[best]:.1%}", numbers | {"best": best})
