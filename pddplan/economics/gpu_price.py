"""What one chip costs an hour under a scenario's cost section, part by part, each with its source."""

from __future__ import annotations

from dataclasses import dataclass

from pddplan.economics.cost import CostLine, cache_per_hour, colocation_per_hour, energy_per_hour, purchase_per_hour
from pddplan.errors import InputError, Problem
from pddplan.hardware import Chip, chip_price, load_prices
from pddplan.scenario.schema import ChipStock, Cost, Site, TermPrices
from pddplan.units import GB

GIVEN = "given in the scenario"
BY_TERM = "rent by term"
TERMS = ("reserved", "on_demand", "spot")


@dataclass(frozen=True)
class GpuPrice:
    """Currency per chip and hour: the sum of ``parts`` (rent or capital, energy, room, hosts)."""

    parts: tuple[CostLine, ...]

    @property
    def per_hour(self) -> float:
        return sum(part.per_hour for part in self.parts)


def gpu_price(chip: Chip, stock: ChipStock, site: Site, cost: Cost, place: str, currency: str = "USD") -> GpuPrice:
    """Hourly price of one chip of ``stock``.

    Chip: rented at the stated price (or the profile price that ``price_source`` names), or bought when the cost basis
    is ``purchase`` or only a purchase price is given: amortised at the cost of capital to the residual. Prices by term go before a
    single price; the first of them stands here until the use over the day is known (``term_prices``). Energy,
    colocation, hosts, NICs and the site's cache tiers (sized per GPU) are added when the scenario prices them, whatever
    the basis: leave them out where the rent includes them. Raises InputError with every price or power that is missing.
    """
    problems: list[Problem] = []
    parts: list[CostLine] = []
    try:
        parts.append(_chip_part(chip, stock, cost, place, currency))
    except InputError as error:
        problems += error.problems
    electricity = site.electricity if site.electricity is not None else cost.electricity
    power_w = stock.power if stock.power is not None else chip.tdp_w.value
    if power_w is None and (electricity is not None or cost.colocation is not None):
        found = f"the power of {chip.slug} is not one number ({chip.tdp_w.source})"
        problems.append(Problem(f"{place}.power", found, "the power of one chip with its share of the host", "700 W"))
    elif power_w is not None:
        if electricity is not None:
            pue = site.pue if site.pue is not None else cost.pue
            amount = energy_per_hour(power_w, pue, electricity, cost.power_utilisation)
            parts.append(CostLine("electricity", "energy", amount, source=f"{power_w:g} W x {cost.power_utilisation:g} x PUE {pue:g}"))
        if cost.colocation is not None:
            parts.append(CostLine("colocation", "room", colocation_per_hour(power_w, cost.colocation), source=GIVEN))
    host = stock.host_price if stock.host_price is not None else cost.host
    node_gpus = stock.node_gpus if stock.node_gpus is not None else chip.gpus_per_node
    for name, price in (("host", None if host is None else host / node_gpus), ("NIC", cost.nic)):
        if price is not None:
            parts.append(CostLine(name, "hosts", _amortised(price, cost), source=GIVEN))
    for name, tier in site.cache.items():
        if tier.price is not None:
            source = f"{tier.capacity / GB:g} GB per GPU"
            parts.append(CostLine(f"cache tier {name}", "cache", cache_per_hour(tier.capacity, tier.price), source=source))
    if problems:
        raise InputError(problems)
    return GpuPrice(tuple(parts))


def term_prices(price: GpuPrice, stock: ChipStock, cost: Cost) -> TermPrices | None:
    """Prices by term of a chip with the other parts of ``price`` in each, None where it is not rented by term. What is not held costs
    neither energy nor host.
    """
    if not _by_term(stock, cost) or stock.prices is None:
        return None
    other = sum(part.per_hour for part in price.parts if part.name != BY_TERM)
    offered = {term: p + other for term in TERMS if (p := getattr(stock.prices, term)) is not None}
    return stock.prices.model_copy(update=offered)


def _by_term(stock: ChipStock, cost: Cost) -> bool:
    return cost.basis == "rent" and stock.prices is not None and any(getattr(stock.prices, term) is not None for term in TERMS)


def _amortised(price: float, cost: Cost) -> float:
    return purchase_per_hour(price, cost.amortisation, cost.cost_of_capital, residual=cost.residual)


def _chip_part(chip: Chip, stock: ChipStock, cost: Cost, place: str, currency: str) -> CostLine:
    if _by_term(stock, cost):
        offered = [price for term in TERMS if (price := getattr(stock.prices, term)) is not None]
        return CostLine(BY_TERM, "chips", offered[0], source=GIVEN)
    if cost.basis == "rent" and stock.price is not None:
        return CostLine("rent", "chips", stock.price, source=GIVEN)
    if stock.purchase is not None:
        return CostLine("purchase", "chips", _amortised(stock.purchase, cost), source=GIVEN)
    if stock.price_source is not None:
        named = chip_price(chip, stock.price_source)
        rate = _exchange(named.currency, currency, f"{place}.price_source")
        amount, source = named.amount * rate, named.provenance.source
        if rate != 1.0:
            source += f"; {rate:.4g} {currency} per {named.currency} by the price book"
        if named.basis == "purchase":
            return CostLine("purchase", "chips", _amortised(amount, cost), source=source)
        if cost.basis == "rent":
            return CostLine("rent", "chips", amount, source=source)
    known = ", ".join(chip.prices) or "none"
    if cost.basis == "purchase":
        found = f"{chip.slug} has no purchase price, and the cost basis is purchase"
        raise InputError(Problem(f"{place}.purchase", found, f"a purchase price, or price_source naming one of {known}", "25000 USD"))
    found = f"{chip.slug} has no price (a published range is no default)"
    raise InputError(Problem(f"{place}.price", found, f"a price per hour, or price_source naming one of {known}", "2.00 USD/h"))


def _exchange(source: str, target: str, place: str) -> float:
    if source == target:
        return 1.0
    usd_cny = load_prices().usd_cny.value
    rates = {("USD", "CNY"): usd_cny, ("CNY", "USD"): 1 / usd_cny if usd_cny else None}
    rate = rates.get((source, target))
    if rate is None:
        found = f"the profile's price is in {source}, the scenario in {target}"
        raise InputError(Problem(place, found, "a price in the scenario's own currency", f"price: 2.00 {target}/h"))
    return rate
