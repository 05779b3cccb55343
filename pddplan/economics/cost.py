"""Cost of owning or renting: every function turns a price and its unit into currency per hour.

Capital recovery factor CRF(i, n) = i / (1 - (1 + i)^-n): the level yearly payment that pays back 1 over n years at
rate i.
Money is a label here: whatever currency goes in comes out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import expm1, log1p

from pddplan.errors import InputError, Problem
from pddplan.units import (
    GB,
    GBPS_BYTES_PER_S,
    HOURS_PER_MONTH,
    HOURS_PER_YEAR,
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
)


def capital_recovery_factor(cost_of_capital: float, years: float) -> float:
    """Yearly payment per unit of capital, 1/year. ``years`` > 0; at a rate of 0 it is 1 / years.

    Raises InputError when years is not positive or the rate is negative.
    """
    if not years > 0 or not cost_of_capital >= 0:
        raise InputError(
            Problem(
                "amortisation",
                f"{years} years at {cost_of_capital}",
                "years over 0 and a cost of capital of at least 0",
                "4 years at 0.10",
            )
        )
    if cost_of_capital == 0:
        return 1 / years
    return cost_of_capital / -expm1(-years * log1p(cost_of_capital))


def purchase_per_hour(
    price: float,
    years: float,
    cost_of_capital: float,
    *,
    residual: float = 0.0,
    utilisation: float = 1.0,
    added_share: float = 0.0,
    maintenance_share: float = 0.0,
) -> float:
    """Hourly cost of something bought.

    residual: share of the price it still fetches after ``years``; its present value need not be paid back.
    added_share: network and storage bought with it, as a share of the price. maintenance_share: of the whole capital,
    per year. utilisation: share of powered hours that are sold or used; the cost is stated per used hour.
    """
    if not 0 < utilisation <= 1:
        raise InputError(Problem("utilisation", f"{utilisation}", "a share over 0 and at most 1", "0.7"))
    capital = price * (1 + added_share)
    discount: float = (1 + cost_of_capital) ** years
    owed = capital - residual * price / discount
    yearly = owed * capital_recovery_factor(cost_of_capital, years) + maintenance_share * capital
    return yearly / HOURS_PER_YEAR / utilisation


def energy_per_hour(power_w: float, pue: float, price_per_kwh: float, load: float = 1.0) -> float:
    """Electricity of one chip: watts x share of them drawn x PUE x tariff."""
    return power_w / 1e3 * load * pue * price_per_kwh


def colocation_per_hour(power_w: float, price_per_kw_month: float) -> float:
    """Room and cooling rented by reserved power: the rated watts count, not the mean draw."""
    return power_w / 1e3 * price_per_kw_month / HOURS_PER_MONTH


def circuit_per_hour(bytes_per_s: float, price_per_gbps_month: float) -> float:
    """A line bought by capacity."""
    return bytes_per_s / GBPS_BYTES_PER_S * price_per_gbps_month / HOURS_PER_MONTH


def egress_per_hour(bytes_per_s: float, price_per_gb: float) -> float:
    """A line billed by volume, at a mean payload of ``bytes_per_s``."""
    return bytes_per_s * SECONDS_PER_HOUR / GB * price_per_gb


def cache_per_hour(cache_bytes: float, price_per_gb_month: float) -> float:
    """A cache tier (DRAM, SSD, remote) bought by size."""
    return cache_bytes / GB * price_per_gb_month / HOURS_PER_MONTH


def hbm_cache_per_hour(cache_bytes: float, hbm_bytes: float, gpu_per_hour: float) -> float:
    """HBM set aside for cached KV, at its share of the chip's price: what the cache forgoes, not what it bills."""
    return cache_bytes / hbm_bytes * gpu_per_hour


@dataclass(frozen=True)
class CostLine:
    """One entry of a bill. group: chips, energy, room, hosts, lines, cache ...; role: whose cost it is."""

    name: str
    group: str
    per_hour: float
    role: str = ""
    source: str = ""


@dataclass(frozen=True)
class Bill:
    """What a deployment costs. ``unknown``: parts whose price nobody gave; they are counted as nothing and named."""

    lines: tuple[CostLine, ...]
    currency: str = "USD"
    unknown: tuple[str, ...] = ()

    @property
    def per_hour(self) -> float:
        return sum(line.per_hour for line in self.lines)

    @property
    def per_day(self) -> float:
        return self.per_hour * SECONDS_PER_DAY / SECONDS_PER_HOUR

    @property
    def per_month(self) -> float:
        return self.per_hour * HOURS_PER_MONTH

    @property
    def per_year(self) -> float:
        return self.per_hour * HOURS_PER_YEAR

    def by_group(self) -> dict[str, float]:
        """Currency per hour of each group, in order of first appearance."""
        return _sums((line.group, line.per_hour) for line in self.lines)

    def by_role(self) -> dict[str, float]:
        """Currency per hour of each role, in order of first appearance."""
        return _sums((line.role, line.per_hour) for line in self.lines)


def _sums(entries: Iterable[tuple[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for name, amount in entries:
        sums[name] = sums.get(name, 0.0) + amount
    return sums


def benefit_cost_ratio(goodput_rps: float, cost_per_hour: float) -> float:
    """BCR = goodput / cost, requests/s per currency per hour. Raises InputError at no cost: there is no ratio then."""
    if not cost_per_hour > 0:
        raise InputError(Problem("cost", f"{cost_per_hour}", "a cost over 0: the zero plan has no benefit-cost ratio", "100 USD/h"))
    return goodput_rps / cost_per_hour
