"""The money of a plan as a JSON document and as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pddplan.economics.tokens import TokenCosts
from pddplan.pdd.money import Money
from pddplan.report.numbers import percent, signed_percent, significant


def money_document(money: Money) -> dict[str, Any]:
    """Amounts in ``currency``; token costs and prices per million tokens; what is unknown is null."""
    bill, business, prices = money.bill, money.business, money.prices
    return {
        "currency": bill.currency,
        "per_hour": bill.per_hour,
        "per_day": bill.per_day,
        "per_month": bill.per_month,
        "per_year": bill.per_year,
        "lines": [{"name": p.name, "group": p.group, "role": p.role, "per_hour": p.per_hour, "source": p.source} for p in bill.lines],
        "by_group": bill.by_group(),
        "by_role": bill.by_role(),
        "unknown": list(bill.unknown),
        "tokens_per_s": {
            "uncached_input": money.flow.uncached_per_s,
            "cached_input": money.flow.cached_per_s,
            "output": money.flow.output_per_s,
        },
        "utilisation": money.utilisation,
        "per_million_by_role": None if money.by_role is None else _costs(money.by_role),
        "per_million_by_tokens": _costs(money.by_tokens),
        "per_million_output_allocated": money.output.allocated,
        "per_million_output_used": money.output.used,
        "per_request": money.per_request,
        "per_task": money.per_task,
        "token_prices": None if prices is None else {"input": prices.miss, "cached": prices.hit, "output": prices.output},
        "token_price_source": money.price_source,
        "revenue_per_hour": None if business is None else business.revenue_per_hour,
        "margin": None if business is None else business.margin,
        "break_even_utilisation": None if business is None else business.break_even_utilisation,
        "buying_per_hour": None if business is None else business.buying_per_hour,
        "buying_is_cheaper_below": None if business is None else business.buy_instead_below,
    }


def _costs(costs: TokenCosts) -> dict[str, float | None]:
    return {"uncached_input": costs.uncached, "cached_input": costs.cached, "output": costs.output}


def money_lines(money: Money) -> Iterator[str]:
    """The money of a plan in a few lines of text."""
    bill, business = money.bill, money.business
    unit = bill.currency
    yield f"{significant(bill.per_hour)} {unit}/h, {significant(bill.per_month)} a month, {significant(bill.per_year)} a year"
    yield "  " + ", ".join(f"{group} {percent(amount / bill.per_hour)}" for group, amount in bill.by_group().items() if amount > 0)
    for label, costs in (("by role", money.by_role), ("all tokens alike", money.by_tokens)):
        if costs is None:
            yield f"  per million tokens, {label}: unknown, a pool is known by its rate alone"
            continue
        parts = (("uncached", costs.uncached), ("cached", costs.cached), ("output", costs.output))
        shown = ", ".join(f"{name} {significant(cost)}" for name, cost in parts if cost is not None)
        yield f"  per million tokens, {label}: {shown} {unit}"
    used = f"; busy time alone {significant(money.output.used)}" if money.output.used == money.output.used else ""
    yield f"  whole bill per million output tokens: {significant(money.output.allocated)} {unit}{used} ({percent(money.utilisation)} busy)"
    yield f"  {significant(money.per_request)} {unit} a request, {significant(money.per_task)} a task"
    if business is None:
        yield f"  revenue unknown: {money.price_source}"
    else:
        margin = "no margin" if business.margin is None else f"margin {signed_percent(business.margin)}"
        even = business.break_even_utilisation
        pays = "" if even is None else f", pays from {percent(even)} of this traffic"
        yield f"  sold at {money.price_source}: {significant(business.revenue_per_hour)} {unit}/h, {margin}{pays}"
        if business.buying_per_hour is not None and business.buy_instead_below is not None:
            below = percent(business.buy_instead_below)
            bought = significant(business.buying_per_hour)
            yield f"  bought from the API: {bought} {unit}/h; buying is cheaper below {below} of this traffic"
    for unknown in bill.unknown:
        yield f"  unknown, counted as nothing: {unknown}"
