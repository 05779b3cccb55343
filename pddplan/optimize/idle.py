"""What must stand when nothing arrives: nothing, or the floors that the scenario sets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from pddplan.optimize.infeasible import explain_infeasible
from pddplan.optimize.search import Effort, Search
from pddplan.pdd.context import Deployment, PlanContext
from pddplan.pdd.fixed_plan import configuration_of, owner_of
from pddplan.pdd.plan import Configuration, Decision, LinkPlan, Pool
from pddplan.scenario.schema import Fleet

T = TypeVar("T", int, float)
TRICKLE_PER_S = 1e-6
"""A rate at which requests never meet: one instance of each role serves it."""


def idle_decision(context: PlanContext) -> Decision:
    """The cheapest plan for a rate of 0: the fleet as far as it must stay, spare instances and least counts, least circuits.

    Spares and least counts stand on the configurations that would serve a lone request cheapest within its limits. Raises
    InfeasibleError where they are asked for and no configuration can.
    """
    scenario = context.scenario
    counts: dict[Configuration, int] = _standing(context, scenario.fleet) if scenario.fleet else {}
    stocks = [stock for _, stock in context.stocks.values()]
    if any(scenario.search.spare(role) for role in ("P", "RLD", "MD", "AGG")) or any(any(s.instances_min.values()) for s in stocks):
        for configuration, floor in _floors(context).items():
            counts[configuration] = max(counts.get(configuration, 0), floor)
    kept = scenario.fleet.links if scenario.fleet and scenario.fleet.keep else {}
    least = {name: max(link.min_circuits, kept.get(name, 0)) for name, link in scenario.links.items()}
    lines = context.lines
    return Decision(
        tuple(Pool(configuration, count) for configuration, count in counts.items() if count),
        tuple(LinkPlan(n, *lines[n].between, circuits, lines[n].circuit_bytes_per_s) for n, circuits in least.items() if circuits),
        context.settings(next(iter(context.deployments))),
    )


def beside_idle(context: PlanContext, active: Mapping[str, Deployment]) -> PlanContext:
    """The context of the ``active`` deployments, without the stock, room, power and budget that the standing fleet of the others takes
    where it must stay (it is kept, or no change is free); a warning says what that is. Raises InputError for a pool that is none.
    """
    scenario, fleet = context.scenario, context.scenario.fleet
    narrowed = context.with_deployments(active)
    if fleet is None or len(active) == len(context.deployments) or not (fleet.keep or fleet.change_max is not None):
        return narrowed
    standing = [
        Pool(configuration_of(context, pool, f"fleet.pools[{i}]"), pool.instances)
        for i, pool in enumerate(fleet.pools)
        if owner_of(context, pool) not in active and pool.instances
    ]
    if not standing:
        return narrowed
    sites, stocks, cost = dict(scenario.sites), dict(context.stocks), 0.0
    for pool in standing:
        site, chip = pool.configuration.site, pool.configuration.chip
        room, (index, stock) = sites[site], stocks[site, chip]
        watts = pool.gpus * context.watts_per_gpu(site, chip)
        stocks[site, chip] = (index, stock.model_copy(update={"stock": _less(stock.stock, pool.gpus)}))
        sites[site] = room.model_copy(update={"gpus_max": _less(room.gpus_max, pool.gpus), "power": _less(room.power, watts)})
        cost += 0.0 if fleet.sunk else pool.gpus * context.prices_usd_h[site, chip]
    names = ", ".join(dict.fromkeys(pool.configuration.deployment for pool in standing))
    gpus = sum(pool.gpus for pool in standing)
    note = f"no requests arrive for {names}: {gpus} GPUs of its fleet stand idle, {cost:.4g} {scenario.currency}/h beside the plan's cost"
    changed = scenario.model_copy(update={"sites": sites, "budget": _less(scenario.budget, cost)})
    return replace(narrowed, scenario=changed, stocks=stocks, warnings=(*context.warnings, note))


def _less(limit: T | None, taken: T) -> T | None:
    return None if limit is None else max(limit - taken, type(limit)(0))


def _standing(context: PlanContext, fleet: Fleet) -> dict[Configuration, int]:
    """Instances of the fleet that stay: all that is kept, else what ``change_max`` does not let go, dearest GPUs first."""
    counts: dict[Configuration, int] = {}
    for index, pool in enumerate(fleet.pools):
        configuration = configuration_of(context, pool, f"fleet.pools[{index}]")
        counts[configuration] = counts.get(configuration, 0) + pool.instances
    if fleet.keep:
        return counts
    if fleet.change_max is None:
        return {}
    left = fleet.change_max
    for configuration in sorted(counts, key=lambda c: -context.prices_usd_h[c.site, c.chip]):
        gone = min(counts[configuration], left // configuration.gpus_per_instance)
        counts[configuration] -= gone
        left -= gone * configuration.gpus_per_instance
    return counts


def _floors(context: PlanContext) -> dict[Configuration, int]:
    """Spares and least counts, in whole steps, of the configurations that serve a trickle at least cost."""
    search_for = context.scenario.model_copy(update={"objective": "min-cost"})
    trickle = {name: replace(d, mix=replace(d.mix, rate_per_s=TRICKLE_PER_S)) for name, d in context.deployments.items()}
    search = Search.of(replace(context.with_deployments(trickle), scenario=search_for), Effort(seconds=context.scenario.search.time_limit))
    best = search.run().best
    if best is None:
        raise explain_infeasible(search)
    found = {candidate.configuration: candidate for candidate in search.candidates.found}
    return {
        configuration: math.ceil(max(found[configuration].spare, found[configuration].counts_min) / found[configuration].step)
        * found[configuration].step
        for configuration in (pool.configuration for pool in best.decision.pools if pool.instances)
    }
