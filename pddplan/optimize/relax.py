"""Contexts with one limit relaxed by a step: what a re-solve is asked with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pddplan.pdd.context import Deployment, PlanContext
from pddplan.scenario.sla import Sla, TailLimits

LATENCY_STEP = 0.1
"""A latency limit is relaxed by this share of itself, an attainment by a percentage point, a budget by a hundredth."""
ATTAINMENT_STEP = 0.01
BUDGET_STEP = 0.01
POWER_STEP = 0.1


@dataclass(frozen=True)
class Relaxation:
    """``context`` with ``constraint`` relaxed by ``step`` (as a reader would say it), from a ``limit`` (of a service level)."""

    constraint: str
    step: str
    context: PlanContext
    limit: float = 0.0


def relaxations_of(context: PlanContext, constraint: str) -> Iterator[Relaxation]:
    """The relaxation of a binding constraint by one step; nothing for a constraint that has none (a load of 1)."""
    owner, _, target = constraint.partition(".sla.")
    if target:
        step, limit, deployments = _looser_sla(context, owner, target)
        yield Relaxation(constraint, step, context.with_deployments(deployments), limit)
    elif constraint.startswith("stock of "):
        chip, _, site = constraint.removeprefix("stock of ").partition(" at ")
        node = context.stocks[site, chip][1].node_gpus or context.chips[chip].gpus_per_node
        yield Relaxation(constraint, f"{node} GPUs", with_stock(context, site, chip, node))
    elif constraint.startswith("circuits of "):
        name = constraint.removeprefix("circuits of ")
        yield Relaxation(constraint, "1 circuit", with_circuits(context, name, 1))
    elif constraint.startswith("gpus_max at "):
        name = constraint.removeprefix("gpus_max at ")
        yield Relaxation(constraint, "8 GPUs", with_site(context, name, gpus_max=(context.scenario.sites[name].gpus_max or 0) + 8))
    elif constraint.startswith("power at "):
        name = constraint.removeprefix("power at ")
        more = (context.scenario.sites[name].power or 0.0) * POWER_STEP
        power = (context.scenario.sites[name].power or 0.0) + more
        yield Relaxation(constraint, f"{more / 1e3:.3g} kW", with_site(context, name, power=power))
    elif constraint == "budget" and context.scenario.budget is not None:
        more = context.scenario.budget * BUDGET_STEP
        scenario = context.scenario.model_copy(update={"budget": context.scenario.budget + more})
        yield Relaxation(constraint, f"{more:.3g} USD/h", replace(context, scenario=scenario))


def with_site(context: PlanContext, name: str, **update: Any) -> PlanContext:
    """The context with other values of a site."""
    sites = context.scenario.sites
    scenario = context.scenario.model_copy(update={"sites": {**sites, name: sites[name].model_copy(update=update)}})
    return replace(context, scenario=scenario)


def with_stock(context: PlanContext, site: str, chip: str, more: int) -> PlanContext:
    """The context with ``more`` chips of a kind at a site."""
    index, stock = context.stocks[site, chip]
    known = None if stock.stock is None else stock.stock + more
    stocks = {**context.stocks, (site, chip): (index, stock.model_copy(update={"stock": known}))}
    return replace(context, stocks=stocks)


def with_circuits(context: PlanContext, line: str, more: int) -> PlanContext:
    """The context with ``more`` circuits on offer on a line."""
    spec = context.lines[line]
    return replace(context, lines={**context.lines, line: replace(spec, max_circuits=spec.max_circuits + more)})


def with_sla(context: PlanContext, owner: tuple[str, int], change: Callable[[Sla], Sla]) -> PlanContext:
    """The context with ``change(sla)`` for one class, (deployment, index of the class); the traffic's tables stay."""
    name, index = owner
    deployment = context.deployments[name]
    slas = (*deployment.slas[:index], change(deployment.slas[index]), *deployment.slas[index + 1 :])
    return replace(context, deployments={**context.deployments, name: replace(deployment, slas=slas)})


def with_limits(sla: Sla, kind: str, limits: Mapping[str, float]) -> Sla:
    """The SLA with other limits of one latency."""
    target: TailLimits = getattr(sla, kind)
    return sla.model_copy(update={kind: target.model_copy(update=dict(limits))})


def with_demand(context: PlanContext, factor: float) -> PlanContext:
    """Rate of every deployment multiplied."""
    deployments = {}
    for name, deployment in context.deployments.items():
        mix = deployment.mix
        mean = None if mix.mean_rate_per_s is None else mix.mean_rate_per_s * factor
        deployments[name] = replace(deployment, mix=replace(mix, rate_per_s=mix.rate_per_s * factor, mean_rate_per_s=mean))
    return context.with_deployments(deployments)


def _looser_sla(context: PlanContext, owner: str, target: str) -> tuple[str, float, dict[str, Deployment]]:
    kind, _, percentile = target.partition(".")
    step, limit = "1 percentage point", 0.0
    deployments = dict(context.deployments)
    for name, deployment in context.deployments.items():
        for index, label in enumerate(deployment.mix.class_names):
            if owner not in (label, f"{name}.{label}"):
                continue
            sla = deployment.slas[index]
            if target == "attainment":
                limit = sla.attainment or 0.0
                looser = sla.model_copy(update={"attainment": max(limit - ATTAINMENT_STEP, 0.0)})
            else:
                limits: TailLimits = getattr(sla, kind)
                limit = float(getattr(limits, percentile))
                more_s = limit * LATENCY_STEP
                step = f"{more_s:.4g} s" if more_s >= 1.0 else f"{more_s * 1e3:.4g} ms"
                looser = sla.model_copy(update={kind: limits.model_copy(update={percentile: limit * (1 + LATENCY_STEP)})})
            slas = (*deployment.slas[:index], looser, *deployment.slas[index + 1 :])
            deployments[name] = replace(deployment, slas=slas)
    return step, limit, deployments
