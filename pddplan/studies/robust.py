"""A plan that holds in several futures: the cheapest counts that meet every limit in each, and what that certainty costs."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

from pddplan.errors import InfeasibleError, InputError, Problem
from pddplan.optimize.box import Assessment, Point, best_in_box
from pddplan.optimize.relax import with_demand
from pddplan.optimize.search import Effort, Incumbent, Search
from pddplan.pdd.context import PlanContext, traffic_of
from pddplan.pdd.evaluate import evaluate
from pddplan.pdd.plan import Decision, Evaluation
from pddplan.pdd.terms import paid
from pddplan.scenario.schema import Scenario
from pddplan.studies.response import with_traffic

CALLS = 80
REACH = 2
"""Counts go this many times beyond the largest that one future alone needs."""


@dataclass(frozen=True)
class Future:
    """One way the traffic may turn out, as multiples of the scenario's demand and of its uncached tokens; weights sum to 1."""

    name: str
    weight: float
    demand: float = 1.0
    uncached: float = 1.0


@dataclass(frozen=True)
class FutureResult:
    """own: the plan made for this future alone (None: it has none); robust: the robust plan's evaluation in it."""

    future: Future
    own: Evaluation | None
    robust: Evaluation


@dataclass(frozen=True)
class RobustPlan:
    """The cheapest plan found that is feasible in every future.

    expected_bcr, worst_bcr: over the futures. price_of_robustness: its cost over that of the plan for the scenario as it stands,
    less 1. nominal: that plan; nominal_fails: the futures in which it misses a limit.
    """

    decision: Decision
    results: tuple[FutureResult, ...]
    expected_bcr: float
    worst_bcr: float
    cost_usd_per_h: float
    price_of_robustness: float
    nominal: Evaluation
    nominal_fails: tuple[str, ...]


def futures(demand: tuple[float, ...] = (0.8, 1.0, 1.2), uncached: tuple[float, ...] = (0.8, 1.0, 1.3)) -> tuple[Future, ...]:
    """The grid of two factors, equally weighted."""
    pairs = list(itertools.product(demand, uncached))
    return tuple(Future(f"demand x {d:g}, uncached x {u:g}", 1.0 / len(pairs), d, u) for d, u in pairs)


def robust_plan(scenario: Scenario, expected: tuple[Future, ...] | None = None) -> RobustPlan:
    """Least cost over the configurations that some future's own best plan uses, feasible in all; of equal cost the first.

    One decision holds everywhere: counts, circuits and thresholds are bought before the future is known. Raises InputError for
    weights that do not sum to 1, InfeasibleError when no such plan is found.
    """
    chosen = expected or futures()
    _check(chosen)
    nominal_context = traffic_of(PlanContext.from_scenario(scenario.model_copy(update={"objective": "min-cost", "served_share_min": 1.0})))
    effort = Effort(seconds=scenario.search.time_limit, gap=scenario.search.gap)
    contexts = [_under(nominal_context, future) for future in chosen]
    nominal = Search.of(nominal_context, effort).run().best
    own = [Search.of(context, effort.quick()).run().best for context in contexts]
    if nominal is None or None in own:
        missing = [future.name for future, best in zip(chosen, own, strict=True) if best is None]
        raise InfeasibleError("futures", f"no plan at all in: {', '.join(missing) or 'the scenario as it stands'}")
    best = _cheapest([best for best in (nominal, *own) if best is not None], contexts)
    if best is None:
        raise InfeasibleError("futures", "no configuration of a single future's plan holds in all of them", ["fewer futures"])
    results = tuple(
        FutureResult(future, one.evaluation if one else None, evaluate(context, best))
        for future, one, context in zip(chosen, own, contexts, strict=True)
    )
    bcr = [result.robust.metrics.bcr for result in results]
    cost = results[0].robust.metrics.cost_usd_per_h
    fails = tuple(f.name for f, c in zip(chosen, contexts, strict=True) if not evaluate(c, nominal.decision).feasible)
    return RobustPlan(
        decision=best,
        results=results,
        expected_bcr=sum(f.weight * b for f, b in zip(chosen, bcr, strict=True)),
        worst_bcr=min(bcr),
        cost_usd_per_h=cost,
        price_of_robustness=cost / nominal.evaluation.metrics.cost_usd_per_h - 1.0,
        nominal=nominal.evaluation,
        nominal_fails=fails,
    )


def _check(chosen: tuple[Future, ...]) -> None:
    total = sum(future.weight for future in chosen)
    if abs(total - 1.0) > 1e-6 or any(f.weight < 0 or f.demand <= 0 or f.uncached < 0 for f in chosen):
        found = f"weights sum to {total:g}" if abs(total - 1.0) > 1e-6 else "a negative weight or factor"
        raise InputError(Problem("futures", found, "weights that sum to 1, factors over 0", "demand 0.8,1,1.2"))


def _under(context: PlanContext, future: Future) -> PlanContext:
    return with_demand(with_traffic(context, uncached_scale=future.uncached), future.demand)


def _cheapest(plans: list[Incumbent], contexts: list[PlanContext]) -> Decision | None:
    """The cheapest decision that is feasible in every context, over the configurations and thresholds of ``plans``."""
    found: tuple[float, Decision] | None = None
    shapes: dict[object, Decision] = {}
    for plan in plans:
        shape = (tuple(p.configuration for p in plan.decision.pools), tuple(x.name for x in plan.decision.links), plan.decision.settings)
        larger = shapes.get(shape)
        shapes[shape] = plan.decision if larger is None else _larger(larger, plan.decision)
    for decision in shapes.values():
        cutoff = -found[0] if found else -math.inf
        grown = _grown(decision, contexts, cutoff)
        if grown is not None:
            found = (_cost(contexts[0], grown), grown)
    return None if found is None else found[1]


def _larger(one: Decision, other: Decision) -> Decision:
    pools = tuple(replace(a, instances=max(a.instances, b.instances)) for a, b in zip(one.pools, other.pools, strict=True))
    links = tuple(replace(a, circuits=max(a.circuits, b.circuits)) for a, b in zip(one.links, other.links, strict=True))
    return replace(one, pools=pools, links=links)


def _grown(decision: Decision, contexts: list[PlanContext], cutoff: float) -> Decision | None:
    """The cheapest counts of a decision's configurations that hold in every context, worth more than ``cutoff``."""
    sizes = [pool.instances for pool in decision.pools] + [link.circuits for link in decision.links]
    lower = tuple(1 for _ in sizes)
    circuits = [contexts[0].lines[link.name].max_circuits for link in decision.links]
    caps = [REACH * size + 2 for size in sizes[: len(decision.pools)]] + circuits
    upper = tuple(min(REACH * size + 2, cap) for size, cap in zip(sizes, caps, strict=True))

    def at(point: Point) -> Decision:
        pools = tuple(replace(pool, instances=n) for pool, n in zip(decision.pools, point, strict=False))
        links = tuple(replace(link, circuits=n) for link, n in zip(decision.links, point[len(pools) :], strict=True))
        return replace(decision, pools=pools, links=links)

    def assess(point: Point) -> Assessment:
        return Assessment(all(evaluate(context, at(point), brief=True).feasible for context in contexts), 1.0)

    def worth(point: Point, _: float) -> float:
        return -_cost(contexts[0], at(point)) if _in_stock(contexts[0], at(point)) else -math.inf

    found = best_in_box(lower, upper, worth, assess, cutoff, CALLS)
    return None if found.best is None else at(found.best)


def _in_stock(context: PlanContext, decision: Decision) -> bool:
    used: dict[tuple[str, str], int] = {}
    for pool in decision.pools:
        key = (pool.configuration.site, pool.configuration.chip)
        used[key] = used.get(key, 0) + pool.gpus
    stocks = {key: context.stocks[key][1].stock for key in used}
    return all(stock is None or used[key] <= stock for key, stock in stocks.items())


def _cost(context: PlanContext, decision: Decision) -> float:
    rent = sum(paid(context, decision.pools)[0])
    return rent + sum(context.lines[x.name].prices_usd_h[x.circuit_bytes_per_s] * x.circuits for x in decision.links)
