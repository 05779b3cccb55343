"""Plans that divide a deployment: its traffic among routes by share, or its classes among pools of their own."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from pddplan.optimize.by_class import class_divisions
from pddplan.optimize.columns import Columns
from pddplan.optimize.judge import Judge

if TYPE_CHECKING:
    from pddplan.optimize.search import Search


def by_share(search: Search) -> list[float]:
    """Search plans that divide one deployment's traffic among two routes, then three and more while that helps; at the outer settings
    of the best plan so far. Not where all routes draw on one chip of one room. Returns the bound on what each can still give.
    """
    remaining: list[float] = []
    most = search.context.scenario.search.routes_per_deployment
    for name in search.context.deployments:
        routes = sum(route.deployment == name for route in search.routes)
        chips = {(c.configuration.site, c.configuration.chip) for c in search.candidates.found if c.configuration.deployment == name}
        if len(chips) < 2:
            continue
        for parts in range(2, min(most, routes) + 1):
            if search.any_will_do or search.late():
                search.outcome.timed_out |= search.late()
                return remaining
            before, search.asked = search.incumbent, search.judge.evaluations
            chosen = None if before is None else search.outer(before)
            works = [work for work in search.works if not work.mixed and chosen in (None, work.bounds.settings)]
            for columns in works:
                mixed = _divided(search, columns, name, parts)
                search.works.append(mixed)
                remaining.append(search.work(mixed))
            if before is not None and search.incumbent is before:
                break
    return remaining


def _divided(search: Search, columns: Columns, name: str, parts: int) -> Columns:
    """The columns for a divided deployment. A share of bursty arrivals is less bursty: the bounds then know Poisson arrivals. Least
    counts at the whole demand hold as they are, capacities up to another largest scale do not.
    """
    owner = search.context.deployments[name]
    bounds, least = columns.bounds, columns.least
    if owner.mix.arrival_scv > 1.0:
        calm = {**search.context.deployments, name: replace(owner, mix=replace(owner.mix, arrival_scv=1.0))}
        context = replace(search.context, deployments=calm)
        bounds, least = replace(bounds, context=context, judge=Judge(context).probe), {}
    return replace(columns, routes=search.routes, bounds=bounds, mixed=name, parts=parts, least=least, tables={}, carried={}, slots={})


def by_class(search: Search) -> list[float]:
    """Search plans that serve some classes of a deployment on pools of their own. Returns the bound on what each division can give."""
    remaining: list[float] = []
    for name in search.context.deployments:
        divisible = all(work.bounds.rates(c) is None for work in search.works[:1] for c in search.candidates.of(name, "AGG"))
        several = sum(route.deployment == name for route in search.routes) > 1
        several |= search.context.scenario.search.configurations_per_role > 1
        divisible &= search.context.scenario.search.routes_per_deployment > 1
        for division in class_divisions(search.context, name) if divisible and several else ():
            if search.any_will_do or search.late():
                search.outcome.timed_out |= search.late()
                return remaining
            effort, spent = replace(search.effort, mixed=False), time.monotonic() - search.started
            if effort.seconds is not None:
                effort = replace(effort, seconds=max(effort.seconds - spent, 0.0))
            inner = replace(type(search).of(division.context, effort), incumbent=search.incumbent, owners=division.owners)
            outcome = inner.run()
            remaining.append(outcome.bound)
            search.outcome.programs += outcome.programs
            search.outcome.cuts += outcome.cuts
            search.outcome.timed_out |= outcome.timed_out
            search.judge.evaluations += inner.judge.evaluations
            if outcome.best is not None and inner.own(outcome.best):
                search.take(division.joined(outcome.best.decision, search.context), outcome.best.scale)
    return remaining
