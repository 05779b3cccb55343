"""The tornado: how the best plan's objective moves when one input moves, everything planned again; and what the plan alone would do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from pddplan.economics.gpu_price import TERMS
from pddplan.errors import InputError
from pddplan.optimize.infeasible import explain_infeasible
from pddplan.optimize.objective import UNITS, objective_value
from pddplan.optimize.relax import with_demand
from pddplan.optimize.search import Effort, Incumbent, Search
from pddplan.pdd.context import PlanContext, traffic_of
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.plan import Decision, Evaluation
from pddplan.scenario.schema import Goal, Scenario, TermPrices
from pddplan.studies.response import with_traffic

Change = Callable[[PlanContext, float], PlanContext]


@dataclass(frozen=True)
class Swing:
    """One input at ``low`` and ``high`` times its value: the objective of the plan made for that input (None: no plan), and of the
    base plan kept as it is (None: it misses a limit).
    """

    driver: str
    low: float
    high: float
    replanned: tuple[float | None, float | None]
    kept: tuple[float | None, float | None]

    @property
    def span(self) -> float:
        """Largest less smallest objective over the replanned ends; infinite where an end has no plan."""
        if None in self.replanned:
            return float("inf")
        return abs((self.replanned[1] or 0.0) - (self.replanned[0] or 0.0))


@dataclass(frozen=True)
class Sensitivity:
    """Swings, widest first. base: the objective of the best plan, in ``unit``."""

    goal: Goal
    unit: str
    base: float
    evaluation: Evaluation
    swings: tuple[Swing, ...]


def sensitivity(scenario: Scenario, spread: float = 0.2) -> Sensitivity:
    """Each driver at 1 - ``spread`` and 1 + ``spread`` times its value: prices of each chip, of lines, the demand, the miss rate of
    the prefix cache, the output length, and the lines' bandwidth per flow and in all. Raises InputError, InfeasibleError.
    """
    context = traffic_of(PlanContext.from_scenario(scenario))
    effort = Effort(seconds=scenario.search.time_limit, gap=scenario.search.gap)
    search = Search.of(context, effort)
    best = search.run().best
    if best is None:
        raise explain_infeasible(search)
    goal = scenario.objective
    swings = []
    for driver, change in drivers(context).items():
        ends = [change(context, factor) for factor in (1 - spread, 1 + spread)]
        replanned = [_planned(end, best, effort.quick()) for end in ends]
        kept = [_kept(end, best) for end in ends]
        swings.append(Swing(driver, 1 - spread, 1 + spread, (replanned[0], replanned[1]), (kept[0], kept[1])))
    swings.sort(key=lambda swing: -swing.span)
    return Sensitivity(goal, UNITS[goal], objective_value(goal, best.evaluation), best.evaluation, tuple(swings))


@dataclass(frozen=True)
class KeptSwing:
    """What a plan kept as it is does when one input is at ``low`` and at ``high`` times its value."""

    driver: str
    low: float
    high: float
    evaluations: tuple[Evaluation, Evaluation]


def kept_swings(context: PlanContext, decision: Decision, served_share: float = 1.0, spread: float = 0.2) -> tuple[KeptSwing, ...]:
    """Every driver at both ends with ``decision`` kept; drivers that the plan's measured profiles do not cover are left out."""
    found = []
    for driver, change in drivers(context).items():
        try:
            low, high = (evaluate(change(context, factor), decision, served_share, brief=True) for factor in (1 - spread, 1 + spread))
        except InputError:
            continue
        found.append(KeptSwing(driver, 1 - spread, 1 + spread, (low, high)))
    return tuple(found)


def drivers(context: PlanContext) -> Mapping[str, Change]:
    """What can be moved in a context, by name: each takes a context and a factor."""
    found: dict[str, Change] = {}
    for slug in context.chips:
        found[f"price of {slug}"] = lambda c, f, slug=slug: with_prices(c, f, slug)  # type: ignore[misc]
    if context.lines:
        found["price of lines"] = with_line_prices
        found["line bandwidth"] = with_bandwidth
    found["demand"] = with_demand
    if any(bool(np.any(d.mix.uncached_tokens < d.mix.input_tokens)) for d in context.deployments.values()):
        found["uncached tokens (miss rate)"] = lambda c, f: with_traffic(c, uncached_scale=f)
    found["output length"] = lambda c, f: with_traffic(c, output_scale=f)
    return found


def with_prices(context: PlanContext, factor: float, chip: str | None = None) -> PlanContext:
    """Prices of a chip (None: of all) multiplied."""
    prices = {key: price * (factor if chip in (None, key[1]) else 1.0) for key, price in context.prices_usd_h.items()}
    terms = {key: _times(by_term, factor) if chip in (None, key[1]) else by_term for key, by_term in context.terms.items()}
    return replace(context, prices_usd_h=prices, terms=terms)


def _times(prices: TermPrices, factor: float) -> TermPrices:
    offered = {term: price * factor for term in TERMS if (price := getattr(prices, term)) is not None}
    return prices.model_copy(update=offered)


def with_line_prices(context: PlanContext, factor: float) -> PlanContext:
    """Rent of every circuit multiplied."""
    lines = {
        name: replace(line, prices_usd_h={size: price * factor for size, price in line.prices_usd_h.items()})
        for name, line in context.lines.items()
    }
    return replace(context, lines=lines)


def with_bandwidth(context: PlanContext, factor: float) -> PlanContext:
    """Usable share and per-flow rate of every line multiplied, at the same circuits and prices."""
    lines = {
        name: replace(line, usable=line.usable * factor, flow_bytes_per_s=line.flow_bytes_per_s * factor)
        for name, line in context.lines.items()
    }
    return replace(context, lines=lines)


def _planned(context: PlanContext, base: Incumbent, effort: Effort) -> float | None:
    search = Search.of(context, effort)
    start = evaluate(context, base.decision, base.scale)
    if start.feasible and search.fixed_scale:
        search.incumbent = replace(base, evaluation=start, value=search.signed(start))
    best = search.run().best
    return None if best is None else objective_value(context.scenario.objective, best.evaluation)


def _kept(context: PlanContext, base: Incumbent) -> float | None:
    evaluation = evaluate(context, base.decision, base.scale)
    return objective_value(context.scenario.objective, evaluation) if evaluation.feasible else None
