"""The money of a plan: its bill by part and period, what tokens, requests and tasks cost and earn, and what buying them costs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from pddplan.economics.cost import Bill, CostLine, egress_per_hour
from pddplan.economics.gpu_price import BY_TERM, TERMS, gpu_price
from pddplan.economics.tokens import (
    Business,
    TokenCosts,
    TokenFlow,
    TokenPrices,
    Utilised,
    allocated_and_used,
    per_request,
    token_costs,
)
from pddplan.errors import InputError, Problem
from pddplan.hardware import load_prices
from pddplan.pdd.context import Deployment, PlanContext
from pddplan.pdd.plan import Evaluation, PoolResult, TermPurchase
from pddplan.scenario.schema import ChipStock


@dataclass(frozen=True)
class Money:
    """Everything about the money of one evaluated plan, at the mean traffic of the day.

    by_role, by_tokens: cost per million tokens under both attributions; by_role is None where an aggregated pool is known by its
    rate alone, since nobody can say which phase its time went to. utilisation: busy share of what is paid for (pools by their
    cost, at mean traffic). output: cost per million output tokens of the whole bill, allocated and used. per_request, per_task in
    currency. business: None where no token prices are known. An unstable plan does not serve its traffic: it has a bill, but no cost of a
    token, request or task (None or NaN) and no business.
    """

    bill: Bill
    flow: TokenFlow
    utilisation: float
    by_role: TokenCosts | None
    by_tokens: TokenCosts
    output: Utilised
    per_request: float
    per_task: float
    prices: TokenPrices | None
    price_source: str
    business: Business | None


def money(context: PlanContext, evaluation: Evaluation) -> Money | None:
    """Money of ``evaluation``; None where nothing is served, since then no token has a cost."""
    bill = bill_of(context, evaluation)
    deployments = [each for each in context.deployments.values() if each.mix.rate_per_s > 0]
    if not deployments:
        return None
    rates = {each.name: each.mix.mean_rate_per_s or each.mix.rate_per_s for each in deployments}
    flow = _flow(deployments, rates)
    peak = sum(each.mix.rate_per_s for each in deployments)
    rate = sum(rates.values())
    busy = sum(pool.cost_usd_per_h * min(pool.utilisation, 1.0) * _full_over_held(pool, evaluation) for pool in evaluation.pools)
    paid = sum(pool.cost_usd_per_h for pool in evaluation.pools)
    utilisation = busy / paid * rate / peak if paid > 0 and peak > 0 else math.nan
    prices, source = _prices_if_known(context)
    if not evaluation.stable:
        unknown = TokenCosts(None, None, None, "tokens")
        nothing = Utilised(math.nan, math.nan)
        return Money(bill, flow, utilisation, None, unknown, nothing, math.nan, math.nan, prices, source, None)
    by_role = None
    if (shares := _shares(context, evaluation)) is not None:
        by_role = token_costs(bill.by_role(), flow, "role", cached_prefill_share=shares[0], aggregated_prefill_share=shares[1])
    turns = sum(rates[each.name] * _turns(each) for each in deployments) / rate
    each = per_request(bill.per_hour, rate)
    output = per_request(bill.per_hour, flow.output_per_s) * 1e6 if flow.output_per_s > 0 else math.nan
    return Money(
        bill=bill,
        flow=flow,
        utilisation=utilisation,
        by_role=by_role,
        by_tokens=token_costs(bill.by_role(), flow, "tokens"),
        output=allocated_and_used(output, utilisation) if 0 < utilisation <= 1 else Utilised(output, math.nan),
        per_request=each,
        per_task=each * turns,
        prices=prices,
        price_source=source,
        business=None if prices is None else _business(context, bill, flow, prices),
    )


def bill_of(context: PlanContext, evaluation: Evaluation) -> Bill:
    """The bill part by part: per pool its chips, energy, room, hosts and cache tiers, per line its circuits and egress."""
    scenario = context.scenario
    lines: list[CostLine] = []
    by_term = {(b.site, b.chip): b for b in evaluation.purchases}
    for pool in evaluation.pools:
        configuration = pool.pool.configuration
        index, stock = context.stocks[configuration.site, configuration.chip]
        place = f"sites.{configuration.site}.chips[{index}]"
        chip, site = context.chips[configuration.chip], scenario.sites[configuration.site]
        bought = by_term.get((configuration.site, configuration.chip))
        share = pool.cost_usd_per_h / bought.mix.per_hour if bought is not None and bought.mix.per_hour > 0 else 0.0
        for part in gpu_price(chip, stock, site, scenario.cost, place, scenario.currency).parts:
            if bought is not None:
                lines += _by_term(part, bought, share, stock, configuration.role, chip.name)
                continue
            name = f"{pool.pool.gpus} x {chip.name}: {part.name}"
            role = "cache" if part.group == "cache" else configuration.role
            lines.append(replace(part, name=name, per_hour=pool.pool.gpus * part.per_hour, role=role))
    unknown = []
    for link in evaluation.links:
        plan, line = link.link, context.lines[link.link.name]
        egress = egress_per_hour(link.bytes_per_s_mean, line.usd_per_gb)
        lines.append(CostLine(f"line {plan.name}: {plan.circuits} circuits", "lines", link.cost_usd_per_h - egress, "line"))
        if egress > 0:
            lines.append(CostLine(f"line {plan.name}: egress", "lines", egress, "line"))
        if link.cost_usd_per_h == 0 and plan.circuits > 0:
            unknown.append(f"the price of line {plan.name}")
    return Bill(tuple(lines), scenario.currency, tuple(unknown))


def _full_over_held(pool: PoolResult, evaluation: Evaluation) -> float:
    """GPUs of the plan over the mean of those paid for, of the pool's chip: 1 where they are paid all day."""
    where = (pool.pool.configuration.site, pool.pool.configuration.chip)
    return next((max(b.used) / b.mix.held for b in evaluation.purchases if (b.site, b.chip) == where and b.mix.held > 0), 1.0)


def _by_term(part: CostLine, bought: TermPurchase, share: float, stock: ChipStock, role: str, chip: str) -> Iterator[CostLine]:
    """A part of the price of chips that are paid by term, for a pool that takes ``share`` of them: rent term by term, the rest by
    GPUs held.
    """
    if part.name != BY_TERM:
        held = share * bought.mix.held
        owner = "cache" if part.group == "cache" else role
        yield replace(part, name=f"{held:.4g} x {chip}: {part.name}", per_hour=held * part.per_hour, role=owner)
        return
    for term in TERMS:
        gpus, price = share * getattr(bought.mix, term), getattr(stock.prices, term)
        if gpus > 0:
            name = f"{gpus:.4g} x {chip}: rent, {term.replace('_', ' ')}"
            yield replace(part, name=name, per_hour=gpus * price, role=role, source=f"{price:g}/h, mean over the day")


def _flow(deployments: list[Deployment], rates: dict[str, float]) -> TokenFlow:
    uncached = sum(rates[d.name] * d.mix.mean(d.mix.uncached_tokens) for d in deployments)
    total = sum(rates[d.name] * d.mix.mean(d.mix.input_tokens) for d in deployments)
    output = sum(rates[d.name] * d.mix.mean(d.mix.output_tokens) for d in deployments)
    return TokenFlow(uncached, total - uncached, output)


def _turns(deployment: Deployment) -> float:
    """Mean requests per task of the deployment, over its requests' classes."""
    mix = deployment.mix
    weights = np.bincount(mix.class_index, mix.weight, minlength=len(mix.class_names))
    turns = np.broadcast_to(np.asarray(mix.turns_per_task, dtype=np.float64), weights.shape)
    return float(1.0 / np.dot(weights, 1.0 / turns))


def _shares(context: PlanContext, evaluation: Evaluation) -> tuple[float, float] | None:
    """(share of prefill time that cached tokens cause, share of aggregated pools' busy time that is prefill), GPU-weighted;
    None where an aggregated pool tells no times."""
    cached, aggregated = [(0.0, 0.0)], [(0.0, 0.0)]
    for pool in evaluation.pools:
        configuration = pool.pool.configuration
        stage = context.instance(configuration, evaluation.decision.settings)
        if configuration.role not in ("P", "AGG"):
            continue
        if getattr(stage, "rate", None) is not None:
            return None
        mix = context.deployments[configuration.deployment].mix
        whole = stage.prefill_occupancy_s(mix.uncached_tokens, mix.input_tokens - mix.uncached_tokens)
        alone = stage.prefill_occupancy_s(mix.uncached_tokens, 0.0)
        prefill_s = mix.mean(whole)
        cached.append((pool.pool.gpus, 1.0 - min(mix.mean(alone) / prefill_s, 1.0) if prefill_s > 0 else 0.0))
        if configuration.role == "AGG":
            decode_s = _decode_s(context, pool, evaluation)
            aggregated.append((pool.pool.gpus, prefill_s / (prefill_s + decode_s) if prefill_s + decode_s > 0 else 0.0))
    return _weighted(cached), _weighted(aggregated)


def _decode_s(context: PlanContext, pool: PoolResult, evaluation: Evaluation) -> float:
    mix = context.deployments[pool.pool.configuration.deployment].mix
    stage = context.instance(pool.pool.configuration, evaluation.decision.settings)
    batch = max(pool.batch_mean / max(pool.pool.instances, 1), 1.0)
    context_tokens = mix.mean(mix.input_tokens) + mix.mean(mix.output_tokens) / 2
    return float(stage.step_s(batch, context_tokens)) / batch / stage.tokens_per_step * mix.mean(mix.output_tokens)


def _weighted(pairs: list[tuple[float, float]]) -> float:
    total = sum(weight for weight, _ in pairs)
    return sum(weight * value for weight, value in pairs) / total if total > 0 else 0.0


def _business(context: PlanContext, bill: Bill, flow: TokenFlow, prices: TokenPrices) -> Business:
    try:
        market, _ = published_prices(next(iter(context.deployments.values())), context.scenario.currency)
    except InputError:
        market = None
    one_model = len(context.deployments) == 1
    buying = market.revenue_per_hour(flow) if market is not None and one_model else None
    return Business(bill.per_hour, prices.revenue_per_hour(flow), buying)


def _prices_if_known(context: PlanContext) -> tuple[TokenPrices | None, str]:
    try:
        return token_prices(context)
    except InputError as error:
        return None, error.problems[0].found


def token_prices(
    context: PlanContext, deployment: str | None = None, cached_ratio: float | None = None
) -> tuple[TokenPrices, str]:
    """What a provider bills and the source: the scenario's token prices, else the API price published for the model.

    cached_ratio: cached over uncached price, in place of the provider's. Raises InputError where nobody says a price.
    """
    stated = context.scenario.token_prices
    if stated is not None:
        cached = stated.input if stated.cached is None else stated.cached
        prices, source = TokenPrices(stated.input, cached, stated.output), "token_prices of the scenario"
    else:
        prices, source = published_prices(chosen_deployment(context, deployment), context.scenario.currency)
    if cached_ratio is None:
        return prices, source
    if not 0 <= cached_ratio < math.inf:
        raise InputError(Problem("price ratio", f"{cached_ratio}", "cached over uncached price, at least 0", "0.1"))
    return replace(prices, hit=cached_ratio * prices.miss), f"{source}; cached price set to {cached_ratio:g} of uncached"


def published_prices(deployment: Deployment, currency: str) -> tuple[TokenPrices, str]:
    """API price of the deployment's model in the shipped price book, with its source and date. Raises InputError where none is known."""
    name = deployment.spec.name.rsplit("/", 1)[-1].lower()
    published = load_prices().api_tokens.get(name)
    if published is not None and currency == "USD":
        miss, hit, output = published.miss_usd_per_million, published.hit_usd_per_million, published.output_usd_per_million
        if miss.value is not None and hit.value is not None and output.value is not None:
            return TokenPrices(miss.value, hit.value, output.value), f"{miss.source} ({miss.date})"
    example = "token_prices: {input: 0.55 USD/Mtok, cached: 0.14 USD/Mtok, output: 2.19 USD/Mtok}"
    found = f"the scenario has no token prices, and no API price of {name} is known in {currency}"
    raise InputError(Problem("token_prices", found, "what a provider bills per million tokens", example))


def chosen_deployment(context: PlanContext, name: str | None) -> Deployment:
    """The deployment of that name, the first one when None. Raises InputError."""
    if name is None:
        return next(iter(context.deployments.values()))
    if name not in context.deployments:
        raise InputError(Problem("deployment", repr(name), "one of " + ", ".join(context.deployments)))
    return context.deployments[name]
