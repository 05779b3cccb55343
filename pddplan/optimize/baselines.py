"""The four baselines, planned by the same search on the same demand: what the plan is to be compared with."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from pddplan.optimize.candidates import Candidates, enumerate_candidates
from pddplan.optimize.infeasible import shortfall
from pddplan.optimize.judge import Judge, value_of
from pddplan.optimize.result import Baseline, BaselineName
from pddplan.optimize.routes import Route, routes_of
from pddplan.optimize.search import Effort, Incumbent, Search
from pddplan.pdd.context import PlanContext
from pddplan.pdd.plan import Decision
from pddplan.scenario.schema import ChipStock, Goal, Scenario, TermPrices


@dataclass(frozen=True)
class Alternative:
    """A restricted search: a context, its candidates, and the routes that are allowed in it."""

    context: PlanContext
    candidates: Candidates
    routes: tuple[Route, ...]

    def search(self, effort: Effort) -> Search:
        """The search, run."""
        search = Search(self.context, self.candidates, self.routes, Judge(self.context), effort)
        search.run()
        return search


def baselines(context: PlanContext, candidates: Candidates, best: Incumbent, effort: Effort) -> tuple[Baseline, ...]:
    """The baselines of a scenario; the plan says which room is P's, and stands for a baseline of its own form that the lesser effort
    did not find. One room holds the whole stock, in every role.
    """
    found = _searched(context, candidates, best.decision, effort)
    return tuple(_at_least(baseline, best, context.scenario.objective) for baseline in found)


def _at_least(baseline: Baseline, best: Incumbent, goal: Goal) -> Baseline:
    """The baseline, or the plan itself where it has the baseline's form and is better."""
    roles = {pool.configuration.role for pool in best.decision.pools if pool.instances}
    places = {(pool.configuration.site, pool.configuration.chip) for pool in best.decision.pools if pool.instances}
    one_site = len({site for site, _ in places}) == 1
    has_form = {
        "aggregated": roles == {"AGG"} and one_site,
        "one_room_one_chip": roles == {"P", "MD"} and len(places) == 1,
        "one_room_mixed": roles == {"P", "MD"} and one_site,
        "two_rooms_no_hiding": roles == {"P", "MD"} and not one_site,
    }[baseline.name]
    mine = -math.inf if baseline.evaluation is None else value_of(goal, baseline.evaluation, 0.0)
    if not has_form or value_of(goal, best.evaluation, 0.0) <= mine:
        return baseline
    return Baseline(baseline.name, "feasible" if baseline.evaluation is None else baseline.status, best.evaluation)


def _searched(context: PlanContext, candidates: Candidates, plan: Decision, effort: Effort) -> tuple[Baseline, ...]:
    room = one_room(context, plan)
    found = enumerate_candidates(room)
    spanning = (r for r in _routes(context, candidates) if not r.aggregated and r.line is not None)
    cross = tuple(dict.fromkeys(replace(route, relay=False, colocated=False) for route in spanning))
    across = Alternative(context, candidates, cross)
    several = "the scenario has one room" if len(context.scenario.sites) < 2 else "no P and MD pool in two rooms that a line joins"
    return (
        _solve("aggregated", [_within(room, found, lambda route: route.aggregated)], effort, "no chip can serve aggregated"),
        _solve("one_room_one_chip", _one_chip(room, found), effort, "no chip can serve both P and MD"),
        _solve("one_room_mixed", [_within(room, found, lambda route: not route.aggregated)], effort, "no chips can serve P and MD"),
        _solve("two_rooms_no_hiding", [across], effort, several),
    )


def one_room(context: PlanContext, plan: Decision | None) -> PlanContext:
    """The scenario with all stock in P's room, every role allowed: that of the plan, else the first that allows P.

    A chip that stands in two rooms counts once, its stock added up, at the price of P's room. A chip with measured profiles
    takes the roles that were measured.
    """
    scenario = context.scenario
    p_site = next((pool.configuration.site for pool in plan.pools if pool.configuration.role == "P"), None) if plan else None
    allowing = [site for site, _, stock in scenario.chips() if stock.allows("P")]
    site = p_site or next(iter(allowing), next(iter(scenario.sites)))
    merged: dict[str, ChipStock] = {}
    ordered = sorted(context.stocks.items(), key=lambda item: item[0][0] != site)
    for (_, chip), (_, stock) in ordered:
        roles = tuple(dict.fromkeys(p.role for p in stock.profiles)) or None
        free = stock.model_copy(update={"roles": roles, "forbidden_roles": (), "instances_min": {}})
        if chip in merged:
            both = None if merged[chip].stock is None or stock.stock is None else (merged[chip].stock or 0) + stock.stock
            together = {"stock": both, "profiles": (*merged[chip].profiles, *stock.profiles), "prices": _together(merged[chip], stock)}
            merged[chip] = merged[chip].model_copy(update=together)
        else:
            merged[chip] = free
    entry = scenario.sites[site].model_copy(update={"chips": tuple(merged.values()), "power": None, "gpus_max": None})
    search = scenario.search.model_copy(update={"aggregated": True})
    alone: Scenario = scenario.model_copy(update={"sites": {site: entry}, "links": {}, "search": search, "plan": None, "fleet": None})
    return PlanContext.from_scenario(alone).sharing(context)


def _together(one: ChipStock, other: ChipStock) -> TermPrices | None:
    """Prices of the first, by term, with the reservations of both."""
    if one.prices is None:
        return None
    limits = [None if stock.prices is None else stock.prices.reserved_max for stock in (one, other)]
    most = None if None in limits else sum(limit or 0 for limit in limits)
    return one.prices.model_copy(update={"reserved_max": most})


def _routes(context: PlanContext, candidates: Candidates) -> tuple[Route, ...]:
    return tuple(route for name in context.deployments for route in routes_of(context, candidates, name))


def _within(context: PlanContext, candidates: Candidates, keep: Callable[[Route], bool]) -> Alternative:
    return Alternative(context, candidates, tuple(route for route in _routes(context, candidates) if keep(route)))


def _one_chip(context: PlanContext, candidates: Candidates) -> list[Alternative]:
    chips = dict.fromkeys(candidate.configuration.chip for candidate in candidates.found)
    alternatives = []
    for chip in chips:
        own = replace(candidates, found=tuple(c for c in candidates.found if c.configuration.chip == chip))
        alternatives.append(_within(context, own, lambda route: not route.aggregated))
    return alternatives


def _solve(name: BaselineName, alternatives: list[Alternative], effort: Effort, missing: str) -> Baseline:
    """The best of the alternatives' plans, or why there is none."""
    searches = [alternative.search(effort) for alternative in alternatives]
    planned = [(search.outcome.best, search) for search in searches if search.outcome.best is not None]
    if not planned:
        reasons = [reason for search in searches if search.servable and (reason := shortfall(search))]
        return Baseline(name, "infeasible", None, reasons[0] if reasons else missing)
    best, search = max(planned, key=lambda item: item[0].value)
    within = search.outcome.gap(search.goal) <= effort.gap
    return Baseline(name, "optimal" if within else "feasible", best.evaluation)
