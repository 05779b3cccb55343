"""A named price of a profile: which term, and which point of a published range."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

from pddplan.errors import InputError, Problem
from pddplan.hardware.types import Chip, LinkProfile, Sourced

POINTS = ("low", "mid", "high")


@dataclass(frozen=True)
class NamedPrice:
    """A price picked from a profile. basis: per ``hour`` of one chip, or ``purchase`` of one chip; in ``currency``."""

    term: str
    amount: float
    currency: Literal["USD", "CNY"]
    basis: Literal["hour", "purchase"]
    provenance: Sourced


def chip_price(chip: Chip, price_source: str) -> NamedPrice:
    """Price of ``chip`` that ``price_source`` names, in the currency and basis of the term.

    ``reserved_usd_h`` (the unit may be left out where one term fits: ``reserved``), or for a range its point:
    ``on_demand_usd_h.low``, ``.mid`` (arithmetic mean) or ``.high``. Raises InputError: no such term, or a range
    without a point.
    """
    place = f"price_source of {chip.slug}"
    term, _, point = price_source.partition(".")
    fitting = [key for key in chip.prices if key == term or _stem(key) == term]
    if len(fitting) != 1:
        near = fitting or difflib.get_close_matches(term, chip.prices, 1, 0.3) or list(chip.prices)[:1]
        terms = ", ".join(fitting or chip.prices)
        accepted = f"one of {terms}" if terms else "the profile has no price: give one in the scenario"
        raise InputError(Problem(place, repr(price_source), accepted, near[0] if near else "price: 2.00 USD/h"))
    key = fitting[0]
    price = _point(place, price_source, chip.prices[key], point)
    currency: Literal["USD", "CNY"] = "CNY" if "_cny" in key else "USD"
    return NamedPrice(key, price.value or 0.0, currency, "hour" if key.endswith("_h") else "purchase", price)


def link_price(link: LinkProfile, point: str = "") -> Sourced:
    """USD per Gbps-month of a line; ``point`` (low, mid, high) picks from a range. Raises InputError where unknown."""
    return _point(f"price of {link.slug}", point or "the profile's price", link.price_usd_per_gbps_month, point)


def _stem(term: str) -> str:
    return term.removesuffix("_h").removesuffix("_usd").removesuffix("_cny")


def _point(place: str, asked: str, price: Sourced, point: str) -> Sourced:
    if point and point not in POINTS:
        raise InputError(Problem(place, repr(asked), "a term, or a term and one of .low .mid .high", "on_demand_usd_h.mid"))
    if price.low is not None and price.high is not None and (point or price.value is None):
        if not point:
            found = f"{asked} is a range, {price.low:g} to {price.high:g} ({price.source})"
            raise InputError(Problem(place, found, "one point of it: .low, .mid or .high", f"{asked}.mid"))
        value = {"low": price.low, "mid": (price.low + price.high) / 2, "high": price.high}[point]
        return Sourced(value, price.kind, f"{price.source} ({point} of its range)", price.date, price.note)
    if price.value is None:
        raise InputError(Problem(place, f"{asked} is unknown ({price.source})", "a price in the scenario", "price: 2.00 USD/h"))
    return Sourced(price.value, price.kind, price.source, price.date, price.note)
